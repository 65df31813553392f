"""Checks after a fault; each returns a list of sentences that describe violations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lance

from lancestat.errors import LancestatError
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.tables.judgement import examine
from lancestat.tables.wire import (
    GuardReason,
    decode_statistics,
)
from tests.faults.shop import RESULT, Shop, rows_of
from tests.histories.statistics import shown_truth
from tests.runs.test_faults import unstamped

# Files of a project, its tables and its results; other files were left by a process.
_OWN = re.compile(
    r"lancestat_project\.yml|specs|tmp|state|aside|\.lancestat|far\.parquet"
    r"|\.far\.parquet\.lancestat|(orders|returns|items|l|r|near)\.lance"
)
# Python's `tempfile` tries a folder so, and Spark's launcher waits there for the JVM's address.
_OF_OTHERS = re.compile(r"tmp[a-z0-9_]{8}(/tmp[a-z0-9_]{8})?$|[a-z0-9_]{8}$")
_GENERATION = re.compile(r"[0-9a-f]{16}")
_BESIDE_GENERATIONS = {"lancestat.json", "lock", "superseded"}


def check_readers(shop: Shop) -> list[str]:
    """Every reader gets true statistics or a refusal, and no row is lost."""
    return [*_rows_lost(shop), *_false_manifests(shop), *_false_shows(shop), *_false_results(shop)]


def check_converged(shop: Shop) -> list[str]:
    """Check that statistics describe the current tables, and results the current sides."""
    problems = check_readers(shop)
    for name in (*shop.tables, RESULT):
        status = shop.project.show(name)
        if not status.use or status.versions_behind or status.missing:
            problems.append(
                f"statistics of {name} are not current: {status.reason}, {status.detail}"
            )
    for name in shop.joins:
        if shop.result(name) != shop.after[name]:
            problems.append(f"the result of {name} is not that of joining now")
    return problems


def check_same(shop: Shop, fresh: Shop) -> list[str]:
    """Check that a fresh project over a copy of the tables publishes the same statistics."""
    problems = []
    for name in (*shop.tables, RESULT):
        here, there = shop.project.show(name), fresh.project.show(name)
        if (here.columns, here.rows, here.use) != (there.columns, there.rows, there.use):
            problems.append(f"statistics of {name} differ from those of a fresh project")
    for name in shop.joins:
        if shop.result(name) != fresh.result(name):
            problems.append(f"the result of {name} differs from that of a fresh project")
    return problems


def _rows_lost(shop: Shop) -> Iterator[str]:
    for name in shop.tables:
        try:
            rows = rows_of(shop.dataset(name).to_table())
        except (OSError, ValueError) as error:
            yield f"table {name} cannot be read: {error}"
        else:
            if Counter(rows) != Counter(shop.aside[name]):
                yield f"table {name} has {len(rows)} rows that are not the {len(shop.aside[name])}"


def _false_manifests(shop: Shop) -> Iterator[str]:
    for name in (*shop.tables, "near"):
        if name == "near" and not shop.result("near"):
            continue
        for version in range(shop.first.get(name, 1), shop.dataset(name).version + 1):
            dataset = shop.dataset(name, version)
            config = dataset.config()
            hashed = schema_hash(snapshot(dataset).fields)
            finding = examine(decode_statistics(config), version=version, schema_hash=hashed)
            is_current = finding.reason is GuardReason.CURRENT
            if is_current and unstamped(config) != shop.truth(name, version):
                yield f"version {version} of {name} publishes false statistics"


def _false_shows(shop: Shop) -> Iterator[str]:
    for name in (*shop.tables, RESULT):
        try:
            status = shop.project.show(name)
        except LancestatError as error:
            if name != RESULT:
                yield f"{name} cannot be shown: {error}"
            continue
        if not status.use or status.versions_behind:
            continue
        truth = shown_truth(status, shop.dataset("near" if name == RESULT else name))
        if any(truth[column] != shown for column, shown in status.columns.items()):
            yield f"false statistics of {name} are shown as {status.reason}"


def _false_results(shop: Shop) -> Iterator[str]:
    for name in shop.joins:
        try:
            rows = shop.result(name)
        except (OSError, ValueError) as error:
            yield f"the result of {name} cannot be read: {error}"
            continue
        if rows not in (shop.before[name], shop.after[name]):
            yield f"the result of {name} is neither the old nor the new one"


def leftovers(shop: Shop) -> list[str]:
    """Files that nothing refers to, and that no living process uses."""
    paths = [path for path in shop.folder.iterdir() if not _OWN.fullmatch(path.name)]
    for place in filter(Path.is_dir, shop.folder.rglob("*.lance")):
        paths += _unreferenced(place)
    paths += [path for path in (shop.folder / "scratch").rglob("*") if path.is_file()]
    paths += _in_temporary_folder(shop.folder / "tmp")
    state = shop.folder / "state"
    paths += [path for path in state.glob("*") if path.name != "v2"]
    paths += [path for path in state.glob("v2/*") if path.suffix != ".lance"]
    paths += [path for path in (shop.folder / ".lancestat").glob("*") if path.name != "docs"]
    paths += _beside_generations(shop.folder)
    return sorted({str(path.relative_to(shop.folder)) for path in paths} - {"scratch"})


def _in_temporary_folder(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not _OF_OTHERS.match(path.relative_to(folder).as_posix()):
            yield path


def _beside_generations(folder: Path) -> Iterator[Path]:
    for path in folder.glob(".far.parquet.lancestat/*"):
        if not _GENERATION.fullmatch(path.name) and path.name not in _BESIDE_GENERATIONS:
            yield path


def _unreferenced(place: Path) -> Iterator[Path]:
    """Files of a dataset that no version has."""
    try:
        dataset = lance.dataset(str(place))
    except (OSError, ValueError):
        yield from (path for path in place.rglob("*") if path.is_file())
        return
    used = set()
    for listed in dataset.versions():
        version = lance.dataset(str(place), version=listed["version"])
        for fragment in version.get_fragments():
            used |= {f"data/{file.path}" for file in fragment.metadata.files}
            deleted = fragment.deletion_file()
            used |= {deleted} if deleted else set()
    for path in place.rglob("*"):
        name = path.relative_to(place).as_posix()
        is_of_lance = name.startswith(("_versions/", "_transactions/"))
        if path.is_file() and not is_of_lance and name not in used:
            yield path
