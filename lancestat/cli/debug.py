"""The checks of `lancestat debug`."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lancestat.errors import DatasetMissing, InvalidProject, LancestatError
from lancestat.formats import count, duration, size
from lancestat.lake.files import local_path
from lancestat.lake.open import observe_dataset
from lancestat.presentation.terminal import paint, table
from lancestat.presentation.views import Answer, Page
from lancestat.query import warm_up
from lancestat.redact import redact_line, secret_values
from lancestat.runs.discover import located
from lancestat.runs.observe import of_missing_result
from lancestat.spark.jvm import find_archive, find_java, user_sharing_option
from lancestat.spark.package import require_same_versions
from lancestat.spark.session import remote_of, running_session, start_session, uses_package
from lancestat.spark.versions import is_connect
from lancestat.spec.model import is_stand_in, tables_of
from lancestat.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from lancestat.project import Project
    from lancestat.spec.model import ProjectSpec, Table, Target


_OPENED_CONCURRENTLY = 16


class Check(NamedTuple):
    """The finding about a subject, and advice when it is not as it should be."""

    subject: str
    passed: bool
    finding: str
    advice: str | None = None


def run_checks(load: Callable[[], Project], *, warm_up: bool) -> list[Check]:
    """Check the machine and the project; with `warm_up` the machine, whose archive is made."""
    if warm_up:
        checks = list(check_environment())
        return [*checks, make_class_archive()] if _are_passed(checks) else checks
    verdict, project = check_project(load)
    # A client of Spark Connect starts no JVM.
    needs_java = project is None or remote_of(project.spec.target) is None
    checks = list(check_environment(needs_java=needs_java))
    can_start = _are_passed(checks)
    checks.append(verdict)
    if project is None:
        return checks
    spec, target = project.discover(), project.spec.target
    packages = list(check_package(target))
    checks += [*check_sources(spec), *check_tables(spec), check_state(project), *packages]
    if can_start and needs_java:
        checks.append(check_class_archive(target))
    if can_start and _are_passed(packages):
        checks.append(check_spark(target))
    return checks


def _are_passed(checks: Iterable[Check]) -> bool:
    return all(check.passed for check in checks)


def checks_answer(checks: Sequence[Check]) -> Answer:
    status = "success" if _are_passed(checks) else "error"
    members = {"status": status, "checks": [check._asdict() for check in checks]}
    return Answer("debug", members, lambda page: _checks_table(checks, page))


def _checks_table(checks: Sequence[Check], page: Page) -> list[str]:
    rows = []
    for check in checks:
        sign = paint("ok", "success") if check.passed else paint("no", "error")
        rows.append([sign, check.subject, check.finding])
        if check.advice:
            rows.append(["", "", f"-> {check.advice}"])
    return table(rows, page=page)


def _failed(subject: str, error: LancestatError, advice: str | None = None) -> Check:
    location = f"{error.location}  " if error.location else ""
    return Check(subject, False, f"{location}{error.message}", error.hint or advice)


def check_project(load: Callable[[], Project]) -> tuple[Check, Project | None]:
    """Check that there is a valid project, and return it if so."""
    try:
        project = load()
    except InvalidProject as error:
        first, *rest = error.errors
        failed = _failed("project", first)
        if rest:
            more = f"{failed.finding} (and {len(rest)} more)"
            failed = failed._replace(finding=more, advice="lancestat validate")
        return failed, None
    except LancestatError as error:
        return _failed("project", error), None
    spec = project.spec
    nodes = count(len(spec.nodes), "node")
    if spec.sources:
        nodes += f" and {count(len(spec.sources), 'source')}"
    finding = f"{spec.name} in {spec.root}, target {spec.target.name}: {nodes}"
    return Check("project", True, finding), project


def check_sources(spec: ProjectSpec) -> Iterator[Check]:
    """Say how many tables the sources have, of a project in which they were looked up."""
    for source in spec.sources:
        found = [table for table in spec.tables if table.source == source.label]
        # A source that could not be looked up is a table that cannot be opened.
        if not any(map(is_stand_in, found)):
            tables = count(len(found), "table")
            yield Check(f"source {source.label}", True, f"{tables} found")


def check_tables(spec: ProjectSpec) -> Iterator[Check]:
    with ThreadPoolExecutor(_OPENED_CONCURRENTLY) as pool:
        found, nodes = located(spec, spec.tables)
        yield from pool.map(lambda table: _check_table(table, found), tables_of(nodes))


def _check_table(table: Table, spec: ProjectSpec) -> Check:
    subject = f"table {table.name}"
    try:
        dataset = observe_dataset(table.uri, storage_options=spec.options.of(table.uri))
    except LancestatError as error:
        result = of_missing_result(spec, table.uri) if isinstance(error, DatasetMissing) else None
        if result is not None:
            return Check(subject, True, result.message)
        return _failed(subject, error, "look at its uri in the YAML")
    return Check(subject, True, f"version {dataset.version}")


def check_state(project: Project) -> Check:
    """Check that the state can be read and, where this machine can tell, written."""
    uri = project.spec.target.state
    try:
        project.state.digests(project.spec.name, project.spec.target.name)
    except LancestatError as error:
        return _failed("state", error, "look at the target's state")
    folder = local_path(uri)
    existing = next((p for p in (folder, *folder.parents) if p.exists()), None) if folder else None
    if existing and not (existing.is_dir() and os.access(existing, os.W_OK)):
        advice = "allow it, or name another state in the target"
        return Check("state", False, f"{existing} cannot be written", advice)
    return Check("state", True, redact_line(uri))


def check_package(target: Target) -> Iterator[Check]:
    """Check the archive for workers that a target names, without starting Spark."""
    if target.spark_package is None:
        return
    if not uses_package(target):
        yield Check("package", True, "not used by a local Spark, or by a server")
        return
    try:
        require_same_versions(target.spark_package, target.package_location)
    except LancestatError as error:
        advice = "name in the target's spark.package what that command wrote"
        yield _failed("package", error, advice)
    else:
        yield Check("package", True, redact_line(target.spark_package))


def check_spark(target: Target) -> Check:
    """Check that Spark starts and that its workers find the same libraries as this process."""
    begun = time.monotonic()
    running = None
    session = None
    try:
        running = running_session()
        session = running or start_session(target, "lancestat debug")
        # The modules of Spark load only here.
        from lancestat.spark.jobs import jobs_of

        master = "Spark Connect" if is_connect(session) else session.sparkContext.master
        version = f"{session.version} at {master}"
        versions = set(jobs_of(session).run(_worker_versions, [0]))
    except LancestatError as error:
        return _failed("Spark", error, "look at the target's spark")
    except Exception as error:
        text = redact_line(str(error), secret_values(target.storage_options))
        return Check("Spark", False, text, "look at the target's spark")
    finally:
        if session is not None and running is None:
            session.stop()
    here = _versions()
    if versions != {here}:
        finding = f"workers have {', '.join(sorted(versions))}, this process has {here}"
        return Check("Spark", False, finding, "give workers the same environment")
    elapsed = duration(time.monotonic() - begun)
    return Check("Spark", True, f"{version}, up in {elapsed}")


_CLASS_ARCHIVE = "class archive"


def check_class_archive(target: Target) -> Check:
    """Say whether Spark's JVM starts with an archive of its classes; it also starts without one."""
    named = user_sharing_option(target.spark_conf)
    if named is not None:
        return Check(_CLASS_ARCHIVE, True, f"not used: {named} says how Java shares classes")
    archive = find_archive(find_java())
    if archive is None:
        finding = "none; with one, of `lancestat debug --warm-up`, Spark starts in half the time"
        return Check(_CLASS_ARCHIVE, True, finding)
    return Check(_CLASS_ARCHIVE, True, str(archive))


