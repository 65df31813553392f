"""Arrow types and batch sizes, as Lance has them and as Spark takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lancestat.lake.snapshot import BLOB, UNREADABLE_NAME, Field, is_readable_name, spark_type
from lancestat.spark.versions import has_time_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


_TIME = re.compile(r"\btime\(")


def unreadable(fields: Iterable[Field]) -> dict[str, str]:
    """Return the reasons why Spark cannot read columns, by the names of those columns."""
    reasons = {}
    for field in fields:
        if (
            field.spark_type is None
            or not _are_decimals_sparks(field.spark_type)
            or (has_times(field) and not has_time_type())
        ):
            reasons[field.name] = f"Spark has no type for {field.type}"
        elif not is_readable_name(field.name):
            reasons[field.name] = UNREADABLE_NAME
    return reasons


def has_times(field: Field) -> bool:
    """Whether a column has times of day, at any depth."""
    return field.spark_type is not None and _TIME.search(field.spark_type) is not None


def _are_decimals_sparks(spark_type: str) -> bool:
    decimals = re.findall(r"decimal\((\d+),(-?\d+)\)", spark_type)
    return all(0 <= int(scale) <= int(precision) for precision, scale in decimals)


def spark_schema(fields: Iterable[Field]) -> StructType:
    """Return the Spark schema of the columns that Spark can read, in their order."""
    from pyspark.sql.types import StructField, StructType

    fields = tuple(fields)
    without = unreadable(fields)
    return StructType(
        [
            StructField(field.name, data_type(field.type), field.nullable)
            for field in fields
            if field.name not in without
        ]
    )


def data_type(arrow_type: pa.DataType) -> DataType:
    """Return the Spark type that `spark_type` names for an Arrow type that has one."""
    import pyarrow as pa
    from pyspark.sql import types as spark

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        if arrow_type.extension_name == BLOB:
            return spark.BinaryType()
        return data_type(arrow_type.storage_type)
    if types.is_dictionary(arrow_type):
        return data_type(arrow_type.value_type)
    if types.is_struct(arrow_type):
        members = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return spark.StructType(
            [
                spark.StructField(member.name, data_type(member.type), member.nullable)
                for member in members
            ]
        )
    if types.is_map(arrow_type):
        item = arrow_type.item_field
        return spark.MapType(data_type(arrow_type.key_type), data_type(item.type), item.nullable)
    if hasattr(arrow_type, "value_field"):
        element = arrow_type.value_field
        return spark.ArrayType(data_type(element.type), element.nullable)
    if types.is_decimal(arrow_type):
        return spark.DecimalType(arrow_type.precision, arrow_type.scale)
    if types.is_timestamp(arrow_type):
        return spark.TimestampType() if arrow_type.tz else spark.TimestampNTZType()
    if types.is_time(arrow_type):
        return spark.TimeType(6)
    return _scalar(arrow_type)


def _scalar(arrow_type: pa.DataType) -> DataType:
    from pyspark.sql import types as spark

    kinds = (
        spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType,
        spark.FloatType, spark.DoubleType, spark.StringType, spark.BinaryType, spark.DateType,
        spark.DayTimeIntervalType, spark.NullType,
    )  # fmt: skip
    name = spark_type(arrow_type)
    return next(made for kind in kinds if (made := kind()).simpleString() == name)


# At this many the fixed cost of each call is small, and a column of a batch still fits a core's
# cache.
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
# Of the first batch, which tells how wide rows are.
PROBE_ROWS = 256
# Of every scanner: little ahead of the reader, and blobs as their bytes.
SCAN_OPTIONS = {
    "batch_readahead": 2,
    "io_buffer_size": 64 << 20,
    "blob_handling": "all_binary",
}


def fitting_rows(batch: pa.RecordBatch) -> int:
    """Return how many rows like those of `batch` fill a batch."""
    width = max(1, batch.nbytes // max(1, batch.num_rows))
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // width)))
