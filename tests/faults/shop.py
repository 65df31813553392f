"""A project with tables and joins of every kind, its expected content, and checks after a fault."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lancestat.errors import LancestatError
from lancestat.joins.action import JoinAction
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.pipelines.artifacts import MANIFEST, RUN_RESULTS, SOURCES
from lancestat.project import Project
from lancestat.tables.judgement import examine
from lancestat.tables.wire import GuardReason, decode_statistics
from tests.faults.children import SCRATCH
from tests.histories.statistics import shown_truth
from tests.joins.joined import _Joining, vectors
from tests.runs.test_faults import unstamped
from tests.runs.world import orders
from tests.tables.test_history import full_values

TABLES = ("orders", "returns", "items", "l", "r")
JOINS = ("near", "far")
RESULT = "near_rows"
ROWS = 60
# Bytes for two groups of fragments of each table, but not for all of its fragments.
_BUDGET = 110_000


@dataclass
class Shop:
    """Tables at `base`, a folder or a prefix in an object store, and the project in `folder`.

    How a store is reached is said by the environment, which for children may lead through a proxy.
    """

    folder: Path
    base: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = TABLES
    aside: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    before: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    after: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)

    @property
    def joins(self) -> tuple[str, ...]:
        return JOINS[:1] if self.base else JOINS

    @property
    def project(self) -> Project:
        """Return the project as a reader opens it, without faults."""
        return Project.load(self.folder)

    def uri(self, name: str) -> str:
        return f"{self.base or self.folder}/{name}"

    def environment(self) -> dict[str, str]:
        """Return the environment of child processes."""
        (self.folder / "tmp").mkdir(exist_ok=True)
        return {
            SCRATCH: self.uri("scratch"),
            "TMPDIR": str(self.folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(self.folder / "tmp"),
            "COLUMNS": "100",
        }

    def declare(self, edition: str = "first", name: str = "shop") -> None:
        """Write the project's files; the edition stands on all pages."""
        target = {
            "state": self.uri("state"),
            "scratch": self.uri("scratch"),
            "state_budget": _BUDGET,
            "spark": {"master": "local[2]", "min_bytes": 0},
            **({"storage_options": dict(self.options)} if self.options else {}),
        }
        project = {
            "name": f"{name}-{edition}",
            "default_target": "dev",
            "targets": {"dev": target, "prod": target},
        }
        (self.folder / "specs").mkdir(parents=True, exist_ok=True)
        (self.folder / "lancestat_project.yml").write_text(yaml.safe_dump(project))
        (self.folder / "specs" / "shop.yml").write_text(yaml.safe_dump(self._specs()))

    def _specs(self) -> dict[str, Any]:
        lake = {name: self.uri(f"{name}.lance") for name in (*self.tables, "near")}
        stale = {"max_versions": 2, "max_age": "1h", "max_changed_rows": "50%"}
        more = {
            "returns": {"publish": "none", "histogram": True},
            "items": {"policy": "loose"},
        }
        tables: list[dict[str, Any]] = [
            {"name": name, "uri": lake[name], **more.get(name, {})} for name in self.tables
        ]
        tables.append({"name": RESULT, "uri": lake["near"]})
        outputs = {"near": {"lance": lake["near"]}, "far": {"parquet": self.uri("far.parquet")}}
        return {
            "policies": [{"name": "loose", "allow.stale": stale, "refresh": "always"}],
            "tables": tables,
            "knn_joins": [
                {
                    "name": name,
                    "left": {"table": "l", "vector": "v", "select": ["id"]},
                    "right": {"table": "r", "vector": "w", "select": ["key", "id"]},
                    "k": 2,
                    "join": "left_outer",
                    "output": outputs[name],
                }
                for name in self.joins
            ],
        }

    def stock(self) -> None:
        """Write the first rows."""
        for name in self.tables[:-2]:
            self._write(name, orders(0, ROWS), rows_per_file=10)
        self._write("l", vectors(0, 12, name="v"), rows_per_file=5)
        self._write("r", vectors(0, 15, name="w"), rows_per_file=6)

    def dataset(self, name: str, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri(f"{name}.lance"), version=version)

    def _write(self, name: str, rows: pa.Table, rows_per_file: int = 10) -> None:
        lance.write_dataset(
            rows,
            self.uri(f"{name}.lance"),
            mode="append" if name in self.aside else "create",
            max_rows_per_file=rows_per_file,
        )
        self.aside[name] = []

    def change(self, rng: random.Random) -> None:
        """Change some tables, and store their rows and the expected results."""
        for name in rng.sample(self.tables, rng.randint(2, len(self.tables))):
            self.change_one(name, rng)
        self.remember()

    def change_one(self, name: str, rng: random.Random) -> None:
        """Change one table."""
        dataset = self.dataset(name)
        start = 1000 + rng.randrange(10**6)
        if name in ("l", "r"):
            if rng.random() < 0.3:
                dataset.delete(f"id % 7 = {rng.randrange(7)}")
            else:
                self._write(name, vectors(start, 4, name={"l": "v", "r": "w"}[name]))
            return
        match rng.randrange(6):
            case 0:
                dataset.delete(f"o_id % 9 = {rng.randrange(9)}")
            case 1:
                dataset.optimize.compact_files(target_rows_per_fragment=40)
            case 2:
                dataset.update({"o_total": str(rng.random())}, where=f"o_id % 5 = {start % 5}")
            case _:
                self._write(name, orders(start, rng.randint(1, 25)))

    def remember(self) -> None:
        """Store the rows, and the results that readers may see from now on."""
        for name in self.tables:
            dataset = self.dataset(name)
            self.aside[name] = rows_of(dataset.to_table())
            self.first[name] = dataset.version
        self.before = {name: self.result(name) for name in self.joins}
        self.after = {name: self._expected(name) for name in self.joins}

    def _expected(self, name: str) -> Counter[tuple[Any, ...]]:
        """The rows that joining in full gives, by comparing all pairs here."""
        [action] = self.project.plan(name, full_refresh=True).actions
        if not isinstance(action, JoinAction):
            # A declared table over the result is no concern of a join.
            raise AssertionError(f"{name} would not be joined: {action}")
        work = replace(action.work, increment=None)
        return Counter(rows_of(_Joining(work).full()))

    def result(self, name: str) -> Counter[tuple[Any, ...]]:
        """A join's result, empty when there is none yet."""
        if name == "far":
            path = self.folder / "far.parquet"
            return Counter(rows_of(pq.read_table(path)) if path.exists() else ())
        try:
            return Counter(rows_of(self.dataset(name).to_table()))
        except ValueError as error:
            if "not found" not in str(error).lower():
                raise
            return Counter()

    def truth(self, name: str, version: int | None = None) -> dict[str, str]:
        """The statistics of a dataset by one pass over all of its rows."""
        dataset = self.dataset(name, version)
        return full_values(dataset, schema_hash(snapshot(dataset).fields))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows that can be compared and counted."""
    columns = [
        [_plain(value) for value in table.column(name).to_pylist()]
        for name in sorted(table.column_names)
    ]
    return list(zip(*columns, strict=True))


def _plain(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(repr, value))
    return repr(value) if isinstance(value, float) else value


def copied(template: Path, place: Path) -> None:
    """Put a copy of a shop where another one was."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place, symlinks=True)


