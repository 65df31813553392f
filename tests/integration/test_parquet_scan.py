"""Plain scans of Parquet are read without the JVM, with the rows and order of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from lancestat.joins.spark.reader import parquet_scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = {
    "yes": pa.bool_(),
    "tiny": pa.int8(),
    "short": pa.int16(),
    "number": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "emb": pa.list_(pa.float32()),
    "wide": pa.list_(pa.float64(), 2),
}


def values(rng: np.random.Generator, name: str, count: int) -> list[object]:
    numbers = rng.integers(-100, 100, count)
    made = {
        "yes": lambda n: bool(n % 2),
        "real": lambda n: n / 8,
        "double": lambda n: n / 8,
        "text": lambda n: f"ß{n}" * (n % 5),
        "bytes": lambda n: bytes([n % 256]),
        "emb": lambda n: [n / 8] * (n % 4),
        "wide": lambda n: [n / 8, float("nan")],
    }.get(name, int)
    return [None if n % 7 == 0 else made(int(n)) for n in numbers]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of very different sizes, with several row groups each."""
    folder = tmp_path_factory.mktemp("parquet") / "some folder"
    folder.mkdir()
    rng = np.random.default_rng(2)
    for number, count in enumerate((300, 20, 5_000, 1, 0, 900)):
        columns = {name: pa.array(values(rng, name, count), type) for name, type in COLUMNS.items()}
        pq.write_table(pa.table(columns), folder / f"part {number}.parquet", row_group_size=250)
    return folder


def read(scan: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for number in range(len(scan.partitions)):  # type: ignore[attr-defined]
        for batch in scan.read(number):  # type: ignore[attr-defined]
            rows += batch.to_pylist()
    return rows


def theirs(rows: DataFrame) -> list[dict[str, object]]:
    return [row.asDict() for row in rows.collect()]


@pytest.mark.parametrize("bytes_per_partition", [4_000, 20_000, 1 << 27])
def test_rows_come_as_spark_reads_them_and_in_its_order(
    spark: SparkSession, folder: Path, bytes_per_partition: int
) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", bytes_per_partition)
    spark.conf.set("spark.sql.files.openCostInBytes", 1_000)
    try:
        rows = spark.read.parquet(str(folder))
        scan = parquet_scan(rows)

        assert scan is not None
        assert len(scan.partitions) == rows.rdd.getNumPartitions()
        actual, expected = read(scan), theirs(rows)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    for row in expected:
        row["bytes"] = None if row["bytes"] is None else bytes(row["bytes"])  # type: ignore[call-overload]
    assert repr(actual) == repr(expected)


def test_renamed_and_reordered_columns_are_still_a_plain_scan(
    spark: SparkSession, folder: Path
) -> None:
    rows = spark.read.parquet(str(folder)).select(sf.col("text").alias("a"), "long")

    scan = parquet_scan(rows.toDF("b", "c"))

    assert scan is not None
    assert scan.columns == ("text", "long")
    assert [list(row.values()) for row in read(scan)] == [list(row) for row in rows.collect()]


def test_other_plans_are_left_to_spark(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    rows = spark.read.parquet(str(folder))
    partitioned = tmp_path / "partitioned"
    rows.select("long", "yes").write.partitionBy("yes").parquet(str(partitioned))
    unsigned = tmp_path / "unsigned.parquet"
    pq.write_table(pa.table({"n": pa.array([1], pa.uint32())}), unsigned)
    dated = tmp_path / "dated.parquet"
    pq.write_table(pa.table({"d": pa.array([1], pa.date32())}), dated)
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), other / "a.parquet")
    pq.write_table(pa.table({"m": pa.array([1], pa.int64())}), other / "b.parquet")
    spark.range(3).write.json(str(tmp_path / "json"))

    left_alone = {
        "filter": rows.where("long > 3"),
        "computed column": rows.select((sf.col("long") + 1).alias("long")),
        "limit": rows.limit(3),
        "union": rows.union(rows),
        "partition column": spark.read.parquet(str(partitioned)),
        "unsigned": spark.read.parquet(str(unsigned)),
        "date": spark.read.parquet(str(dated)),
        "missing column": spark.read.schema("n long, m long").parquet(str(other)),
        "other format": spark.read.json(str(tmp_path / "json")),
        "metadata": rows.select("long", "_metadata.file_name"),
        "no files": spark.range(3),
    }
    for name, frame in left_alone.items():
        assert parquet_scan(frame) is None, name


def test_a_file_that_is_not_parquet_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    rows = spark.read.parquet(str(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")

    assert parquet_scan(rows) is None
