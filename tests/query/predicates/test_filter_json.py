from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.lake.snapshot import Field, spark_type
from lancestat.query.predicates.filter import (
    DEEPEST,
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
    TimeOfDay,
    Unread,
    columns_of,
    filter_text,
    flattened,
    read_filters,
)
from lancestat.query.predicates.filter_sql import to_lance
from lancestat.query.pruning import may_match, must_match
from lancestat.query.sampler import conditions
from tests.lake.awkward import COLUMNS, predicate

FIELDS = {
    column.name: Field(number, column.name, column.type, True, spark_type(column.type))
    for number, column in enumerate(COLUMNS)
}
FIELDS["clock"] = Field(len(COLUMNS), "clock", pa.time64("us"), True, "time(6)")

TEXT_OPERATIONS = {
    TextOperator.STARTS_WITH: "startswith",
    TextOperator.ENDS_WITH: "endswith",
    TextOperator.CONTAINS: "contains",
}


def written(filter: Filter) -> dict[str, Any]:
    """A filter as the JVM writes it."""
    match filter:
        case And(left, right):
            return {"op": "and", "operands": [written(left), written(right)]}
        case Or(left, right):
            return {"op": "or", "operands": [written(left), written(right)]}
        case Unread():
            return {"op": "unread"}
        case Not(operand):
            return {"op": "not", "child": written(operand)}
        case IsNull(column):
            return {"op": "isnull", "column": column}
        case TextMatch(column, operator, value):
            return {"op": TEXT_OPERATIONS[operator], "column": column, "value": value}
        case In(column, literals):
            values = [text(literal, type_of(column)) for literal in literals]
            return {"op": "in", "column": column, "type": type_of(column), "values": values}
        case Comparison(column, operator, literal):
            value = text(literal, type_of(column))
            document = {"op": operator.value, "column": column, "type": type_of(column)}
            return {**document, "value": value}


def type_of(column: str) -> str:
    return str(FIELDS[column].spark_type)


def text(value: Literal | None, type: str) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case float():
            return repr(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case Day(count) | Instant(count) | LocalTime(count):
            return str(count)
    return str(value)


def same(left: Filter, right: Filter) -> bool:
    # NaN is not equal to itself in Python.
    return repr(left) == repr(right)


@given(st.randoms(use_true_random=False))
def test_every_filter_round_trips(random: Random) -> None:
    filters = [predicate(random) for _ in range(5)]
    read = read_filters(json.loads(json.dumps([written(filter) for filter in filters])), FIELDS)
    assert all(map(same, read, filters))
    assert len(read) == len(filters)


@pytest.mark.parametrize(
    ("column", "value", "literal"),
    [
        ("f32", "0.10000000149011612", 0.10000000149011612),
        ("f32", "1.401298464324817E-45", 2.0**-149),
        ("f32", "3.4028234663852886E38", 3.4028234663852886e38),
        ("f32", "-0.0", -0.0),
        ("f16", "0.10000000149011612", 0.10000000149011612),
        ("f64", "4.9E-324", 5e-324),
        ("f64", "0.1", 0.1),
        ("d38", "-1234567890123456789012345678.0123456789", None),
        ("day", "-719162", Day(-719_162)),
        ("day", "-719163", Day(-719_163)),
        ("day", "2932897", Day(2_932_897)),
        ("at_us", "-1", Instant(-1)),
        ("at_us", "253402300800000000", Instant(253402300800000000)),
        ("at_us", "-9223372036854775808", Instant(-(2**63))),
        ("local_us", "-1", LocalTime(-1)),
        ("clock", "86399999999000", TimeOfDay(86_399_999_999)),
        ("bytes", "", b""),
        ("it's", "", ""),
    ],
)
def test_values_are_read_from_their_java_form(
    column: str, value: str, literal: Literal | None
) -> None:
    document = {"op": "=", "column": column, "type": type_of(column), "value": value}
    expected = Decimal(value) if literal is None else literal
    [filter] = read_filters([document], FIELDS)
    assert same(filter, Comparison(column, Operator.EQUAL, expected))


def test_is_not_null_is_the_negation() -> None:
    assert read_filters([{"op": "isnotnull", "column": "i8"}], FIELDS) == [Not(IsNull("i8"))]


KNOWN: dict[str, Any] = {"op": "isnull", "column": "i8"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"op": "like", "column": "it's", "value": "a%"},
        {"op": ["="], "column": "i8", "type": "tinyint", "value": "1"},
        {"op": "isnull", "column": "not there"},
        {"op": "=", "column": "i8", "type": "int", "value": "1"},
        {"op": "=", "column": "i8", "type": "tinyint"},
        {"op": "=", "column": "i8", "type": "tinyint", "value": "one"},
        {"op": "=", "column": "i8", "type": "tinyint", "value": 1},
        {"op": "=", "column": "flag", "type": "boolean", "value": "TRUE"},
        {"op": "=", "column": "d5", "type": "decimal(5,2)", "value": "1,00"},
        {"op": "=", "column": "bytes", "type": "binary", "value": "abc"},
        {"op": "=", "column": "day", "type": "date", "value": "1582-10-10"},
        {"op": "<", "column": "at_us", "type": "timestamp", "value": "0.5"},
        {"op": "<", "column": "clock", "type": "time(6)", "value": "1"},
        {"op": "in", "column": "i8", "type": "tinyint", "values": ["1", "x"]},
        {"op": "in", "column": "i8", "type": "tinyint", "values": None},
        {"op": "and", "operands": [KNOWN, {"op": "contains"}]},
        {"op": "and", "operands": []},
        {"op": "or", "left": KNOWN, "right": KNOWN},
        {"op": "not", "child": {"op": "rlike", "column": "it's", "value": "a"}},
        {"op": "not", "child": None},
    ],
    ids=str,
)
def test_unknown_filters_are_read_as_such(document: Mapping[str, Any]) -> None:
    read = read_filters([KNOWN, document, KNOWN], FIELDS)
    assert read == [IsNull("i8"), Unread(), IsNull("i8")]


