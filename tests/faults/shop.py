"""A project with tables and joins of every kind, and its expected content."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lancestat.joins.action import JoinAction
from lancestat.lake.fingerprint import schema_hash
from lancestat.lake.open import snapshot
from lancestat.project import Project
from tests.faults.children import SCRATCH
from tests.joins.joined import _Joining, vectors
from tests.runs.world import orders
from tests.tables.test_history import full_values

TABLES = ("orders", "returns", "items", "l", "r")
JOINS = ("near", "far")
RESULT = "near_rows"
ROWS = 60


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
