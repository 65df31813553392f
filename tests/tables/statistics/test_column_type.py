from __future__ import annotations

import pyarrow as pa
import pytest

from lancestat.tables.statistics.column_type import Kind, column_type

# Kind, Spark's catalog string and DataType.defaultSize, as Spark 4.3 gives them.
ANALYZABLE = [
    (pa.bool_(), Kind.BOOLEAN, "boolean", 1),
    (pa.int8(), Kind.INTEGER, "tinyint", 1),
    (pa.int16(), Kind.INTEGER, "smallint", 2),
    (pa.int32(), Kind.INTEGER, "int", 4),
    (pa.int64(), Kind.INTEGER, "bigint", 8),
    (pa.uint8(), Kind.INTEGER, "smallint", 2),
    (pa.uint16(), Kind.INTEGER, "int", 4),
    (pa.uint32(), Kind.INTEGER, "bigint", 8),
    (pa.uint64(), Kind.INTEGER, "bigint", 8),
    (pa.float16(), Kind.FLOAT, "float", 4),
    (pa.float32(), Kind.FLOAT, "float", 4),
    (pa.float64(), Kind.FLOAT, "double", 8),
    (pa.decimal128(18, 2), Kind.DECIMAL, "decimal(18,2)", 8),
    (pa.decimal128(19, 2), Kind.DECIMAL, "decimal(19,2)", 16),
    (pa.decimal32(9, 9), Kind.DECIMAL, "decimal(9,9)", 8),
    (pa.decimal64(18, 0), Kind.DECIMAL, "decimal(18,0)", 8),
    (pa.date32(), Kind.DATE, "date", 4),
    (pa.date64(), Kind.DATE, "date", 4),
    *(
        (pa.timestamp(unit, "UTC"), Kind.TIMESTAMP, "timestamp", 8)
        for unit in ("s", "ms", "us", "ns")
    ),
    (pa.timestamp("us", "+02:00"), Kind.TIMESTAMP, "timestamp", 8),
    *(
        (pa.timestamp(unit), Kind.TIMESTAMP_NTZ, "timestamp_ntz", 8)
        for unit in ("s", "ms", "us", "ns")
    ),
    *((pa.time32(unit), Kind.TIME, "time(6)", 8) for unit in ("s", "ms")),
    *((pa.time64(unit), Kind.TIME, "time(6)", 8) for unit in ("us", "ns")),
    (pa.string(), Kind.STRING, "string", 20),
    (pa.large_string(), Kind.STRING, "string", 20),
    (pa.string_view(), Kind.STRING, "string", 20),
    (pa.binary(), Kind.BINARY, "binary", 100),
    (pa.large_binary(), Kind.BINARY, "binary", 100),
    (pa.binary_view(), Kind.BINARY, "binary", 100),
    (pa.binary(16), Kind.BINARY, "binary", 100),
]

NOT_ANALYZABLE = [
    pa.null(),
    pa.duration("s"),
    pa.month_day_nano_interval(),
    pa.decimal256(38, 2),
    pa.decimal128(5, -2),
    pa.decimal128(5, 7),
    pa.list_(pa.int8()),
    pa.large_list(pa.int8()),
    pa.list_(pa.float32(), 4),
    pa.struct([("a", pa.int8())]),
    pa.map_(pa.string(), pa.int8()),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.uuid(),
]


@pytest.mark.parametrize(("type", "kind", "spark_type", "size"), ANALYZABLE, ids=str)
def test_supported_types_have_a_column_type(
    type: pa.DataType, kind: Kind, spark_type: str, size: int
) -> None:
    result = column_type(type)
    assert result is not None
    assert (result.kind, result.spark_type, result.default_size) == (kind, spark_type, size)
    assert result.is_variable_width == (kind in (Kind.STRING, Kind.BINARY))
    assert result.is_published == (kind not in (Kind.TIMESTAMP_NTZ, Kind.TIME))
    assert column_type(pa.dictionary(pa.int16(), type)) == result


@pytest.mark.parametrize("type", NOT_ANALYZABLE, ids=str)
def test_unsupported_types_have_no_column_type(type: pa.DataType) -> None:
    assert column_type(type) is None


def test_decimals_have_their_scale() -> None:
    assert column_type(pa.decimal128(38, 11)).scale == 11  # type: ignore[union-attr]
    assert column_type(pa.int64()).scale == 0  # type: ignore[union-attr]


def test_dictionaries_of_unsupported_types_have_no_column_type() -> None:
    assert column_type(pa.dictionary(pa.int8(), pa.duration("s"))) is None
