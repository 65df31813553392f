"""The result of `lancestat.knn_join` as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from lancestat.lake.observe import snapshot
from lancestat.lake.open import observe_dataset
from lancestat.lake.snapshot import Snapshot
from lancestat.read.part import Part, Piece
from lancestat.read.scan import Scan
from lancestat.spark.arrow_types import spark_schema
from lancestat.spark.read_task import read_part
from lancestat.spark.reading import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Results that Spark gets as they are, sooner than a job that reads them would start.
LOCAL_BYTES = 1 << 20


def result_rows(spark: SparkSession, uri: str, storage_options: Mapping[str, str]) -> DataFrame:
    """The rows of a Lance dataset that was just written, in their order.

    Raises:
        LancestatError: it cannot be read.
    """
    dataset = observe_dataset(uri, storage_options=storage_options)
    found = snapshot(dataset, uri, storage_options)
    sizes = [file.size_bytes for each in found.fragments for file in each.files]
    if sum(LOCAL_BYTES + 1 if size is None else size for size in sizes) > LOCAL_BYTES:
        return read_table(spark, uri, storage_options=storage_options)
    return _local_rows(spark, found, storage_options)


def _local_rows(
    spark: SparkSession, found: Snapshot, storage_options: Mapping[str, str]
) -> DataFrame:
    schema = spark_schema(found.fields)
    columns = tuple(schema.names)
    pieces = tuple(Piece(each.id, 0, each.rows) for each in found.fragments)
    scan = Scan(found.pin, columns)
    batches = list(read_part(scan, Part(pieces), storage_options))
    if not batches:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(pa.Table.from_batches(batches).rename_columns(columns), schema)