# Files of a project, its tables and its results; other files were left by a process.
_OWN = re.compile(
    r"lancestat_project\.yml|specs|tmp|state|target|aside|\.lancestat|far\.parquet"
    r"|\.far\.parquet\.lancestat|(orders|returns|items|l|r|near)\.lance"
)
_ARTIFACTS = (".gitignore", MANIFEST, RUN_RESULTS, SOURCES)
# Python's `tempfile` tries a folder so, Spark's launcher waits there for the JVM's address, and a
# killed JVM leaves what it has shuffled.
_OF_OTHERS = re.compile(r"tmp[a-z0-9_]{8}(/tmp[a-z0-9_]{8})?$|[a-z0-9_]{8}$|(blockmgr|spark)-")
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
    paths += _in_scratch(shop.folder / "scratch")
    paths += _in_temporary_folder(shop.folder / "tmp")
    state = shop.folder / "state"
    paths += [path for path in state.glob("*") if path.name != "v2"]
    paths += [path for path in state.glob("v2/*") if path.suffix != ".lance"]
    paths += [path for path in (shop.folder / ".lancestat").glob("*") if path.name != "docs"]
    paths += [path for path in (shop.folder / "target").glob("*") if path.name not in _ARTIFACTS]
    paths += _beside_generations(shop.folder)
    return sorted({str(path.relative_to(shop.folder)) for path in paths} - {"scratch"})


def _in_scratch(folder: Path) -> Iterator[Path]:
    """Files in scratch, but for neighbours that were finished: these go after ten minutes."""
    finished = {path.parent for path in folder.glob("neighbours/*/*/neighbours.json")}
    for path in folder.rglob("*"):
        if path.is_file() and finished.isdisjoint(path.parents):
            yield path


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
