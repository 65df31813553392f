"""Published statistics equal those that Spark computes, and Spark can decode and plan with them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lancestat.tables.statistics.bound_text import format_bound, parse_bound
from lancestat.tables.statistics.column_statistics import ColumnStatistics
from lancestat.tables.statistics.column_type import ColumnType, Kind
from tests.integration.catalyst import Catalyst, entries_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
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


@dataclass(frozen=True)
class Case:
    """A column of two values and a null; `minimum` and `maximum` as the kernel sees them."""

    type: ColumnType
    minimum: int | float
    maximum: int | float

    def sql(self, bound: int | float) -> str:
        match self.type.kind:
            case Kind.DATE:
                return f"date_from_unix_date({bound})"
            case Kind.TIMESTAMP:
                return f"timestamp_micros({bound})"
            case Kind.BOOLEAN:
                return "true" if bound else "false"
            case Kind.DECIMAL:
                sign, digits, _ = Decimal(bound).as_tuple()
                plain = format(Decimal((sign, digits, -self.type.scale)), "f")
                return f"cast('{plain}' as {self.type.spark_type})"
            case _:
                return f"cast('{bound}' as {self.type.spark_type})"

    @property
    def statistics(self) -> ColumnStatistics:
        size = self.type.default_size
        return ColumnStatistics(1, 2, self.minimum, self.maximum, size, size)


CASES = [
    Case(BOOLEAN, 0, 1),
    Case(TINYINT, -128, 127),
    Case(SMALLINT, -(2**15), 2**15 - 1),
    Case(INT, -(2**31), 2**31 - 1),
    Case(BIGINT, -(2**63), 2**63 - 1),
    Case(DOUBLE, 0.001, 0.1),
    Case(DOUBLE, -123456.0, 9999999.0),
    Case(DOUBLE, 1e-5, 1e10),
    Case(DOUBLE, -1 / 3, 1e7),
    Case(DOUBLE, -8.9e307, 8.9e307),
    Case(DOUBLE, 5e-324, 1.7976931348623157e308),
    Case(DOUBLE, 2.2250738585072014e-308, 9007199254740993.0),
    Case(FLOAT, single(0.1), single(1e10)),
    Case(FLOAT, single(-3.4028235e38), single(3.4028235e38)),
    Case(FLOAT, single(1e-45), 16777216.0),
    Case(FLOAT, single(1.1754944e-38), single(1 / 3)),
    Case(decimal(5, 2), -99999, 99999),
    Case(decimal(10, 0), 0, 10**10 - 1),
    Case(decimal(38, 10), 1, 10**38 - 1),
    Case(decimal(38, 10), 0, 1000),
    Case(decimal(38, 38), -(10**38 - 1), 1),
    Case(decimal(38, 0), -(10**38 - 1), 10**38 - 1),
    Case(DATE, -719_162, 2_932_896),
    Case(DATE, -719_163, 2_932_897),
    Case(DATE, -(2**31), 2**31 - 1),
    Case(DATE, -141_437, -141_432),
    Case(TIMESTAMP, -1, 1),
    Case(TIMESTAMP, -62_135_596_800_000_000, 253_402_300_799_999_999),
    Case(TIMESTAMP, -62_135_596_800_000_001, 253_402_300_800_000_000),
    Case(TIMESTAMP, -9_223_372_036_854_000_000, 2**63 - 1),
    Case(TIMESTAMP, -12_219_724_800_000_000, 1_700_000_000_123_456),
]


@pytest.fixture(scope="module")
def catalyst(spark: SparkSession) -> Iterator[Catalyst]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield Catalyst(spark)
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.fixture(scope="module")
def computed(catalyst: Catalyst) -> dict[str, tuple[Any, Any, dict[str, str]]]:
    rows = [
        ", ".join(f"{case.sql(case.minimum)} c{i}" for i, case in enumerate(CASES)),
        ", ".join(f"{case.sql(case.maximum)} c{i}" for i, case in enumerate(CASES)),
        ", ".join(f"cast(null as {case.type.spark_type}) c{i}" for i, case in enumerate(CASES)),
    ]
    return catalyst.computed(" union all ".join(f"select {row}" for row in rows))


@pytest.mark.parametrize(
    "index", range(len(CASES)), ids=lambda i: f"{CASES[i].type.spark_type}-{i}"
)
def test_published_entries_decode_to_statistics_of_spark(
    index: int, catalyst: Catalyst, computed: dict[str, tuple[Any, Any, dict[str, str]]]
) -> None:
    case, name = CASES[index], f"c{index}"
    type, stat, theirs = computed[name]
    ours = entries_of(name, case.type, case.statistics)
    assert ours.keys() == theirs.keys()
    assert catalyst.decoded(name, ours, type).equals(stat)
    assert catalyst.decoded(name, theirs, type).equals(stat)
    assert parse_bound(theirs[f"{name}.min"], case.type) == case.minimum
    assert parse_bound(theirs[f"{name}.max"], case.type) == case.maximum
    # Spark writes small decimals with an exponent, and Java 17 some doubles with a digit too many.
    if case.type.kind not in (Kind.DECIMAL, Kind.FLOAT):
        assert ours == theirs


@pytest.mark.parametrize("name", ["a b", "`q`", "Größe", "min", "version", "列"])
def test_entries_of_awkward_names_decode(name: str, catalyst: Catalyst) -> None:
    entries = entries_of(name, BIGINT, Case(BIGINT, 1, 2).statistics)
    type = catalyst.types.fromDDL("bigint")
    assert "Some(1),Some(2)" in catalyst.decoded(name, entries, type).toString()


def test_an_all_null_column_decodes_to_statistics_of_spark(catalyst: Catalyst) -> None:
    names = ["bigint", "double", "date", "boolean", "decimal(10,2)"]
    types = [BIGINT, DOUBLE, DATE, BOOLEAN, decimal(10, 2)]
    nulls = ", ".join(f"cast(null as {name}) c{i}" for i, name in enumerate(names))
    computed = catalyst.computed(f"select {nulls} union all select {nulls}")
    for i, type in enumerate(types):
        size = type.default_size
        ours = entries_of(f"c{i}", type, ColumnStatistics(2, 0, None, None, size, size))
        spark_type, stat, theirs = computed[f"c{i}"]
        assert ours == theirs
        assert catalyst.decoded(f"c{i}", ours, spark_type).equals(stat)


def test_strings_and_binary_are_written_as_spark_writes_them(catalyst: Catalyst) -> None:
    query = "select * from values ('abc', x'00ff'), ('d', x''), (null, null) t(s, b)"
    computed = catalyst.computed(query)
    string, binary = ColumnType(Kind.STRING, "string", 20), ColumnType(Kind.BINARY, "binary", 100)
    ours = {
        "s": entries_of("s", string, ColumnStatistics(1, 2, b"abc", b"d", 2, 3)),
        "b": entries_of("b", binary, ColumnStatistics(1, 2, b"", b"\x00\xff", 1, 2)),
    }
    assert {name: theirs for name, (_, _, theirs) in computed.items()} == ours


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
    unscaled = parse_bound(text, decimal(38, 10))
    theirs = catalyst.bound(text, decimal(38, 10)).toJavaBigDecimal()
    assert theirs.scaleb(10) == unscaled


def test_spark_cannot_read_the_timestamps_that_are_left_out(catalyst: Catalyst) -> None:
    from pyspark.errors.exceptions.captured import CapturedException

    assert format_bound(-9_223_372_036_854_000_001, TIMESTAMP) is None
    with pytest.raises(CapturedException, match="long overflow"):
        catalyst.bound("-290308-12-21 19:59:05.999999", TIMESTAMP)
