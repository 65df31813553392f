"""Results of joins as Spark reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lancestat.joins.search.work import OutputFormat
from tests.joins.search.results import SCHEMA, add, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARQUET = OutputFormat.PARQUET


def read(spark: SparkSession, path: Path) -> list[tuple[int, str, float]]:
    frame = spark.read.parquet(str(path))
    assert frame.columns == SCHEMA.names
    return sorted(tuple(row) for row in frame.collect())


def values(*batches: pa.RecordBatch) -> list[tuple[int, str, float]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_spark_reads_parquet_results_as_they_follow_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    assert read(spark, path) == values(rows(0, 5))
    add(PARQUET, str(path), [rows(5, 9)])
    assert read(spark, path) == values(rows(0, 9))
    put(PARQUET, str(path), [rows(2, 4, "b")])
    assert read(spark, path) == values(rows(2, 4, "b"))
    put(PARQUET, str(path))
    assert read(spark, path) == []


def test_a_table_over_a_result_sees_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [rows(0, 3)])
    spark.sql(f"CREATE TABLE similar USING parquet LOCATION '{path}'")
    try:
        assert spark.table("similar").count() == 3
        put(PARQUET, str(path), [rows(0, 7)])
        spark.catalog.refreshTable("similar")
        assert spark.table("similar").count() == 7
    finally:
        spark.sql("DROP TABLE similar")
    assert path.is_symlink()


def test_a_query_that_is_planned_on_an_earlier_result_never_mixes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "similar.parquet"
    put(PARQUET, str(path), [rows(0, 3)], [rows(3, 5)])
    planned = spark.read.parquet(str(path))
    put(PARQUET, str(path), [rows(0, 3, "b")], [rows(3, 5, "b")])
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        planned.collect()
    planned = spark.read.parquet(str(path))
    add(PARQUET, str(path), [rows(5, 6, "b")])
    assert sorted(tuple(row) for row in planned.collect()) == values(rows(0, 5, "b"))