@pytest.mark.parametrize(("depth", "is_read"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_filters_nested_too_deeply_are_not_read(depth: int, is_read: bool) -> None:
    deep, expected = KNOWN, cast("Filter", IsNull("i8"))
    for _ in range(depth):
        deep, expected = {"op": "not", "child": deep}, Not(expected)
    assert read_filters([deep, KNOWN], FIELDS) == [expected if is_read else Unread(), IsNull("i8")]


@pytest.mark.parametrize("kind", [And, Or])
def test_chains_are_read_whole_and_flat(kind: type[And] | type[Or]) -> None:
    members = [
        {"op": "=", "column": "i8", "type": "tinyint", "value": str(number)}
        for number in range(5_001)
    ]
    deep = {"op": kind.__name__.lower(), "operands": members}
    [read] = read_filters([{"op": "not", "child": deep}], FIELDS)
    assert isinstance(read, Not)
    operands = [operand.literal for operand in flattened(read.operand, kind)]
    assert operands == list(range(5_001))
    assert columns_of(read) == {"i8"}


def test_nothing_is_known_of_an_unread_filter() -> None:
    def bounds(column: str) -> None:
        raise AssertionError(column)

    filter = And(Unread(), Unread())
    for unread in (Unread(), Not(Unread()), filter):
        assert may_match([unread], bounds, 3).tolist() == [True] * 3
        assert must_match([unread], bounds, 3).tolist() == [False] * 3
        assert to_lance(unread, FIELDS) is None
        assert columns_of(unread) == frozenset()


def test_no_sample_counts_an_unread_filter() -> None:
    assert conditions([Unread(), Not(IsNull("i8"))], ["i8"]) == conditions(
        [Not(IsNull("i8"))], ["i8"]
    )


LESS = Comparison("a", Operator.LESS, 3)


@pytest.mark.parametrize(
    ("filter", "text"),
    [
        (LESS, "a < 3"),
        (Comparison("a", Operator.NULL_SAFE, None), "a <=> null"),
        (Comparison("a", Operator.EQUAL, "it's"), "a = 'it''s'"),
        (Comparison("a", Operator.EQUAL, True), "a = true"),
        (Comparison("a", Operator.EQUAL, b"\x00\xff"), "a = 0x00ff"),
        (Comparison("a", Operator.EQUAL, Decimal("1.50")), "a = 1.50"),
        (Comparison("a", Operator.EQUAL, "x" * 50), "a = '" + "x" * 40 + "...'"),
        (Comparison("a", Operator.EQUAL, Day(-141_432)), "a = 1582-10-10"),
        (Comparison("a", Operator.EQUAL, Day(2_932_897)), "a = 10000-01-01"),
        (Comparison("a", Operator.EQUAL, Instant(0)), "a = 1970-01-01 00:00:00+00:00"),
        (Comparison("a", Operator.EQUAL, LocalTime(-1)), "a = 1969-12-31 23:59:59.999999"),
        (Comparison("a", Operator.EQUAL, TimeOfDay(1)), "a = 00:00:00.000001"),
        (Comparison("a", Operator.EQUAL, TimeOfDay(86_399_000_000)), "a = 23:59:59"),
        (In("a", (1, None)), "a in (1, null)"),
        (In("a", tuple(range(9))), "a in (0, 1, 2, 3, 4, ...)"),
        (IsNull("a"), "a is null"),
        (Not(IsNull("a")), "a is not null"),
        (Not(LESS), "not (a < 3)"),
        (TextMatch("a", TextOperator.STARTS_WITH, "x"), "a starts with 'x'"),
        (TextMatch("a", TextOperator.ENDS_WITH, "x"), "a ends with 'x'"),
        (TextMatch("a", TextOperator.CONTAINS, "x"), "a contains 'x'"),
        (And(LESS, Or(LESS, IsNull("b"))), "(a < 3 and (a < 3 or b is null))"),
        (Or(Or(LESS, LESS), Or(LESS, IsNull("b"))), "(a < 3 or a < 3 or a < 3 or b is null)"),
    ],
)
def test_filters_are_printed_like_sql(filter: Filter, text: str) -> None:
    assert filter_text(filter) == text


def test_deep_nesting_is_cut_short() -> None:
    deep: Filter = LESS
    for _ in range(5000):
        deep = Or(deep, LESS)
    assert filter_text(deep) == f"({' or '.join(['a < 3'] * 20)} or ...)"
    for _ in range(5000):
        deep = Not(deep)
    assert filter_text(deep) == f"{'not (' * 21}...{')' * 21}"
