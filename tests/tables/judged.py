"""Random histories of a table, with the rows that its statistics describe."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa

from lancestat.spec.model import Policy, Publish, Refresh, StaleBounds
from lancestat.tables.judgement import TableStatistics
from tests.runs.world import World

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
POLICIES: tuple[bool | StaleBounds, ...] = (
    False,
    True,
    StaleBounds(max_versions=1),
    StaleBounds(max_versions=4),
    StaleBounds(max_age=timedelta(hours=2)),
    StaleBounds(max_changed_rows=0.0),
    StaleBounds(max_changed_rows=0.01),
    StaleBounds(max_changed_rows=0.2),
    StaleBounds(max_changed_rows=0.6),
    StaleBounds(max_changed_rows=1.0),
    StaleBounds(max_versions=3, max_age=timedelta(hours=3), max_changed_rows=0.3),
)

Columns = Mapping[str, list[object]]
Step = Callable[["JudgedTable"], None]


def policy(allow_stale: bool | StaleBounds) -> Policy:
    return Policy(allow_stale=allow_stale, refresh=Refresh.WHEN_STALE)


@dataclass
class JudgedTable:
    """A table with random changes; `described` are the rows of the version of a tag."""

    world: World
    draw: random.Random
    described: dict[int, Columns] = field(default_factory=dict)
    next_id: int = 0

    @classmethod
    def create(cls, path: Path, publish: Publish, seed: int) -> JudgedTable:
        table = cls(World(path, publish=publish), random.Random(seed))
        lance.write_dataset(table.rows(100), path, schema=SCHEMA, max_rows_per_file=20)
        run(table)
        return table

    @property
    def dataset(self) -> lance.LanceDataset:
        return self.world.dataset

    def rows(self, count: int, schema: pa.Schema = SCHEMA) -> pa.Table:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        arrays = [
            pa.array(ids if column.name == "id" else [one % 3 for one in ids], column.type)
            for column in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def columns(self) -> Columns:
        values: Columns = self.dataset.to_table().to_pydict()
        return values

    def statistics(self) -> TableStatistics:
        return self.world.assess()[0]

    def remember(self) -> None:
        """Remember the version that was just read, if its statistics were kept."""
        published, version = self.statistics().published, self.dataset.version
        if published is not None and published.version_tag == version:
            self.described.setdefault(version, self.columns())

    def truly_changed(self, tag: int, names: Collection[str]) -> float:
        """Return the least share of rows that changed in some columns since a tag's version."""
        now, then = (
            Counter(zip(*(columns[name] for name in sorted(names)), strict=True))
            for columns in (self.columns(), self.described[tag])
        )
        changed = (now - then).total() + (then - now).total()
        return min(1.0, changed / now.total()) if now.total() else float(changed > 0)


def run(table: JudgedTable) -> None:
    assert table.world.run().status == "success"
    table.remember()


def refresh_fully(table: JudgedTable) -> None:
    assert table.world.run(full_refresh=True).status == "success"
    table.remember()


def append(table: JudgedTable) -> None:
    rows = table.rows(table.draw.choice([1, 20]), table.dataset.schema)
    lance.write_dataset(rows, table.dataset.uri, mode="append", max_rows_per_file=20)


def delete(table: JudgedTable) -> None:
    low = table.draw.randrange(100)
    table.dataset.delete(f"id >= {low} and id < {low + table.draw.choice([1, 30])}")


def update(table: JudgedTable) -> None:
    table.dataset.update({"x": "x + 100"}, where=f"id = {table.draw.randrange(100)}")


def compact(table: JudgedTable) -> None:
    table.dataset.optimize.compact_files(materialize_deletions_threshold=0.0)


def configure(table: JudgedTable) -> None:
    table.dataset.update_config({"owner": "shop"})


def drop_and_add(table: JudgedTable) -> None:
    name = table.draw.choice(["x", "y"])
    table.dataset.drop_columns([name])
    table.dataset.add_columns({name: "id * 1000000"})


def drop_and_add_null(table: JudgedTable) -> None:
    """After a compaction that leaves the dropped column out, Lance gives its id away again."""
    name = table.draw.choice(["x", "y"])
    table.dataset.drop_columns([name])
    compact(table)
    table.dataset.add_columns(pa.field(name, pa.int64()))


def rename_into(table: JudgedTable) -> None:
    table.dataset.drop_columns(["x"])
    table.dataset.alter_columns({"path": "y", "name": "x"})
    table.dataset.add_columns({"y": "id % 7"})


def cast_to_and_fro(table: JudgedTable) -> None:
    table.dataset.alter_columns({"path": "x", "data_type": pa.int32()})
    table.dataset.alter_columns({"path": "x", "data_type": pa.int64()})


def add_and_drop(table: JudgedTable) -> None:
    table.dataset.add_columns({"z": "id"})
    table.dataset.drop_columns(["z"])


def restore(table: JudgedTable) -> None:
    uri = table.dataset.uri
    versions = [version["version"] for version in table.dataset.versions()]
    # Steps take several commits; what lies between them lacks a column that other steps need.
    names = set(SCHEMA.names)
    whole = [
        version
        for version in versions
        if set(lance.dataset(uri, version=version).schema.names) == names
    ]
    lance.dataset(uri, version=table.draw.choice(whole)).restore()


def overwrite(table: JudgedTable) -> None:
    rows = table.rows(50)
    lance.write_dataset(rows, table.dataset.uri, mode="overwrite", max_rows_per_file=20)


def clean_up(table: JudgedTable) -> None:
    table.dataset.cleanup_old_versions(older_than=timedelta(0))


def wait(table: JudgedTable) -> None:
    table.world.clock.advance(hours=1)


STEPS: tuple[Step, ...] = (
    run,
    run,
    refresh_fully,
    append,
    append,
    delete,
    delete,
    update,
    compact,
    configure,
    drop_and_add,
    drop_and_add_null,
    rename_into,
    cast_to_and_fro,
    add_and_drop,
    restore,
    overwrite,
    clean_up,
    wait,
)
