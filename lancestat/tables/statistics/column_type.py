"""The columns that can be analyzed, the type of their values, their size, and their text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from lancestat.formats import StringEnum, visible
from lancestat.lake.snapshot import Field, by_type
from lancestat.tables.statistics.bounds import Bound

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


@by_type
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
    width = sum(average_lengths.get(field.name, default_width(field.type)) for field in fields)
    return rows * (ROW_OVERHEAD + width)


def default_width(type: pa.DataType) -> int:
    """Return about how many bytes a decoded value of a type takes."""
    import pyarrow as pa

    known = column_type(type)
    if known is not None:
        return known.default_size
    if pa.types.is_fixed_size_list(type):
        return int(type.list_size) * default_width(type.value_type)
    if pa.types.is_struct(type):
        return sum(default_width(type.field(i).type) for i in range(type.num_fields))
    try:
        return -(-int(type.bit_width) // 8)
    except ValueError:
        return _UNKNOWN_WIDTH


_INTEGER_RANGES = {
    "tinyint": 2**7,
    "smallint": 2**15,
    "int": 2**31,
    "bigint": 2**63,
}
_MICROS = 10**6
DAY_MICROS = 86_400 * _MICROS
# Spark's timestamp parser multiplies whole seconds before it adds the fraction, so values within
# the last, partly representable second above -2^63 microseconds overflow.
_MIN_TIMESTAMP = -(2**63 // _MICROS) * _MICROS
_MAX_TIMESTAMP = 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT_TEXT = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?|Infinity)|NaN")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_DECIMAL_TYPE = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
_YEAR = r"[0-9]{4}|-(?!0000)[0-9]{4}|[+-][1-9][0-9]{4,6}"
_DAY = r"[0-9]{2}-[0-9]{2}"
_DATE_TEXT = re.compile(rf"(?:{_YEAR}|[1-9][0-9]{{4,6}})-{_DAY}")
_TIME_TEXT = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{1,6})")
_TIMESTAMP_TEXT = re.compile(rf"((?:{_YEAR})-{_DAY}) ({_TIME_TEXT.pattern})")


def parse_integer(text: str) -> int:
    """Return the value of an ASCII decimal integer.

    Raises:
        ValueError: anything else, such as spaces, underscores, plus signs, foreign digits.
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not a decimal integer")
    return int(text)


def format_bound(bound: Bound, type: ColumnType) -> str | None:
    """Return the text of a bound that Spark decodes to exactly that value, None without one.

    None is given for strings and binary, for NaN, and for values outside the Spark type (an
    unsigned integer above 2^63 - 1). Forms: `CatalogColumnStat.toExternalString` of Spark 4, except
    that decimals never use an exponent.
    """
    if isinstance(bound, bytes):
        return None
    match type.kind:
        case Kind.FLOAT:
            return _format_float(float(bound), single=type.spark_type == "float")
        case Kind.STRING | Kind.BINARY:
            return None
        case _:
            return _format_whole(int(bound), type)


SHOWN_CHARACTERS = 40


def shown_bound(bound: bytes, type: ColumnType) -> str:
    """Return a bound of strings or binary for people, on one line.

    It has at most 40 characters, or 20 bytes in hexadecimal, and the mark `...` where it is cut.
    Characters that cannot be seen are escaped.
    """
    if type.kind is Kind.STRING:
        text = bound.decode(errors="replace")
        return visible(text[:SHOWN_CHARACTERS]) + ("..." if len(text) > SHOWN_CHARACTERS else "")
    shown = SHOWN_CHARACTERS // 2
    return f"0x{bound[:shown].hex()}" + ("..." if len(bound) > shown else "")


def are_estimable(minimum: Bound, maximum: Bound) -> bool:
    """Whether Spark's filter estimation can work with these bounds.

    It divides by `maximum - minimum` in double precision: when that is infinite or NaN, planning a
    query fails (`FilterEstimation.evaluateBinaryForNumeric`, NumberFormatException in Spark 4.3).
    """
    if isinstance(minimum, bytes) or isinstance(maximum, bytes):
        return False
    return math.isfinite(float(maximum) - float(minimum))


def parse_bound(text: str, type: ColumnType) -> int | float | None:
    """Return the value of a bound's text, or None for a NaN, which bounds nothing.

    Raises:
        ValueError: the text is not of the type's form, or its value does not fit the type.
    """
    match type.kind:
        case Kind.BOOLEAN:
            return _parse_boolean(text)
        case Kind.INTEGER:
            return _within(parse_integer(text), _INTEGER_RANGES[type.spark_type], type)
        case Kind.FLOAT:
            return _parse_float(text, single=type.spark_type == "float")
        case Kind.DECIMAL:
            return _parse_decimal(text, type)
        case Kind.DATE:
            return _parse_date(text)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            return _parse_timestamp(text)
        case Kind.TIME:
            return _parse_time(text)
        case Kind.STRING | Kind.BINARY:
            raise ValueError(f"a {type.spark_type} column has no bounds")


def _format_whole(bound: int, type: ColumnType) -> str | None:
    match type.kind:
        case Kind.BOOLEAN:
            return "true" if bound else "false"
        case Kind.INTEGER:
            limit = _INTEGER_RANGES[type.spark_type]
            return str(bound) if -limit <= bound < limit else None
        case Kind.DECIMAL:
            return _format_decimal(bound, type)
        case Kind.DATE:
            return _date_text(bound) if -(2**31) <= bound < 2**31 else None
        case Kind.TIME:
            return _time_text(bound) if 0 <= bound < DAY_MICROS else None
        case _:
            return _format_timestamp(bound)


