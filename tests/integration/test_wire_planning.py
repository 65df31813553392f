"""Spark plans queries with whatever lancestat publishes, however awkward the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lancestat.statistics.column_statistics import ColumnStatistics
from lancestat.statistics.column_type import ColumnType, Kind
from tests.integration.catalyst import Catalyst, PlannedTable, entries_of
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
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


@needs.unbounded_equality
def test_equality_is_estimated_without_bounds(doubles: PlannedTable) -> None:
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(0, 10, 0.0, math.inf, 8, 8)))
    assert doubles.estimate("c = 5D") == 100
