"""Published statistics equal those that Spark computes, and Spark can decode and plan with them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind, format_bound, parse_bound
from tests.integration.catalyst import Catalyst, PlannedTable, entries_of
from tests.integration.planned import planned
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

BOOLEAN = ColumnType(Kind.BOOLEAN, "boolean", 1)
TINYINT = ColumnType(Kind.INTEGER, "tinyint", 1)
SMALLINT = ColumnType(Kind.INTEGER, "smallint", 2)
INT = ColumnType(Kind.INTEGER, "int", 4)
BIGINT = ColumnType(Kind.INTEGER, "bigint", 8)
FLOAT = ColumnType(Kind.FLOAT, "float", 4)
DOUBLE = ColumnType(Kind.FLOAT, "double", 8)
DATE = ColumnType(Kind.DATE, "date", 4)
TIMESTAMP = ColumnType(Kind.TIMESTAMP, "timestamp", 8)


def decimal(precision: int, scale: int) -> ColumnType:
    size = 8 if precision <= 18 else 16
    return ColumnType(Kind.DECIMAL, f"decimal({precision},{scale})", size, scale)


def single(number: float) -> float:
    return float(np.float32(number))


# Bounds as the kernel sees them; test_oracle compares whole entries.
BOUNDS: list[tuple[ColumnType, tuple[float, ...]]] = [
    (BOOLEAN, (0, 1)),
    (TINYINT, (-128, 127)),
    (SMALLINT, (-(2**15), 2**15 - 1)),
    (INT, (-(2**31), 2**31 - 1)),
    (BIGINT, (-(2**63), 2**63 - 1)),
    (DOUBLE, (0.001, 0.1, 9999999.0, 1e-5, 1e10, -1 / 3, 1e7, 2.2250738585072014e-308)),
    (DOUBLE, (5e-324, 1.7976931348623157e308, 9007199254740993.0)),
    (FLOAT, (single(0.1), single(1e10), single(-3.4028235e38), single(1e-45), 16777216.0)),
    (DATE, (-719_162, 2_932_896, -719_163, 2_932_897, -(2**31), 2**31 - 1, -141_437, -141_432)),
    (TIMESTAMP, (-1, 1, -62_135_596_800_000_000, 253_402_300_799_999_999)),
    (TIMESTAMP, (-62_135_596_800_000_001, 253_402_300_800_000_000, -12_219_724_800_000_000)),
    (TIMESTAMP, (-9_223_372_036_854_000_000, 2**63 - 1, 1_700_000_000_123_456)),
]
DECIMALS = [
    (decimal(5, 2), (-99999, 99999)),
    (decimal(10, 0), (0, 10**10 - 1)),
    (decimal(38, 10), (0, 1, 1000, 10**38 - 1)),
    (decimal(38, 38), (-(10**38 - 1), 1)),
    (decimal(38, 0), (-(10**38 - 1), 10**38 - 1)),
]


@pytest.fixture(scope="module")
def catalyst(spark: SparkSession) -> Catalyst:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return Catalyst(session)


@pytest.mark.parametrize(("type", "bounds"), [*BOUNDS, *DECIMALS], ids=str)
def test_published_bounds_decode_to_themselves(
    type: ColumnType, bounds: tuple[Any, ...], catalyst: Catalyst
) -> None:
    for bound in bounds:
        text = format_bound(bound, type)
        assert text is not None
        decoded = catalyst.bound(text, type)
        if type.kind is Kind.DECIMAL:
            decoded = unscaled(decoded, type)
        # A Java float reaches Python as its shortest text.
        assert (single(decoded) if type is FLOAT else decoded) == bound
        assert parse_bound(text, type) == bound


def unscaled(decoded: Any, type: ColumnType) -> int:
    sign, digits, exponent = decoded.toJavaBigDecimal().as_tuple()
    return int(Decimal((sign, digits, exponent + type.scale)))


def bits(number: float) -> bytes:
    return struct.pack(">d", number)


def test_any_double_and_float_decodes_bit_for_bit(catalyst: Catalyst) -> None:
    draw = random.Random(20260301)
    doubles = [struct.unpack(">d", draw.randbytes(8))[0] for _ in range(300)]
    floats = [struct.unpack(">f", draw.randbytes(4))[0] for _ in range(300)]
    doubles += [draw.uniform(-1e8, 1e8) for _ in range(100)] + [
        2.0**n for n in range(-1074, 1024, 37)
    ]
    for type, numbers in ((DOUBLE, doubles), (FLOAT, floats)):
        for number in numbers:
            text = format_bound(number, type)
            if text is None:
                assert math.isnan(number)
                continue
            theirs = catalyst.bound(text, type)
            # A Java float reaches Python as its shortest text.
            assert bits(single(theirs) if type is FLOAT else theirs) == bits(number)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("10000-01-01", DATE),
        ("+10000-01-01", DATE),
        ("-10000-01-01", DATE),
        ("0000-02-29", DATE),
        ("2020-01-01 00:00:00.5", TIMESTAMP),
        ("-0001-12-31 23:59:59.999999", TIMESTAMP),
        ("+10000-01-01 00:00:00.000", TIMESTAMP),
        ("-29719-04-05 22:13:20.000000", TIMESTAMP),
        ("1", DOUBLE),
        ("1e5", DOUBLE),
        ("-1.5E-10", DOUBLE),
        ("007", BIGINT),
        ("-0", INT),
        ("true", BOOLEAN),
    ],
)
def test_a_text_that_is_accepted_means_the_same_to_spark(
    text: str, type: ColumnType, catalyst: Catalyst
) -> None:
    assert catalyst.bound(text, type) == parse_bound(text, type)


@pytest.mark.parametrize("text", ["0E-10", "1E-7", "1.000E-7", "-12.5", "1E+2", "-0.0000000001"])
def test_a_decimal_that_is_accepted_means_the_same_to_spark(text: str, catalyst: Catalyst) -> None:
    type = decimal(38, 10)
    assert unscaled(catalyst.bound(text, type), type) == parse_bound(text, type)


def test_spark_cannot_read_the_timestamps_that_are_left_out(catalyst: Catalyst) -> None:
    from pyspark.errors.exceptions.captured import CapturedException

    assert format_bound(-9_223_372_036_854_000_001, TIMESTAMP) is None
    with pytest.raises(CapturedException, match="long overflow"):
        catalyst.bound("-290308-12-21 19:59:05.999999", TIMESTAMP)


pytestmark = pytest.mark.spark

CONDITIONS = ["c > 1.5D", "c < 1.5D", "c = 1.0D", "c > 0D and c < 2D", "c <= 0D", "c > -1e308D"]


@pytest.fixture(scope="module")
def doubles(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlannedTable]:
    table = PlannedTable(Catalyst(session), DOUBLE, tmp_path_factory.mktemp("planned"))
    yield table
    session.sql(f"drop table {table.name}")


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


@pytest.mark.parametrize(
    "condition",
    [pytest.param("c = 5D", marks=needs.unbounded_equality), "c in (5D, 6D)", "c > 5D"],
)
def test_without_bounds_conditions_are_taken_to_hold(condition: str, doubles: PlannedTable) -> None:
    """From a distinct count without bounds, Spark 4.1 and older expect no row of a set."""
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(0, 10, 0.0, math.inf, 8, 8)))
    assert doubles.estimate(condition) == 1000


def test_without_bounds_a_join_is_not_taken_to_be_empty(
    session: SparkSession, tmp_path: Path
) -> None:
    table = PlannedTable(Catalyst(session), BIGINT, tmp_path / "planned", "planned_wide")
    wide = ColumnStatistics(0, 10, 0, 2**63, 8, 8)
    entries = entries_of("c", BIGINT, wide)
    query = f"select * from {table.name} a join {table.name} b on a.c = b.c"
    try:
        table.set({**entries, "c.distinctCount": "10"})
        assert planned(session.sql(query)).rows == 0
        table.set(entries)
        assert planned(session.sql(query)).rows == 1_000_000
    finally:
        session.sql(f"drop table {table.name}")
