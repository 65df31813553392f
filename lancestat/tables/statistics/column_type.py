"""The columns that can be analyzed, the type of their values, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.formats import StringEnum
from lancestat.lake.snapshot import Field

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StringEnum):
    """The type families of the YAML's `types` filter."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TIME = "time"
    STRING = "string"
    BINARY = "binary"


# Kept in the state, and neither published nor reported. `FilterEstimation` of Spark 3.5 to 4.3 has
# no case for these types: whatever it knows of such a column, even the null count alone, it fails
# to plan `<`, and with bounds it fails on `=` and on joins as well (scala.MatchError). Counts of
# nulls and of distinct values, which `group by` uses, would make it estimate joins at no rows.
# `tests/integration/test_unpublished_types.py` tries every statistic.
KEPT_KINDS = frozenset((Kind.TIMESTAMP_NTZ, Kind.TIME))


@dataclass(frozen=True, slots=True)
class ColumnType:
    """An analyzable type.

    `spark_type` is Spark's catalog string; `default_size` is `DataType.defaultSize` in bytes;
    `scale` counts the digits after a decimal's point and is 0 elsewhere.
    """

    kind: Kind
    spark_type: str
    default_size: int
    scale: int = 0

    @property
    def is_variable_width(self) -> bool:
        """Whether lengths vary: strings and binary."""
        return self.kind in (Kind.STRING, Kind.BINARY)

    @property
    def is_published(self) -> bool:
        """Whether manifests and Spark's optimizer get statistics of such columns.

        Others are kept in the state: they are shown, rule fragments out and answer aggregates.
        """
        return self.kind not in KEPT_KINDS


_BOOLEAN = ColumnType(Kind.BOOLEAN, "boolean", 1)
_TINYINT = ColumnType(Kind.INTEGER, "tinyint", 1)
_SMALLINT = ColumnType(Kind.INTEGER, "smallint", 2)
_INT = ColumnType(Kind.INTEGER, "int", 4)
_BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
_FLOAT = ColumnType(Kind.FLOAT, "float", 4)
_DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
_DATE = ColumnType(Kind.DATE, "date", 4)
_TIMESTAMP = ColumnType(Kind.TIMESTAMP, "timestamp", 8)
_TIMESTAMP_NTZ = ColumnType(Kind.TIMESTAMP_NTZ, "timestamp_ntz", 8)
_TIME = ColumnType(Kind.TIME, "time(6)", 8)
_STRING = ColumnType(Kind.STRING, "string", 20)
_BINARY = ColumnType(Kind.BINARY, "binary", 100)

# By the text of an Arrow type, which no parameter changes. Unsigned integers take Spark's next
# wider type, and uint64 the widest there is: values from 2^63 on have no Spark value.
_BY_NAME = {
    "bool": _BOOLEAN,
    "int8": _TINYINT,
    "int16": _SMALLINT,
    "int32": _INT,
    "int64": _BIGINT,
    "uint8": _SMALLINT,
    "uint16": _INT,
    "uint32": _BIGINT,
    "uint64": _BIGINT,
    "halffloat": _FLOAT,
    "float": _FLOAT,
    "double": _DOUBLE,
    "string": _STRING,
    "large_string": _STRING,
    "string_view": _STRING,
    "binary": _BINARY,
    "large_binary": _BINARY,
    "binary_view": _BINARY,
    "date32[day]": _DATE,
    "date64[ms]": _DATE,
}

# Divisor and factor from the unit of a timestamp or a time of day to Spark's microseconds. Flooring
# is what an instant before 1970 needs too.
TO_MICROSECONDS = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}

# Spark's DecimalType keeps up to 18 digits in 8 bytes.
_LONG_DIGITS = 18
_DECIMAL_BITS = (32, 64, 128)


def column_type(arrow_type: pa.DataType) -> ColumnType | None:
    """Return the analyzable type of an Arrow type; a dictionary's is that of its values.

    None for nested, interval, duration, null and extension types, and for decimals that Spark does
    not have: of 256 bits, of a negative scale, or of a scale above the precision.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(arrow_type):
        return column_type(arrow_type.value_type)
    if pa.types.is_decimal(arrow_type):
        return _decimal(arrow_type)
    if pa.types.is_timestamp(arrow_type):
        return _TIMESTAMP if arrow_type.tz else _TIMESTAMP_NTZ
    if pa.types.is_time(arrow_type):
        return _TIME
    if pa.types.is_fixed_size_binary(arrow_type):
        return _BINARY
    return _BY_NAME.get(str(arrow_type))


def _decimal(arrow_type: pa.DataType) -> ColumnType | None:
    precision, scale = arrow_type.precision, arrow_type.scale
    if arrow_type.bit_width not in _DECIMAL_BITS or not 0 <= scale <= precision:
        return None
    size = 8 if precision <= _LONG_DIGITS else 16
    return ColumnType(Kind.DECIMAL, f"decimal({precision},{scale})", size, scale)


# Spark's overhead per row, whatever its columns (`EstimationUtils.getSizePerRow`).
ROW_OVERHEAD = 8
_UNKNOWN_WIDTH = 20


def decoded_size(rows: int, fields: Iterable[Field], average_lengths: Mapping[str, int]) -> int:
    """Estimate the bytes of the decoded columns: rows times the sum of average widths.

    Args:
        rows: Live rows.
        fields: The columns that are read.
        average_lengths: Known average lengths in bytes by column name; a column without one
            counts with its type's default size.
    """
    width = sum(average_lengths.get(field.name, _default_width(field.type)) for field in fields)
    return rows * (ROW_OVERHEAD + width)


def _default_width(type: pa.DataType) -> int:
    import pyarrow as pa

    known = column_type(type)
    if known is not None:
        return known.default_size
    if pa.types.is_fixed_size_list(type):
        return int(type.list_size) * _default_width(type.value_type)
    if pa.types.is_struct(type):
        return sum(_default_width(type.field(i).type) for i in range(type.num_fields))
    try:
        return -(-int(type.bit_width) // 8)
    except ValueError:
        return _UNKNOWN_WIDTH
