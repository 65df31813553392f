"""Filters over Lance, by every way that pushes them, against Spark over Parquet of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lance

import lancestat
from lancestat.query.read.relation import Relation, relate
from lancestat.query.table import DeclaredTables
from tests.filters.columns import COLUMNS, parquet_view, write_lance, write_parquet
from tests.filters.conditions import condition
from tests.interpreted import INTERPRETED
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Offsets of odd minutes and seconds, zones that skipped a day or a midnight, and the furthest.
ZONES = (
    *("UTC", "Asia/Kathmandu", "America/St_Johns", "Africa/Monrovia", "Europe/Amsterdam"),
    *("Pacific/Apia", "America/Sao_Paulo", "Asia/Manila", "+18:00", "-18:00", "Asia/Kolkata"),
)
WAYS = ("read_table", "zone maps", "groups")
# Conditions that become one query.
AT_ONCE = 30

_TRIED_WITH = {**INTERPRETED, "spark.sql.timeType.enabled": "true"}
_INDEXED = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
_INDEXED |= {"string", "binary", "date", "timestamp", "timestamp_ntz", "time"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that selects other rows by some way than Spark does over Parquet."""

    way: str
    zone: str
    condition: str
    expected: tuple[int, ...]
    found: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{self.way}, {self.zone}: {self.condition}\n"
            f"  expected {list(self.expected)}\n  found    {list(self.found)}"
        )


class Rows:
    """The same rows as Parquet, as a Lance table, and as one with a zone map of every column."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        rows = write_lance(folder / "plain.lance")
        write_lance(folder / "indexed.lance")
        write_parquet(folder / "rows.parquet", rows)
        for column in COLUMNS:
            if column.family.removeprefix("mid ") in _INDEXED and column.name != "large bytes":
                indexed = lance.dataset(folder / "indexed.lance")
                indexed.create_scalar_index(column.name, "ZONEMAP")

    @cached_property
    def parquet(self) -> DataFrame:
        """Return the rows as Spark reads them from Parquet."""
        frame = self._spark.read.parquet(str(self._folder / "rows.parquet"))
        return frame.selectExpr("id", *map(parquet_view, COLUMNS))

    @cached_property
    def ways(self) -> Mapping[str, DataFrame]:
        """Return DataFrames over Lance, by the source of their pruning."""
        plain, indexed = (str(self._folder / f"{name}.lance") for name in ("plain", "indexed"))
        world = World(Path(plain))
        [node] = world.run().nodes
        assert node.status == "success", node
        opened = DeclaredTables(world.observer.spec, world.state, world.clock).open([world.table])
        [grouped] = relate(self._spark, [Relation(opened["orders"])])  # type: ignore[arg-type]
        return {
            "read_table": lancestat.read_table(self._spark, plain, version=1),
            "zone maps": lancestat.read_table(self._spark, indexed),
            "groups": grouped,
        }


def drawn(seed: int, families: Sequence[str] = ()) -> Iterator[str]:
    """Conditions on one column after the other."""
    random = Random(seed)
    chosen = [column for column in COLUMNS if not families or column.family in families]
    while True:
        for column in chosen:
            yield condition(random, column)


def trial(
    spark: SparkSession, rows: Rows, zone: str, conditions: Sequence[str], ways: Sequence[str]
) -> list[Finding]:
    """Return the findings of some ways to filter under a session's time zone."""
    with _settings(spark, **{**_TRIED_WITH, "spark.sql.session.timeZone": zone}):
        expected = _truth(rows.parquet, conditions)
        findings = []
        for way in ways:
            for start in range(0, len(conditions), AT_ONCE):
                some = conditions[start : start + AT_ONCE]
                for text, selected in zip(some, _selected(rows.ways[way], some), strict=True):
                    if selected != expected[text]:
                        findings.append(Finding(way, zone, text, expected[text], selected))
    return findings


def _truth(frame: DataFrame, conditions: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The rows of each condition, which is a column of the result: nothing is pushed anywhere."""
    matching_ids: dict[str, list[int]] = {text: [] for text in conditions}
    columns = [f"{text} AS `_{place}`" for place, text in enumerate(matching_ids)]
    for row in frame.selectExpr("id", *columns).collect():
        for text, holds in zip(matching_ids, row[1:], strict=True):
            if holds:
                matching_ids[text].append(row[0])
    return {text: tuple(sorted(ids)) for text, ids in matching_ids.items()}


def _selected(frame: DataFrame, conditions: Sequence[str]) -> list[tuple[int, ...]]:
    """The rows of each condition, by one job over as many scans."""
    from pyspark.sql import functions as f

    parts = [
        frame.where(text).select(f.lit(place).alias("place"), "id")
        for place, text in enumerate(conditions)
    ]
    ids: list[list[int]] = [[] for _ in conditions]
    for place, id in reduce(lambda left, right: left.unionAll(right), parts).collect():
        ids[place].append(id)
    return [tuple(sorted(selection)) for selection in ids]


@contextmanager
def _settings(spark: SparkSession, **settings: str) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def java_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """The JVM's own time zone, by which it makes objects of dates and instants."""
    zones: Any = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)