def _format_decimal(unscaled: int, type: ColumnType) -> str | None:
    if abs(unscaled) >= 10 ** _precision(type):
        return None
    digits = str(abs(unscaled)).rjust(type.scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    point = len(digits) - type.scale
    return f"{sign}{digits[:point]}.{digits[point:]}" if type.scale else f"{sign}{digits}"


def _precision(type: ColumnType) -> int:
    matched = _DECIMAL_TYPE.fullmatch(type.spark_type)
    if not matched:
        raise ValueError(f"{type.spark_type!r} is not a decimal type")
    return int(matched[1])


def _format_timestamp(micros: int) -> str | None:
    if not _MIN_TIMESTAMP <= micros <= _MAX_TIMESTAMP:
        return None
    days, rest = divmod(micros, DAY_MICROS)
    return f"{_date_text(days)} {_time_text(rest)}"


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(micros, _MICROS)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{fraction:06}"


def _format_float(number: float, *, single: bool) -> str | None:
    if math.isnan(number):
        return None
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    shortest = _shortest(number, single=single)
    return None if shortest is None else _java_layout(shortest)


def _shortest(number: float, *, single: bool) -> Decimal | None:
    """Return the digits of a number that Java prints, None for a double that is no float."""
    import numpy as np

    kind = np.float32 if single else np.float64
    with np.errstate(over="ignore"):
        stored = kind(number)
    if float(stored) != number:
        return None
    shortest = Decimal(np.format_float_scientific(stored, unique=True, trim="0"))
    # Java always prints two digits, and then the nearest two: 4.9E-324 where Python prints 5e-324.
    two_digits = f"{number:.1e}"
    if len(shortest.normalize().as_tuple().digits) == 1 and kind(two_digits) == stored:
        return Decimal(two_digits)
    return shortest


def _java_layout(shortest: Decimal) -> str:
    """Lay digits out as `java.lang.Double.toString` does.

    Plain from 10^-3 to below 10^7, else one digit, a point, the other digits, `E` and the exponent.
    """
    sign, digit_tuple, exponent = shortest.as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, digit_tuple)).lstrip("0")
    prefix = "-" if sign else ""
    if not digits:
        return f"{prefix}0.0"
    magnitude = len(digits) - 1 + exponent
    digits = digits.rstrip("0")
    if magnitude < -3 or magnitude >= 7:
        return f"{prefix}{digits[0]}.{digits[1:] or '0'}E{magnitude}"
    if magnitude < 0:
        return f"{prefix}0.{'0' * (-magnitude - 1)}{digits}"
    whole = digits[: magnitude + 1].ljust(magnitude + 1, "0")
    return f"{prefix}{whole}.{digits[magnitude + 1 :] or '0'}"


def _parse_boolean(text: str) -> int:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither 'true' nor 'false'")
    return int(text == "true")


def _within(number: int, limit: int, type: ColumnType) -> int:
    if not -limit <= number < limit:
        raise ValueError(f"{number} does not fit {type.spark_type}")
    return number


def _parse_float(text: str, *, single: bool) -> float | None:
    if not _FLOAT_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not a floating-point number")
    number = float(text)
    if math.isnan(number):
        return None
    if single:
        import numpy as np

        with np.errstate(over="ignore"):
            number = float(np.float32(text))
    if math.isinf(number) and "I" not in text:
        raise ValueError(f"{text!r} is beyond the largest floating-point number")
    return number


def _parse_decimal(text: str, type: ColumnType) -> int:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a decimal number")
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    coefficient = int("".join(map(str, digits)))
    limit = 10 ** _precision(type)
    if coefficient == 0:
        return 0
    # BigDecimal.toString drops no digits, so an exact value has a shift that divides without rest.
    shift = exponent + type.scale
    scaled: int = coefficient * 10**shift if shift >= 0 else coefficient // 10**-shift
    rest = 0 if shift >= 0 else coefficient % 10**-shift
    if rest or scaled >= limit:
        raise ValueError(f"{text!r} does not fit {type.spark_type}")
    return -scaled if sign else scaled


def _parse_date(text: str) -> int:
    if not _DATE_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not a date of the form yyyy-MM-dd")
    days = _days(text)
    if not -(2**31) <= days < 2**31:
        raise ValueError(f"{text!r} does not fit date")
    return days


def _parse_timestamp(text: str) -> int:
    matched = _TIMESTAMP_TEXT.fullmatch(text)
    if not matched:
        raise ValueError(f"{text!r} is not a timestamp of the form yyyy-MM-dd HH:mm:ss.SSSSSS")
    micros = _days(matched[1]) * DAY_MICROS + _parse_time(matched[2])
    if not _MIN_TIMESTAMP <= micros <= _MAX_TIMESTAMP:
        raise ValueError(f"{text!r} does not fit timestamp")
    return micros


def _parse_time(text: str) -> int:
    matched = _TIME_TEXT.fullmatch(text)
    if not matched:
        raise ValueError(f"{text!r} is not a time of day of the form HH:mm:ss.SSSSSS")
    hour, minute, second = (int(matched[group]) for group in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    seconds = (hour * 60 + minute) * 60 + second
    return seconds * _MICROS + int(matched[4].ljust(6, "0"))


def _date_text(days: int) -> str:
    """Return a day count since 1970-01-01 as Spark prints it: years past 9999 carry a plus sign."""
    import numpy as np

    text = str(np.datetime64(days, "D"))
    year, month_and_day = int(text[:-6]), text[-6:]
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}{month_and_day}"


def _days(text: str) -> int:
    """Invert `_date_text`; raises ValueError when the calendar has no such day."""
    import numpy as np

    try:
        return int(np.datetime64(text, "D").astype(np.int64))
    except ValueError:
        raise ValueError(f"{text!r} is not a day of the calendar") from None
