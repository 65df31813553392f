"""What lancestat publishes is what Spark computes, decodes and can plan with."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lancestat.stats.column_type import ColumnType, Kind
from lancestat.stats.partial import ColumnStatistics
from lancestat.stats.values import format_bound, parse_bound
from lancestat.stats.wire import COLUMN_PREFIX, encode_statistics

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
        return ColumnStatistics(3, 1, 2, self.minimum, self.maximum, size, size)


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


def entries_of(name: str, type: ColumnType, statistics: ColumnStatistics) -> dict[str, str]:
    """A column's entries as Spark's own maps name them, `<name>.<suffix>`."""
    encoded = encode_statistics(
        {name: (type, statistics)}, rows=3, schema_hash="", computed_at_version=1, computed_at=NOON
    )
    return {
        key.removeprefix(COLUMN_PREFIX): text
        for key, text in encoded.items()
        if key.startswith(COLUMN_PREFIX)
    }


class Catalyst:
    """The parts of Spark that compute, write and read column statistics, through py4j."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark: Any = spark
        self.jvm: Any = spark._jvm
        sql = self.jvm.org.apache.spark.sql
        self.codec = self._module(sql.catalyst.catalog, "CatalogColumnStat")
        self.commands = self._module(sql.execution.command, "CommandUtils")
        self.types = self._module(sql.types, "DataType")
        self.converters = self._module(self.jvm.scala.jdk.javaapi, "CollectionConverters")

    @staticmethod
    def _module(package: Any, name: str) -> Any:
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    def computed(self, query: str) -> dict[str, tuple[Any, Any, dict[str, str]]]:
        """By column: its Spark type, the ColumnStat, and its entries as `toMap` gives them."""
        plan = self.spark.sql(query)._jdf.queryExecution().analyzed()
        found = self.commands.computeColumnStats(self.spark._jsparkSession, plan, plan.output())
        stats = self.converters.asJava(found._2())
        columns = {}
        for attribute in stats.keySet():
            name, type = attribute.name(), attribute.dataType()
            stat = stats.get(attribute)
            entries = stat.toCatalogColumnStat(name, type).toMap(name)
            columns[name] = (type, stat, dict(self.converters.asJava(entries)))
        return columns

    def decoded(self, name: str, entries: Mapping[str, str], type: Any) -> Any:
        """The ColumnStat that Spark's optimizer gets from entries."""
        return self.catalog_stat(name, entries).toPlanStat(name, type)

    def catalog_stat(self, name: str, entries: Mapping[str, str]) -> Any:
        return self.codec.fromMap("t", name, self.map(entries)).get()

    def map(self, entries: Mapping[str, Any]) -> Any:
        scala = self._module(self.jvm.scala.collection.immutable, "Map").empty()
        for key, text in entries.items():
            scala = scala.updated(key, text)
        return scala

    def bound(self, text: str, type: ColumnType) -> Any:
        """What Spark reads in a bound's text, in its internal form."""
        return self.codec.fromExternalString(text, "c", self.types.fromDDL(type.spark_type), 2)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


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
def test_published_entries_decode_to_what_spark_computed(
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
def test_awkward_names_decode(name: str, catalyst: Catalyst) -> None:
    entries = entries_of(name, BIGINT, Case(BIGINT, 1, 2).statistics)
    type = catalyst.types.fromDDL("bigint")
    assert "Some(1),Some(2)" in catalyst.decoded(name, entries, type).toString()


def test_an_all_null_column_decodes_as_spark_computes_it(catalyst: Catalyst) -> None:
    names = ["bigint", "double", "date", "boolean", "decimal(10,2)"]
    types = [BIGINT, DOUBLE, DATE, BOOLEAN, decimal(10, 2)]
    nulls = ", ".join(f"cast(null as {name}) c{i}" for i, name in enumerate(names))
    computed = catalyst.computed(f"select {nulls} union all select {nulls}")
    for i, type in enumerate(types):
        size = type.default_size
        ours = entries_of(f"c{i}", type, ColumnStatistics(2, 2, 0, None, None, size, size))
        spark_type, stat, theirs = computed[f"c{i}"]
        assert ours == theirs
        assert catalyst.decoded(f"c{i}", ours, spark_type).equals(stat)


def test_strings_and_binary_are_written_as_spark_writes_them(catalyst: Catalyst) -> None:
    query = "select * from values ('abc', x'00ff'), ('d', x''), (null, null) t(s, b)"
    computed = catalyst.computed(query)
    string, binary = ColumnType(Kind.STRING, "string", 20), ColumnType(Kind.BINARY, "binary", 100)
    ours = {
        "s": entries_of("s", string, ColumnStatistics(3, 1, 2, b"abc", b"d", 2, 3)),
        "b": entries_of("b", binary, ColumnStatistics(3, 1, 2, b"", b"\x00\xff", 1, 2)),
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


class PlannedTable:
    """A table of one column whose statistics are set at will, for Spark to plan with."""

    _MAKER = (
        "new org.apache.spark.sql.catalyst.catalog.CatalogStatistics("
        "new scala.math.BigInt(java.math.BigInteger.valueOf(16000L)),"
        "new scala.Some(new scala.math.BigInt(java.math.BigInteger.valueOf(1000L))), columns)"
    )

    def __init__(self, catalyst: Catalyst, type: ColumnType, place: Path) -> None:
        self.catalyst = catalyst
        self.type = type
        self.name = f"planned_{type.kind.value}"
        catalyst.spark.sql(
            f"create table {self.name} (c {type.spark_type}) using parquet location '{place}'"
        )

    def set(self, entries: Mapping[str, str]) -> None:
        catalyst, jvm = self.catalyst, self.catalyst.jvm
        state = catalyst.spark._jsparkSession.sessionState()
        columns = catalyst.map({"c": catalyst.catalog_stat("c", entries)})
        maker = jvm.org.codehaus.janino.ExpressionEvaluator()
        maker.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        map_class = jvm.java.lang.Class.forName("scala.collection.immutable.Map")
        maker.setParameters(
            self._array(jvm.java.lang.String, "columns"),
            self._array(jvm.java.lang.Class, map_class),
        )
        maker.cook(self._MAKER)
        statistics = maker.evaluate(self._array(jvm.java.lang.Object, columns))
        identifier = state.sqlParser().parseTableIdentifier(self.name)
        state.catalog().alterTableStats(identifier, jvm.scala.Some(statistics))

    def _array(self, cls: Any, *items: Any) -> Any:
        array = self.catalyst.spark.sparkContext._gateway.new_array(cls, len(items))
        for place, item in enumerate(items):
            array[place] = item
        return array

    def estimate(self, condition: str) -> int:
        frame = self.catalyst.spark.sql(f"select * from {self.name} where {condition}")
        plan = frame._jdf.queryExecution().optimizedPlan()
        return int(plan.stats().rowCount().get())


CONDITIONS = ["c > 1.5D", "c < 1.5D", "c = 1.0D", "c > 0D and c < 2D", "c <= 0D", "c > -1e308D"]


@pytest.fixture(scope="module")
def doubles(catalyst: Catalyst, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlannedTable]:
    catalyst.spark.conf.set("spark.sql.cbo.enabled", "true")
    table = PlannedTable(catalyst, DOUBLE, tmp_path_factory.mktemp("planned"))
    yield table
    catalyst.spark.sql(f"drop table {table.name}")
    catalyst.spark.conf.unset("spark.sql.cbo.enabled")


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
def test_spark_plans_with_whatever_is_published(
    minimum: float, maximum: float, doubles: PlannedTable
) -> None:
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(1000, 0, 10, minimum, maximum, 8, 8)))
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
def test_bounds_that_are_left_out_would_break_planning(
    bounds: dict[str, str], condition: str, failure: str, doubles: PlannedTable
) -> None:
    entries = entries_of("c", DOUBLE, ColumnStatistics(1000, 0, 10, 0.0, 9.0, 8, 8))
    doubles.set(entries | bounds)
    with pytest.raises(Exception, match=failure):
        doubles.estimate(condition)


def test_equality_is_estimated_without_bounds(doubles: PlannedTable) -> None:
    doubles.set(entries_of("c", DOUBLE, ColumnStatistics(1000, 0, 10, 0.0, math.inf, 8, 8)))
    assert doubles.estimate("c = 5D") == 100
