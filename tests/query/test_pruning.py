"""No group is ruled out that holds a matching row, and groups that cannot match are.

Of a group that is said to match as a whole, every row does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
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
)
from lancestat.query.pruning import BoundsOf, ColumnBounds, Mask, may_match, must_match
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.kernel import analyze
from tests.examples import examples
from tests.query.values import FILTERS, holds, tables

Match = Callable[[Sequence[Filter], BoundsOf, int], Mask]

LESS, GREATER, EQUAL = Operator.LESS, Operator.GREATER, Operator.EQUAL
FROM, TO, SAFE = Operator.GREATER_OR_EQUAL, Operator.LESS_OR_EQUAL, Operator.NULL_SAFE


def matching(
    filters: Sequence[Filter], groups: Sequence[pa.Table], match: Match = may_match
) -> list[bool]:
    partials = [analyze(group.to_batches(), group.schema) for group in groups]

    def bounds_of(name: str) -> ColumnBounds | None:
        if name not in groups[0].schema.names:
            return None
        type = column_type(groups[0].schema.field(name).type)
        assert type is not None
        return ColumnBounds.of([partial[name] for partial in partials], type)

    return match(filters, bounds_of, len(groups)).tolist()


@settings(max_examples=examples(300))
@given(st.lists(tables(), min_size=1, max_size=3), st.lists(FILTERS, min_size=1, max_size=2))
def test_no_group_with_a_matching_row_is_ruled_out(
    groups: list[pa.Table], filters: list[Filter]
) -> None:
    matches = matching(filters, groups)
    for group, is_kept in zip(groups, matches, strict=True):
        has_match = any(
            all(holds(filter, row) is True for filter in filters) for row in group.to_pylist()
        )
        assert is_kept or not has_match


@settings(max_examples=examples(300))
@given(st.lists(tables(), min_size=1, max_size=3), st.lists(FILTERS, min_size=1, max_size=2))
def test_every_row_of_a_group_that_must_match_matches(
    groups: list[pa.Table], filters: list[Filter]
) -> None:
    matches = matching(filters, groups, must_match)
    for group, is_whole in zip(groups, matches, strict=True):
        if is_whole:
            for row in group.to_pylist():
                assert all(holds(filter, row) is True for filter in filters)


# A filter, and the values of one group.
Case = tuple[Filter, Sequence[object], pa.DataType]


def column(values: Sequence[object], type: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, type)})


F, N, S, D = pa.float64(), pa.int64(), pa.string(), pa.decimal128(5, 2)
RULED_OUT: list[Case] = [
    (Comparison("c", LESS, 1), [1, 2, None], N),
    (Comparison("c", TO, 0), [1, 2, None], N),
    (Comparison("c", GREATER, 2), [1, 2, None], N),
    (Comparison("c", FROM, 2**70), [1, 2], N),
    (Comparison("c", EQUAL, 3), [1, 2], N),
    (Comparison("c", SAFE, 3), [1, 2, None], N),
    (Comparison("c", SAFE, None), [1, 2], N),
    (Comparison("c", FROM, 1), [None], N),
    (Not(Comparison("c", FROM, 1)), [1, 2, None], N),
    (Not(Comparison("c", EQUAL, 1)), [1, 1, None], N),
    (Not(Comparison("c", SAFE, 1)), [1, 1], N),
    (In("c", (0, 3)), [1, 2], N),
    (In("c", ()), [1], N),
    (Not(In("c", (5, None))), [1, 2], N),
    (IsNull("c"), [1], N),
    (Not(IsNull("c")), [None], N),
    (Comparison("c", GREATER, 5.0), [1.0], F),
    (Comparison("c", EQUAL, math.nan), [1.0], F),
    (Comparison("c", LESS, math.inf), [math.nan, None], F),
    (Comparison("c", GREATER, math.nan), [math.nan, 1.0], F),
    (Not(Comparison("c", TO, math.nan)), [math.nan, 1.0], F),
    (In("c", (math.nan,)), [1.0], F),
    (Comparison("c", EQUAL, "b"), ["a", "aa"], S),
    (Comparison("c", GREATER, "b"), ["a" * 300], S),
    (TextMatch("c", TextOperator.STARTS_WITH, "b"), ["a", "az"], S),
    (TextMatch("c", TextOperator.STARTS_WITH, "az"), ["aa", "ay"], S),
    (Not(TextMatch("c", TextOperator.STARTS_WITH, "a")), ["ab", "ac"], S),
    (TextMatch("c", TextOperator.CONTAINS, "b"), ["aca", "aca", None], S),
    (TextMatch("c", TextOperator.ENDS_WITH, "ac"), ["aca"], S),
    (Not(TextMatch("c", TextOperator.ENDS_WITH, "a")), ["ca"], S),
    (Comparison("c", EQUAL, None), [2], N),
    (Comparison("c", EQUAL, Decimal("0.015")), [Decimal("0.01")], D),
    (Comparison("c", GREATER, Decimal("0.015")), [Decimal("0.01")], D),
    (Comparison("c", LESS, Day(-1)), [date(1969, 12, 31)], pa.date32()),
    (Comparison("c", EQUAL, Day(-141_427)), [date(1582, 10, 14)], pa.date32()),
    (Comparison("c", GREATER, Day(2_932_897)), [date(9999, 12, 31)], pa.date32()),
    (
        Comparison("c", LESS, Instant(-(2**63))),
        [datetime(1, 1, 1, tzinfo=timezone.utc)],
        pa.timestamp("us", "UTC"),
    ),
    (Comparison("c", LESS, False), [False], pa.bool_()),
    (And(Comparison("c", LESS, 9), Comparison("c", LESS, 1)), [1], N),
    (Or(Comparison("c", LESS, 1), Comparison("c", GREATER, 1)), [1], N),
    (Not(Or(IsNull("c"), Comparison("c", EQUAL, 1))), [1, None], N),
]
KEPT: list[Case] = [
    (Comparison("c", GREATER, 5.0), [1.0, math.nan], F),
    (Comparison("c", FROM, math.inf), [math.nan], F),
    (Comparison("c", EQUAL, -0.0), [0.0], F),
    (Not(In("c", (0.0,))), [-0.0], F),
    (Comparison("c", EQUAL, 0.1), [0.1], pa.float32()),
    (Comparison("c", FROM, "\U0010ffff" * 70), ["\U0010ffff" * 70 + "z"], S),
    (TextMatch("c", TextOperator.STARTS_WITH, "a" * 300), ["a" * 400], S),
    # A literal of another type is a doubt.
    (Comparison("c", EQUAL, "7"), [1], N),
    (Comparison("c", EQUAL, True), [2], N),
    (Comparison("c", LESS, LocalTime(-1)), [date(1970, 1, 1)], pa.date32()),
    (Comparison("c", EQUAL, Day(-141_432)), [date(1582, 10, 10)], pa.date32()),
    (Comparison("c", LESS, Decimal("-Infinity")), [Decimal("0.01")], D),
    (Comparison("c", LESS, "\ud800"), ["z"], S),
    (In("c", (1, "x")), [2], N),
    (Comparison("unknown", EQUAL, 1), [2], N),
    (TextMatch("c", TextOperator.CONTAINS, "b"), ["a", "c"], S),
    (TextMatch("c", TextOperator.ENDS_WITH, "b"), ["a" * 300], S),
]
WHOLE: list[Case] = [
    (Comparison("c", FROM, 1), [1, 2], N),
    (Comparison("c", LESS, 2**70), [1, 2], N),
    (Comparison("c", EQUAL, 1), [1, 1], N),
    (Comparison("c", SAFE, 1), [1, 1], N),
    (Comparison("c", SAFE, None), [None, None], N),
    (Not(Comparison("c", SAFE, 3)), [1, None], N),
    (Not(Comparison("c", EQUAL, 3)), [1, 2], N),
    (Not(IsNull("c")), [1], N),
    (IsNull("c"), [None], N),
    (Not(In("c", (3, 4))), [1, 2], N),
    (Comparison("c", GREATER, 5.0), [6.0, math.nan], F),
    (Comparison("c", TO, math.nan), [1.0, math.nan], F),
    (TextMatch("c", TextOperator.STARTS_WITH, "a"), ["ab", "ac"], S),
    (TextMatch("c", TextOperator.CONTAINS, "a"), ["ba", "ba"], S),
    (Comparison("c", FROM, "a"), ["a" * 300], S),
    (Comparison("c", GREATER, Decimal("0.005")), [Decimal("0.01")], D),
    (And(Not(IsNull("c")), Comparison("c", LESS, 9)), [1], N),
    (Or(Comparison("c", LESS, 1), Comparison("c", GREATER, 1)), [2, 3], N),
]
PARTIAL: list[Case] = [
    (Comparison("c", FROM, 1), [1, None], N),
    (Not(Comparison("c", LESS, 1)), [1, None], N),
    (Comparison("c", FROM, 2), [1, 2], N),
    (Comparison("c", EQUAL, None), [1], N),
    (Not(In("c", (3, None))), [1], N),
    (Not(In("c", (3,))), [1, None], N),
    (Comparison("c", LESS, 5.0), [1.0, math.nan], F),
    (TextMatch("c", TextOperator.STARTS_WITH, "ab"), ["ab", "ac"], S),
    (TextMatch("c", TextOperator.STARTS_WITH, "a"), ["a", None], S),
    (TextMatch("c", TextOperator.CONTAINS, "a"), ["a", "ab"], S),
    (Comparison("c", EQUAL, "a" * 300), ["a" * 300], S),
    (Comparison("c", EQUAL, "7"), [1], N),
    (Comparison("unknown", EQUAL, 1), [2], N),
    (Not(Comparison("unknown", EQUAL, 1)), [2], N),
    (Or(Comparison("c", LESS, 9), Comparison("unknown", LESS, 9)), [1], N),
]


@pytest.mark.parametrize(
    ("match", "expected", "case"),
    [
        *((may_match, False, case) for case in RULED_OUT),
        *((may_match, True, case) for case in KEPT),
        *((must_match, True, case) for case in WHOLE),
        *((must_match, False, case) for case in PARTIAL),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_groups_may_match_or_must_match(match: Match, expected: bool, case: Case) -> None:
    filter, values, type = case
    assert matching([filter], [column(values, type)], match) == [expected]
