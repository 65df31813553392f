"""A table of awkward values in every type that filters support, and random predicates over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    Literal,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
)

NAN, INFINITY = float("nan"), float("inf")
EXACT = Context(prec=60)
EPOCH = datetime(1970, 1, 1)
MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _same(value: Any) -> Any:
    return value


def _plain(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, type)


@dataclass(frozen=True)
class Column:
    """A column, the values it holds as stored, as Spark sees them, and literals to compare with."""

    name: str
    type: pa.DataType
    stored: tuple[Any, ...]
    seen: Callable[[Any], Literal] = _same
    literals: tuple[Literal, ...] = ()
    build: Callable[[Sequence[Any], pa.DataType], pa.Array] = _plain

    @property
    def choices(self) -> tuple[Literal, ...]:
        return (*(self.seen(value) for value in self.stored), *self.literals)


def _integers(name: str, bits: int, type: pa.DataType, spark_bits: int, low: int = 0) -> Column:
    high = 2**bits - 1 if low == 0 else -low - 1
    stored = (low, low + 1, 0, 1, 2, 7, high - 1, high)
    edge = 2 ** (spark_bits - 1)
    return Column(name, type, stored, literals=(-edge, -edge + 1, -1, 3, edge - 1, high // 2))


def _halves(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else np.float16(value) for value in values], type)


def _counted(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).view(type)


def _decimals(name: str, precision: int, scale: int) -> Column:
    most = 10**precision - 1
    unscaled = (0, 1, -1, 110, -110, most, -most, 10**scale, 12 * 10**scale // 10)
    values = [EXACT.scaleb(Decimal(unit), -scale) for unit in unscaled]
    others = tuple(EXACT.scaleb(Decimal(unit), -scale) for unit in (5, 109, -111, most - 1))
    return Column(name, pa.decimal128(precision, scale), tuple(values), literals=others)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def day(moment: date) -> Day:
    return Day(moment.toordinal() - EPOCH.toordinal())


_MOMENTS = (
    *(datetime(1, 1, 1), datetime(1, 1, 2), datetime(1582, 10, 4, 23, 59, 59), EPOCH),
    *(datetime(1582, 10, 5), datetime(1582, 10, 10, 12), datetime(1582, 10, 14, 12)),
    *(datetime(1582, 10, 15), datetime(1677, 9, 21), datetime(1899, 12, 31, 23, 59, 59, 1)),
    *(datetime(2011, 12, 30, 12), datetime(2262, 4, 12), datetime(9999, 12, 31, 23, 59, 59)),
)


def _times(name: str, unit: str, zone: str | None) -> Column:
    second = 1_000_000_000 if unit == "ns" else 1_000_000 // MICROS[unit]
    days = (0, 1, -1, 19_813, -25_567, 47_482)
    stored = [day * 86_400 * second + 5_400 * second for day in days]
    stored += [0, 1, -1, second - 1, -second, -second + 1, 7_999, -7_999, -8_000]
    kind = Instant if zone else LocalTime

    def seen(value: int) -> Literal:
        return kind(value // 1_000 if unit == "ns" else value * MICROS[unit])

    if unit == "ns":
        stored += [-(2**63) + 1, 2**63 - 1]
    else:
        stored += [round(micros(moment) / MICROS[unit]) for moment in _MOMENTS]
    if unit == "us":
        # Earlier values cannot be floored to days or zones without leaving 64 bits.
        stored += [-(2**63), 2**63 - 1]
    literals = [kind(micros(moment)) for moment in _MOMENTS]
    literals += [kind(count) for count in (1, -1, 500_000, -999_999, 8, -8, 2**63 - 1, -(2**63))]
    return Column(name, pa.timestamp(unit, zone), tuple(stored), seen, tuple(literals), _counted)


_TEXTS = (
    *("", "a", "ab", "a_b", "a%b", "A", "it's", "''", "back\\slash", "\\", "100%", "%", "_"),
    *("\0", "zero\0byte", "zero", "line\nbreak", "\t", 'dq"', "`bt`", "-- c", "/* c */", "{x}"),
    *("$1", "?", ":name", "é", "e\u0301", "ß", "\U0001f600", "\uffff", "\ue000", "NULL", "true"),
    *(" a", "a ", "1", "' OR true OR '", "x" * 300),
)
_OTHER_TEXTS = ("a_", "a%", "back", "\ufffd", "zz", "it", "\U0001f601", "%' OR 1=1 --")
_BYTES = (b"", b"a", b"ab", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\0", b"'", b"\xc3\xa9")
_FLOATS = (NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 2.0, 1e-7, -1e-7, 60_000.0)
_DAYS = (
    *(date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1969, 12, 31), date(1970, 1, 1)),
    *(date(1900, 2, 28), date(2024, 2, 29), date(9999, 12, 31)),
    *(date(1582, 10, number) for number in (5, 9, 10, 11, 14)),
)
# Beyond the range of Python's dates.
_DAY_COUNTS = (-(2**31), -719_163, -719_528, 2_932_897, 2**31 - 1)


def _single(value: float) -> float:
    return float(np.float32(value))


def _half(value: float) -> float:
    return float(np.float16(value))


_WIDE = (5e-324, 1e308, -1e308, 0.1, 2**53 + 2.0)

COLUMNS: tuple[Column, ...] = (
    Column("flag", pa.bool_(), (True, False)),
    _integers("i8", 8, pa.int8(), 8, -(2**7)),
    _integers("select", 16, pa.int16(), 16, -(2**15)),
    _integers("Upper", 32, pa.int32(), 32, -(2**31)),
    _integers("i64", 64, pa.int64(), 64, -(2**63)),
    _integers("u8", 8, pa.uint8(), 16),
    _integers("u16", 16, pa.uint16(), 32),
    _integers("u32", 32, pa.uint32(), 64),
    Column("u64", pa.uint64(), (0, 1, 2**63 - 1), literals=(-1, 2, -(2**63))),
    Column("f16", pa.float16(), _FLOATS, _half, (_single(0.1), 3.0, 2.0**100), _halves),
    Column("f32", pa.float32(), _FLOATS, _single, (_single(0.1), 3.0, 2.0**-149)),
    Column("f64", pa.float64(), (*_FLOATS, *_WIDE), literals=(3.0, 1.7976931348623157e308)),
    _decimals("d5", 5, 2),
    _decimals("d18", 18, 6),
    _decimals("d38", 38, 10),
    _decimals("whole number", 38, 0),
    Column("it's", pa.string(), _TEXTS, literals=_OTHER_TEXTS),
    Column("large", pa.large_string(), _TEXTS, literals=_OTHER_TEXTS),
    Column("bytes", pa.binary(), _BYTES, literals=(b"b", b"\x80\0")),
    Column("large bytes", pa.large_binary(), _BYTES, literals=(b"b", b"\x80\0")),
    Column("é", pa.binary(2), (b"ab", b"\0\0", b"\xff\xff", b"a'"), literals=(b"a", b"", b"abc")),
    Column(
        "day",
        pa.date32(),
        (*(day(moment).days for moment in _DAYS), *_DAY_COUNTS),
        Day,
        (day(date(1970, 1, 2)), day(date(1, 1, 2)), day(date(1582, 10, 7))),
        lambda values, type: pa.array(values, pa.int32()).view(type),
    ),
    Column(
        "day64",
        pa.date64(),
        (-1, -86_400_000, -86_400_001, 0, 1, 86_399_999, 86_400_000),
        lambda value: Day(value // 86_400_000),
        (Day(2), day(date(1582, 10, 7))),
        _counted,
    ),
    _times("at_s", "s", "UTC"),
    _times("at_ms", "ms", "Europe/Paris"),
    _times("at_us", "us", "UTC"),
    _times("at_us_far", "us", "-08:00"),
    _times("at_ns", "ns", "America/New_York"),
    _times("local_s", "s", None),
    _times("local_ms", "ms", None),
    _times("local_us", "us", None),
    _times("local_ns", "ns", None),
)
BY_NAME = {column.name: column for column in COLUMNS}

Row = dict[str, Literal | None]


def table(seed: int, rows: int, columns: Sequence[Column] = COLUMNS) -> tuple[pa.Table, list[Row]]:
    """Rows of awkward values, a sixth of them null, with their numbers as `id`; as Spark sees them.

    The first rows hold every value of every column.
    """
    random = Random(seed)
    arrays: dict[str, pa.Array] = {"id": pa.array(range(rows), pa.int64())}
    seen: list[Row] = [{"id": number} for number in range(rows)]
    for column in columns:
        values: list[Any] = [None, *column.stored][:rows]
        while len(values) < rows:
            values.append(None if random.random() < 1 / 6 else random.choice(column.stored))
        random.shuffle(values)
        arrays[column.name] = column.build(values, column.type)
        for row, value in zip(seen, values, strict=True):
            row[column.name] = None if value is None else column.seen(value)
    return pa.table(arrays), seen


def predicate(random: Random, columns: Sequence[Column] = COLUMNS, depth: int = 3) -> Filter:
    """A random filter; the same random gives the same one."""
    kind = random.random()
    if depth == 0 or kind < 0.45:
        return leaf(random, random.choice(columns))
    if kind < 0.65:
        return Not(predicate(random, columns, depth - 1))
    both = predicate(random, columns, depth - 1), predicate(random, columns, depth - 1)
    return And(*both) if kind < 0.83 else Or(*both)


def leaf(random: Random, column: Column) -> Filter:
    """A random test of one column."""
    kind = random.random()
    if kind < 0.1:
        return IsNull(column.name)
    if kind < 0.3:
        among = [random.choice(column.choices) for _ in range(random.randint(1, 9))]
        nullable = [None] if random.random() < 0.3 else []
        return In(column.name, (*among, *nullable))
    literal = random.choice(column.choices)
    if kind < 0.55 and isinstance(literal, str):
        start, length = random.randint(0, 2), random.randint(0, 3)
        parts = {
            TextOperator.STARTS_WITH: literal[:length],
            TextOperator.ENDS_WITH: literal[len(literal) - min(length, len(literal)) :],
            TextOperator.CONTAINS: literal[start : start + length],
        }
        return TextMatch(column.name, *random.choice(list(parts.items())))
    operator = random.choice(list(Operator))
    if operator is Operator.NULL_SAFE and random.random() < 0.3:
        return Comparison(column.name, operator, None)
    return Comparison(column.name, operator, literal)
