"""Whether a project's tables, state and Spark can be reached."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.cli.check import Check
from lancestat.errors import InvalidProject, LancestatError
from lancestat.lake.clean import clean, secret_values
from lancestat.lake.uri import local_path
from lancestat.plan.format import count, duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from lancestat.project import Project
    from lancestat.spec.model import ProjectSpec, Table, Target

_OPENED_AT_ONCE = 16


def check_project(load: Callable[[], Project]) -> tuple[Check, Project | None]:
    """Whether there is a valid project; the project if so."""
    try:
        project = load()
    except InvalidProject as error:
        first = error.errors[0]
        place = f"{first.location}  " if first.location else ""
        more = f" (and {len(error.errors) - 1} more)" if len(error.errors) > 1 else ""
        advice = first.hint if len(error.errors) == 1 else "lancestat validate"
        return Check("project", False, f"{place}{first.message}{more}", advice), None
    except LancestatError as error:
        return Check("project", False, error.message, error.hint), None
    spec = project.spec
    finding = f"{spec.name}, target {spec.target.name}: {count(len(spec.nodes), 'node')}"
    return Check("project", True, finding), project


def check_tables(spec: ProjectSpec) -> Iterator[Check]:
    """Open every declared table."""
    with ThreadPoolExecutor(_OPENED_AT_ONCE) as pool:
        yield from pool.map(lambda table: _check_table(table, spec.target), spec.tables)


def _check_table(table: Table, target: Target) -> Check:
    from lancestat.lake.open import observe_dataset

    subject = f"table {table.name}"
    try:
        dataset = observe_dataset(table.uri, storage_options=target.storage_options)
    except LancestatError as error:
        return Check(subject, False, error.message, error.hint or "look at its uri in the YAML")
    return Check(subject, True, f"version {dataset.version}")


def check_state(project: Project) -> Check:
    """Whether the state can be read and, where this machine can tell, written."""
    uri = project.spec.target.state
    try:
        project.state.records()
    except LancestatError as error:
        return Check("state", False, error.message, error.hint or "look at the target's state")
    folder = local_path(uri)
    place = next((p for p in (folder, *folder.parents) if p.exists()), None) if folder else None
    if place is not None and not _is_writable(place):
        return Check(
            "state",
            False,
            f"{place} cannot be written",
            "allow it, or name another state in the target",
        )
    return Check("state", True, clean(uri))


def check_spark(target: Target) -> Check:
    """Whether Spark starts and its Python workers find the same libraries as this process."""
    from lancestat.spark.session import running_session, start_session

    begun = time.monotonic()
    running = None
    session = None
    try:
        running = running_session()
        session = running or start_session(target, "lancestat debug")
        context = session.sparkContext
        place = f"{context.version} at {context.master}"
        versions = set(context.parallelize([0], 1).map(_versions).collect())
    except LancestatError as error:
        return Check("Spark", False, error.message, error.hint or "look at the target's spark")
    except Exception as error:
        text = clean(str(error), secret_values(target.storage_options))
        return Check("Spark", False, text, "look at the target's spark")
    finally:
        if session is not None and running is None:
            session.stop()
    here = _versions(0)
    if versions != {here}:
        found = f"workers have {', '.join(sorted(versions))}, this process has {here}"
        return Check("Spark", False, found, "give workers the same environment")
    elapsed = duration(time.monotonic() - begun)
    return Check("Spark", True, f"{place}, up in {elapsed}")


def _versions(_: int) -> str:
    import platform
    from importlib.metadata import version

    names = ("lancestat", "pylance", "pyarrow", "polars")
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {libraries}"


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)
