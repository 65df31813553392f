from __future__ import annotations

from decimal import Decimal

import pytest

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
    filter_text,
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
