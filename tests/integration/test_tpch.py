"""All queries of TPC-H give the same over Lance, planned with its statistics, as over Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lancestat
from examples.project.load import FRAGMENTS, generate, table_path, write
from tests.examples import sample
from tests.integration.planned import planned
from tests.integration.test_oracle import assert_as_spark, compare, share_within
from tests.interpreted import compiled
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

SCALE = Decimal("0.02")
QUERIES = sorted((Path(__file__).parents[2] / "benchmarks" / "tpch").glob("q*.sql"))


@dataclass(frozen=True)
class Sides:
    """Two sessions with the eight tables under the same names."""

    lance: SparkSession
    parquet: SparkSession
    worlds: dict[str, World]


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, SCALE)
    # The rows of Lance go through generated code, and those that they are compared with do not.
    made = Sides(compiled(spark), spark.newSession(), {})
    for setting in ("spark.sql.cbo.enabled", "spark.sql.cbo.joinReorder.enabled"):
        made.lance.conf.set(setting, "true")
    for name in FRAGMENTS:
        parquet, path = folder / f"{name}.parquet", table_path(folder, name)
        write(parquet, path, name)
        made.worlds[name] = World(path, name)
        assert made.worlds[name].run().status == "success"
        lancestat.read_table(made.lance, str(path)).createOrReplaceTempView(name)
        made.parquet.read.parquet(str(parquet)).createOrReplaceTempView(name)
    yield made
    for session in (made.lance, made.parquet):
        session.catalog.clearCache()


def test_every_query_of_tpch_is_tested() -> None:
    assert [path.stem for path in QUERIES] == [f"q{number:02}" for number in range(1, 23)]


@pytest.mark.parametrize("table", FRAGMENTS)
def test_every_column_has_statistics_in_the_optimizer(sides: Sides, table: str) -> None:
    frame = sides.lance.table(table)
    statistics = planned(frame)
    assert statistics.rows == sides.parquet.table(table).count()
    assert list(statistics.columns) == frame.columns
    assert all(stat.distinctCount().isDefined() for stat in statistics.columns.values())


@pytest.mark.parametrize("table", sample(list(FRAGMENTS), 4))
def test_statistics_equal_those_that_spark_computes(sides: Sides, table: str) -> None:
    compared = compare(sides.parquet, sides.worlds[table])
    for name in compared.plain.columns:
        assert_as_spark(compared, name)
    assert share_within(compared, 0.03) >= 0.8


@pytest.mark.parametrize("query", sample(QUERIES, 8), ids=lambda path: path.stem)
def test_results_equal_those_over_parquet(sides: Sides, query: Path) -> None:
    text = query.read_text(encoding="utf-8")
    expected = sides.parquet.sql(text).collect()
    assert expected
    assert sorted_rows(sides.lance.sql(text).collect()) == sorted_rows(expected)


def sorted_rows(rows: list[Row]) -> list[tuple[object, ...]]:
    """Rows in one order: that of the query leaves ties open."""
    return sorted((tuple(row) for row in rows), key=repr)
