"""Types of columns, and bounds as text, compared with Java's text and Python's calendar."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.column_type import (
    ColumnType,
    Kind,
    column_type,
    format_bound,
    parse_bound,
    parse_integer,
    shown_bound,
)

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


def test_decimals_have_their_scale() -> None:
    assert column_type(pa.decimal128(38, 11)).scale == 11  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "type", [*NOT_ANALYZABLE, pa.dictionary(pa.int8(), pa.duration("s"))], ids=str
)
def test_unsupported_types_have_no_column_type(type: pa.DataType) -> None:
    assert column_type(type) is None


BOOLEAN = ColumnType(Kind.BOOLEAN, "boolean", 1)
TINYINT = ColumnType(Kind.INTEGER, "tinyint", 1)
BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
FLOAT = ColumnType(Kind.FLOAT, "float", 4)
DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
DATE = ColumnType(Kind.DATE, "date", 4)
TIMESTAMP = ColumnType(Kind.TIMESTAMP, "timestamp", 8)
TIMESTAMP_NTZ = ColumnType(Kind.TIMESTAMP_NTZ, "timestamp_ntz", 8)
TIME = ColumnType(Kind.TIME, "time(6)", 8)
STRING = ColumnType(Kind.STRING, "string", 20)
BINARY = ColumnType(Kind.BINARY, "binary", 100)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# The largest and smallest that Spark decodes; below, its parser overflows.
FIRST_MICROSECOND, LAST_MICROSECOND = -9_223_372_036_854_000_000, 2**63 - 1


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(Kind.DECIMAL, f"decimal({precision},{scale})", 16, scale)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (123456.0, "123456.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00123, "0.00123"),
        (9999999.0, "9999999.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e10, "1.0E10"),
        (1e-5, "1.0E-5"),
        (2e23, "2.0E23"),
        (1 / 3, "0.3333333333333333"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_laid_out_as_java_does(number: float, text: str) -> None:
    assert format_bound(number, DOUBLE) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float32(1e10), "1.0E10"),
        (np.float32(16777216), "1.6777216E7"),
        (np.float32(3.4028235e38), "3.4028235E38"),
        (np.float32(1e-45), "1.4E-45"),
        (np.float32(-0.0), "-0.0"),
        (np.float32(1 / 3), "0.33333334"),
    ],
)
def test_floats_have_the_digits_of_single_precision(number: np.float32, text: str) -> None:
    assert format_bound(float(number), FLOAT) == text


TYPED_BOUNDS = st.one_of(
    st.tuples(st.just(DOUBLE), st.floats(allow_nan=False)),
    st.tuples(st.just(FLOAT), st.floats(allow_nan=False, width=32)),
    st.tuples(st.just(DATE), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(TIMESTAMP), st.integers(FIRST_MICROSECOND, LAST_MICROSECOND)),
)


@given(TYPED_BOUNDS)
def test_every_bound_round_trips(typed: tuple[ColumnType, float]) -> None:
    type, bound = typed
    text = format_bound(bound, type)
    assert text is not None
    back = parse_bound(text, type)
    assert back == bound
    assert math.copysign(1.0, float(back)) == math.copysign(1.0, bound)


@given(st.dates())
def test_dates_agree_with_the_calendar_of_python(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert format_bound(days, DATE) == day.isoformat()
    assert parse_bound(day.isoformat(), DATE) == days


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_timestamps_agree_with_the_calendar_of_python(instant: datetime) -> None:
    micros = (instant - EPOCH) // timedelta(microseconds=1)
    text = instant.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    for type in (TIMESTAMP, TIMESTAMP_NTZ):
        assert format_bound(micros, type) == text
        assert parse_bound(text, type) == micros


@given(st.times())
def test_times_of_day_agree_with_python(clock: time) -> None:
    micros = (datetime.combine(date(1970, 1, 1), clock, timezone.utc) - EPOCH) // timedelta(
        microseconds=1
    )
    text = clock.isoformat(timespec="microseconds")
    assert format_bound(micros, TIME) == text
    assert parse_bound(text, TIME) == micros


@pytest.mark.parametrize(
    ("bound", "type", "text"),
    [
        (b"", STRING, ""),
        ("é".encode() * 40, STRING, "é" * 40),
        ("é".encode() * 41, STRING, "é" * 40 + "..."),
        (b"a\x1b[31m\nb", STRING, r"a\x1b[31m\nb"),
        ("a\u202eb".encode(), STRING, r"a\u202eb"),
        (b"", BINARY, "0x"),
        (b"\x00\xff", BINARY, "0x00ff"),
        (b"\x1b" * 20, BINARY, "0x" + "1b" * 20),
        (b"\x1b" * 21, BINARY, "0x" + "1b" * 20 + "..."),
    ],
)
def test_bounds_of_strings_and_binary_are_shown_cut(
    bound: bytes, type: ColumnType, text: str
) -> None:
    assert shown_bound(bound, type) == text


@pytest.mark.parametrize(
    ("type", "bound", "text"),
    [
        (DATE, -719_162, "0001-01-01"),
        (DATE, -719_163, "0000-12-31"),
        (DATE, -719_529, "-0001-12-31"),
        (DATE, 2_932_897, "+10000-01-01"),
        (DATE, 2**31 - 1, "+5881580-07-11"),
        (DATE, -(2**31), "-5877641-06-23"),
        (DATE, -141_432, "1582-10-10"),
        (TIMESTAMP, -62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (TIMESTAMP, -62_167_219_200_000_001, "-0001-12-31 23:59:59.999999"),
        (TIMESTAMP, 253_402_300_800_000_000, "+10000-01-01 00:00:00.000000"),
        (TIMESTAMP, LAST_MICROSECOND, "+294247-01-10 04:00:54.775807"),
        (TIMESTAMP, FIRST_MICROSECOND, "-290308-12-21 19:59:06.000000"),
    ],
)
def test_years_outside_four_digits_are_written_as_spark_does(
    type: ColumnType, bound: int, text: str
) -> None:
    assert format_bound(bound, type) == text
    assert parse_bound(text, type) == bound


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, ColumnType]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    return draw(st.integers(-limit, limit)), decimal(precision, scale)


@given(decimals())
def test_decimals_agree_with_those_of_python(drawn: tuple[int, ColumnType]) -> None:
    unscaled, type = drawn
    text = format_bound(unscaled, type)
    assert text is not None
    assert "E" not in text
    sign, digits, _ = Decimal(unscaled).as_tuple()
    assert Decimal(text).compare_total(Decimal((sign, digits, -type.scale))) == 0
    assert parse_bound(text, type) == unscaled


@pytest.mark.parametrize(
    ("text", "unscaled"),
    [("0E-10", 0), ("1E-7", 1000), ("1.000E-7", 1000), ("-1E+2", -(10**12)), ("12.5", 125 * 10**9)],
)
def test_decimals_with_an_exponent_are_read(text: str, unscaled: int) -> None:
    assert parse_bound(text, decimal(38, 10)) == unscaled


@pytest.mark.parametrize(
    ("bound", "type"),
    [
        (2**63, BIGINT),
        (2**64 - 1, BIGINT),
        (128, TINYINT),
        (10**5, decimal(5, 2)),
        (2**31, DATE),
        (-(2**63), TIMESTAMP),
        (FIRST_MICROSECOND - 1, TIMESTAMP),
        (2**63, TIMESTAMP),
        (-1, TIME),
        (86_400_000_000, TIME),
        (b"a", STRING),
        (b"a", BINARY),
        (math.nan, FLOAT),
        (math.nan, DOUBLE),
        (0.1, FLOAT),
        (1e300, FLOAT),
    ],
)
def test_values_that_spark_cannot_hold_have_no_text(bound: float | bytes, type: ColumnType) -> None:
    assert format_bound(bound, type) is None


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("1_000", BIGINT),
        (" 1", BIGINT),
        ("1 ", BIGINT),
        ("1\n", BIGINT),
        ("+1", BIGINT),
        ("\uff11\uff12", BIGINT),
        ("\u0663", BIGINT),
        ("", BIGINT),
        ("-", BIGINT),
        ("1.0", BIGINT),
        ("9223372036854775808", BIGINT),
        ("-129", TINYINT),
        ("True", BOOLEAN),
        ("1", BOOLEAN),
        ("nan", DOUBLE),
        ("inf", DOUBLE),
        ("-NaN", DOUBLE),
        ("1e999", DOUBLE),
        ("1E39", FLOAT),
        ("0x1p3", DOUBLE),
        ("1.0d", DOUBLE),
        ("\uff11.0", DOUBLE),
        ("1_0.0", DOUBLE),
        ("1e99999999999999999999", DOUBLE),
        ("NaN", decimal(5, 2)),
        ("Infinity", decimal(5, 2)),
        ("1000.00", decimal(5, 2)),
        ("0.001", decimal(5, 2)),
        ("1e9999", decimal(38, 0)),
        ("1e99999999999999999999", decimal(38, 0)),
        ("2020-02-30", DATE),
        ("2019-02-29", DATE),
        ("2020-00-01", DATE),
        ("2020-13-01", DATE),
        ("2020-1-1", DATE),
        ("-0000-01-01", DATE),
        ("+2020-01-01", DATE),
        ("010000-01-01", DATE),
        ("+5881580-07-12", DATE),
        ("-9999999-01-01", DATE),
        (" 2020-01-01", DATE),
        ("epoch", DATE),
        ("2020-01-01 00:00:00", TIMESTAMP),
        ("2020-01-01T00:00:00.000000", TIMESTAMP),
        ("2020-01-01 24:00:00.000000", TIMESTAMP),
        ("2020-01-01 00:60:00.000000", TIMESTAMP),
        ("2020-01-01 00:00:60.000000", TIMESTAMP),
        ("10000-01-01 00:00:00.000000", TIMESTAMP),
        ("+294247-01-10 04:00:54.775808", TIMESTAMP),
        ("-290308-12-21 19:59:05.999999", TIMESTAMP),
        ("24:00:00.000000", TIME),
        ("00:60:00.000000", TIME),
        ("00:00:60.000000", TIME),
        ("00:00:00", TIME),
        ("2020-01-01 00:00:00.000000", TIME),
        ("a", STRING),
        ("a", BINARY),
    ],
)
def test_malformed_text_does_not_parse(text: str, type: ColumnType) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_bound(text, type)


@given(st.text(max_size=20))
def test_only_plain_ascii_integers_are_integers(text: str) -> None:
    digits = text.removeprefix("-")
    plain = digits != "" and set(digits) <= set("0123456789")
    if plain:
        assert parse_integer(text) == int(text)
    else:
        with pytest.raises(ValueError, match="not a decimal integer"):
            parse_integer(text)
