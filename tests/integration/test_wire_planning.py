"""Spark plans queries with whatever lancestat publishes, however awkward the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from tests.integration.catalyst import Catalyst, PlannedTable, entries_of
from tests.integration.planned import planned
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
CONDITIONS = ["c > 1.5D", "c < 1.5D", "c = 1.0D", "c > 0D and c < 2D", "c <= 0D", "c > -1e308D"]


@pytest.fixture(scope="module")
def doubles(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlannedTable]:
    spark.conf.set("spark.sql.cbo.enabled", "true")
    table = PlannedTable(Catalyst(spark), DOUBLE, tmp_path_factory.mktemp("planned"))
    yield table
    spark.sql(f"drop table {table.name}")
    spark.conf.unset("spark.sql.cbo.enabled")


@pytest.mark.parametrize(
    ("minimum", "maximum"),
    [
        (0.0, 999.0),
        (0.0, math.inf),
        (-math.inf, 2.0),
        (-math.inf, math.inf),
        (-1.7e308, 1.7e308),
        (-8.9e307, 8.9e307),
        (math.inf, math.inf),
        (5e-324, 1.7976931348623157e308),
    ],
)
def test_spark_plans_with_any_published_statistics(
    minimum: float, maximum: float, doubles: PlannedTable
) -> None:
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(0, 10, minimum, maximum, 8, 8)))
    for condition in CONDITIONS:
        assert 0 <= doubles.estimate(condition) <= 1000


@pytest.mark.parametrize(
    ("bounds", "condition", "failure"),
    [
        ({"c.max": "Infinity"}, "c > 1.5D", "neither a decimal digit"),
        ({"c.min": "-Infinity"}, "c < 1.5D", "neither a decimal digit"),
        ({"c.min": "-1.7E308", "c.max": "1.7E308"}, "c > -1e308D", "neither a decimal digit"),
        ({"c.max": "NaN"}, "c > 1.5D", "assertion failed"),
    ],
)
def test_omitted_bounds_would_break_planning(
    bounds: dict[str, str], condition: str, failure: str, doubles: PlannedTable
) -> None:
    entries = entries_of("c", DOUBLE, ColumnStatistics(0, 10, 0.0, 9.0, 8, 8))
    doubles.set(entries | bounds)
    with pytest.raises(Exception, match=failure):
        doubles.estimate(condition)


@pytest.mark.parametrize(
    "condition",
    [pytest.param("c = 5D", marks=needs.unbounded_equality), "c in (5D, 6D)", "c > 5D"],
)
def test_without_bounds_conditions_are_taken_to_hold(condition: str, doubles: PlannedTable) -> None:
    """From a distinct count without bounds, Spark 4.1 and older expect no row of a set."""
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(0, 10, 0.0, math.inf, 8, 8)))
    assert doubles.estimate(condition) == 1000


def test_without_bounds_a_join_is_not_taken_to_be_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = PlannedTable(Catalyst(spark), BIGINT, tmp_path / "planned", "planned_wide")
    spark.conf.set("spark.sql.cbo.enabled", "true")
    wide = ColumnStatistics(0, 10, 0, 2**63, 8, 8)
    entries = entries_of("c", BIGINT, wide)
    query = f"select * from {table.name} a join {table.name} b on a.c = b.c"
    try:
        table.set({**entries, "c.distinctCount": "10"})
        assert planned(spark.sql(query)).rows == 0
        table.set(entries)
        assert planned(spark.sql(query)).rows == 1_000_000
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
        spark.sql(f"drop table {table.name}")