def make_class_archive() -> Check:
    try:
        archive = warm_up.make_class_archive()
    except LancestatError as error:
        return _failed(_CLASS_ARCHIVE, error, "Spark starts without it, too, in twice the time")
    return Check(_CLASS_ARCHIVE, True, f"{archive}, {size(archive.stat().st_size)}")


def _worker_versions(items: Iterable[int]) -> Iterator[tuple[str, tuple[()]]]:
    for _ in items:
        yield _versions(), ()


def _versions() -> str:
    # Workers that have lancestat from an archive have no metadata of it.
    named = ("pylance", "pyarrow", "polars")
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in named)
    return f"Python {platform.python_version()}, lancestat {__version__}, {libraries}"


PYTHON_NEEDED = (3, 10)
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.\-]+)>=([0-9.]+)$")
# Modules whose native code a wrong build of the machine or of a neighbour would break.
_NATIVE = {
    "faiss-cpu": "faiss",
    "numpy": "numpy",
    "polars": "polars",
    "polars-hash": "polars_hash",
    "pyarrow": "pyarrow",
    "pylance": "lance",
}


def check_environment(*, needs_java: bool = True) -> Iterator[Check]:
    """Check Python, Java and every library, each on a line of its own."""
    yield check_python()
    if needs_java:
        yield check_java()
    yield from check_libraries()
    yield from check_spark_home(os.environ)


def check_python() -> Check:
    version = platform.python_version()
    if sys.version_info[:2] >= PYTHON_NEEDED:
        return Check("Python", True, version)
    return Check("Python", False, version, "use Python 3.10 or newer")


def check_java() -> Check:
    try:
        java = find_java()
    except LancestatError as error:
        return _failed("Java", error, "install Java 17")
    return Check("Java", True, f"{java.version} at {java.path}")


def check_libraries() -> Iterator[Check]:
    """Check that what lancestat requires is installed, new enough and can be loaded."""
    for requirement in metadata.requires("lancestat") or ():
        parsed = _REQUIREMENT.match(requirement)
        if parsed:
            yield check_library(parsed[1], parsed[2])


def check_library(name: str, needed: str) -> Check:
    advice = f"pip install '{name}>={needed}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, "not installed", advice)
    if _numbers(version) < _numbers(needed):
        return Check(name, False, f"{version}, lancestat needs {needed} or newer", advice)
    if name in _NATIVE:
        try:
            import_module(_NATIVE[name])
        except Exception as error:
            broken = f"{version} does not load: {' '.join(str(error).split())}"
            return Check(name, False, broken, f"pip install --force-reinstall '{name}>={needed}'")
    return Check(name, True, version)


def check_spark_home(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check that SPARK_HOME, if set, names a Spark of the version that pyspark has."""
    home = environment.get("SPARK_HOME")
    if not home:
        return
    release = Path(home) / "RELEASE"
    if not Path(home).is_dir():
        yield Check("SPARK_HOME", False, f"{home} does not exist", "unset SPARK_HOME")
        return
    text = release.read_text("utf-8", errors="replace") if release.is_file() else ""
    named = re.search(r"Spark ([0-9.]+)", text)
    try:
        ours = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if named and named[1] != ours:
        finding = f"{home} is Spark {named[1]}, the pyspark library {ours}"
        yield Check("SPARK_HOME", False, finding, "unset SPARK_HOME, or install the same pyspark")
    else:
        yield Check("SPARK_HOME", True, home)


def _numbers(version: str) -> tuple[int, ...]:
    """`10.2.1rc1` as (10, 2, 1), without trailing zeros, so that 14 and 14.0 are equal."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
