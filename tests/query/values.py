"""Awkward values of every analyzable type, and what Spark's predicates make of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    TimeOfDay,
    columns_of,
)
from tests.query.predicates.three_valued import truth

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SINGLES = [0.0, -0.0, math.nan, math.inf, -math.inf, float(np.float32(0.1)), -1.5, 2.0]
TEXTS = ["", "a", "ab", "b", "\x00", "ß", "ﬀ", "😀", "a" * 256, "a" * 256 + "b", "\U0010ffff" * 70]


@dataclass(frozen=True)
class Column:
    """A column of one type, and strategies for its values."""

    type: pa.DataType
    values: st.SearchStrategy[Any]


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone.utc)


def literal_of(value: Any) -> Any:
    """A value of a row as filters have it."""
    if isinstance(value, datetime):
        since = value.replace(tzinfo=None) - EPOCH.replace(tzinfo=None)
        micros = since // timedelta(microseconds=1)
        return Instant(micros) if value.tzinfo else LocalTime(micros)
    if isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return TimeOfDay(seconds * 10**6 + value.microsecond)
    if isinstance(value, date):
        return Day(value.toordinal() - EPOCH.toordinal())
    return value


COLUMNS = {
    "whole": Column(pa.int64(), st.sampled_from([-(2**63), -5, -1, 0, 1, 7, 2**63 - 1])),
    "tiny": Column(pa.int8(), st.integers(-3, 3)),
    "real": Column(pa.float64(), st.sampled_from([*SINGLES, 1e308, 5e-324, 0.1])),
    "single": Column(pa.float32(), st.sampled_from(SINGLES)),
    "price": Column(pa.decimal128(5, 2), st.integers(-300, 300).map(lambda n: Decimal(n) / 100)),
    "wide": Column(pa.decimal128(38, 2), st.sampled_from([Decimal(10**35), Decimal("-0.01")])),
    "text": Column(pa.string(), st.sampled_from(TEXTS)),
    "blob": Column(
        pa.binary(), st.sampled_from([b"", b"\0", b"a", b"\xff" * 300, b"\xff", b"a" * 300])
    ),
    "flag": Column(pa.bool_(), st.booleans()),
    "day": Column(
        pa.date32(),
        st.dates(date(1969, 12, 28), date(1970, 1, 3))
        | st.dates(date(1582, 10, 3), date(1582, 10, 16))
        | st.sampled_from([date(1, 1, 1), date(9999, 12, 31)]),
    ),
    "at": Column(
        pa.timestamp("us", "UTC"),
        st.integers(-3, 3).map(lambda n: EPOCH + timedelta(microseconds=n * 10**6 + 1))
        | st.datetimes(datetime(1582, 10, 3), datetime(1582, 10, 16)).map(_in_utc),
    ),
    "local": Column(
        pa.timestamp("us"),
        st.integers(-3, 3).map(lambda n: datetime(1970, 1, 1) + timedelta(microseconds=n))
        | st.sampled_from([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    ),
    "clock": Column(
        pa.time64("us"), st.sampled_from([time.min, time(0, 0, 1), time(12), time.max])
    ),
}
SCHEMA = pa.schema([(name, column.type) for name, column in COLUMNS.items()])

Row = Mapping[str, Any]


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 5) -> pa.Table:
    """Draw a few rows of all columns; a column often has one value only, or only nulls."""
    count = draw(st.integers(1, max_rows))
    arrays = []
    for column in COLUMNS.values():
        few = draw(st.lists(st.none() | column.values, min_size=1, max_size=2))
        values = draw(st.lists(st.sampled_from(few), min_size=count, max_size=count))
        arrays.append(pa.array(values, column.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _leaves() -> st.SearchStrategy[Filter]:
    def of(name: str) -> st.SearchStrategy[Filter]:
        literals = COLUMNS[name].values.map(literal_of)
        if name == "day":
            literals = literals | st.sampled_from([Day(-(2**31)), Day(2_932_897)])
        if name == "at":
            literals = literals | st.sampled_from([Instant(-(2**63)), Instant(2**63 - 1)])
        if name in ("price", "wide"):
            literals = literals | st.sampled_from([Decimal("0.015"), Decimal(10) ** 40])
        if name == "whole":
            literals = literals | st.sampled_from([2**63, -(2**70)])
        strategies: list[st.SearchStrategy[Filter]] = [
            st.builds(
                Comparison,
                st.just(name),
                st.sampled_from(
                    [operator for operator in Operator if operator is not Operator.NULL_SAFE]
                ),
                literals,
            ),
            st.builds(Comparison, st.just(name), st.just(Operator.NULL_SAFE), st.none() | literals),
            st.builds(In, st.just(name), st.lists(st.none() | literals, max_size=3).map(tuple)),
            st.builds(IsNull, st.just(name)),
        ]
        if name == "text":
            prefixes = st.sampled_from(["", "a", "ab", "a" * 257, "😀", "\U0010ffff", "z"])
            operators = st.sampled_from(TextOperator)
            strategies.append(st.builds(TextMatch, st.just(name), operators, prefixes))
        return st.one_of(strategies)

    return st.sampled_from(sorted(COLUMNS)).flatmap(of)


FILTERS: st.SearchStrategy[Filter] = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(Not, inner), st.builds(And, inner, inner), st.builds(Or, inner, inner)
    ),
    max_leaves=6,
)


def holds(filter: Filter, row: Row) -> bool | None:
    """Return the verdict of Spark on a row: true, false, or null as None."""
    return truth(filter, {name: literal_of(row[name]) for name in columns_of(filter)})
