"""Decides which groups of fragments may hold rows that pass a filter."""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from typing_extensions import assert_never

from lancestat.query.column_groups import Bounds, ColumnBounds, Mask
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    Leaf,
    Literal,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    TimeOfDay,
    Unread,
)
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import ColumnType, Kind


def literal_bound(literal: Literal, type: ColumnType) -> Bound | Fraction | None:
    """Return a literal in the form of a column's bounds, exactly; None for another type.

    A fraction is a decimal with more digits than the column has. A float is NaN for NaN.
    """
    match type.kind, literal:
        case Kind.BOOLEAN, bool():
            return int(literal)
        case (Kind.BOOLEAN | Kind.INTEGER | Kind.FLOAT | Kind.DECIMAL, bool()):
            return None
        case Kind.INTEGER, int():
            return literal
        case Kind.FLOAT, float():
            return _single(literal) if type.spark_type == "float" else literal
        case Kind.DECIMAL, (Decimal() | int()):
            return _unscaled(Decimal(literal), type.scale)
        case Kind.TIMESTAMP, Instant(micros):
            return micros
        case Kind.TIMESTAMP_NTZ, LocalTime(micros):
            return micros
        case Kind.TIME, TimeOfDay(micros):
            return micros
        case Kind.DATE, Day(days):
            return days
        case Kind.STRING, str():
            return _utf8(literal)
        case Kind.BINARY, bytes():
            return literal
    return None


def _single(literal: float) -> float | None:
    """Return the float32 that Spark compares with; None where it rounds to infinity."""
    import numpy as np

    with np.errstate(over="ignore"):
        rounded = float(np.float32(literal))
    return None if math.isinf(rounded) and not math.isinf(literal) else rounded


def _unscaled(literal: Decimal, scale: int) -> int | Fraction | None:
    if not literal.is_finite():
        return None
    fraction: Fraction = Fraction(literal) * 10**scale
    return int(fraction) if fraction.denominator == 1 else fraction


def _utf8(literal: str) -> bytes | None:
    try:
        return literal.encode()
    except UnicodeEncodeError:
        return None


# None for a column whose bounds are unknown.
BoundsOf = Callable[[str], ColumnBounds | None]
Point = Bound | Fraction


@dataclass(frozen=True, slots=True)
class FilterOutcomes:
    """The groups where a filter may be true for some row, and those where it may be false."""

    true: Mask
    false: Mask


def may_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups that may hold a row for which all filters are true.

    Args:
        filters: A conjunction.
        bounds_of: Returns the bounds of a column, None where they are unknown.
        groups: The number of groups.
    """
    outcomes = _FilterEvaluator(bounds_of, groups)
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        matching &= outcomes.evaluate(filter).true
    return matching


def must_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups of which every row is known to pass all filters.

    Args:
        filters: A conjunction.
        bounds_of: Returns the bounds of a column, None where they are unknown.
        groups: The number of groups.
    """
    outcomes = _FilterEvaluator(bounds_of, groups)
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        matching &= ~outcomes.evaluate(filter).false & ~outcomes.may_be_null(filter)
    return matching


@dataclass(frozen=True, slots=True)
class _FilterEvaluator:
    bounds_of: BoundsOf
    groups: int

    def evaluate(self, filter: Filter) -> FilterOutcomes:
        """Evaluate a filter; where it is null it is neither true nor false, negated or not."""
        match filter:
            case Not():
                operand = self.evaluate(filter.operand)
                return FilterOutcomes(operand.false, operand.true)
            case And():
                left, right = self.evaluate(filter.left), self.evaluate(filter.right)
                return FilterOutcomes(left.true & right.true, left.false | right.false)
            case Or():
                left, right = self.evaluate(filter.left), self.evaluate(filter.right)
                return FilterOutcomes(left.true | right.true, left.false & right.false)
            case Comparison() | In() | IsNull() | TextMatch():
                return self._evaluate_leaf(filter)
            case Unread():
                every = np.ones(self.groups, np.bool_)
                return FilterOutcomes(every, every)
            case _:
                assert_never(filter)

    def may_be_null(self, filter: Filter) -> Mask:
        """Return the groups where a filter may be null for some row, and so does not select it."""
        match filter:
            case Not():
                return self.may_be_null(filter.operand)
            case And() | Or():
                return self.may_be_null(filter.left) | self.may_be_null(filter.right)
            case IsNull() | Comparison(_, Operator.NULL_SAFE):
                return np.zeros(self.groups, np.bool_)
            case Unread() | Comparison(_, _, None):
                return np.ones(self.groups, np.bool_)
            case In() if None in filter.literals:
                return np.ones(self.groups, np.bool_)
            case Comparison() | In() | TextMatch():
                column = self.bounds_of(filter.column)
                if column is None:
                    return np.ones(self.groups, np.bool_)
                return (column.nulls > 0) | ~column.known
            case _:
                assert_never(filter)

    def _evaluate_leaf(self, filter: Leaf) -> FilterOutcomes:
        column = self.bounds_of(filter.column)
        outcomes = None if column is None else _leaf_outcomes(column, filter)
        if column is None or outcomes is None:
            every = np.ones(self.groups, np.bool_)
            return FilterOutcomes(every, every)
        return FilterOutcomes(outcomes.true | ~column.known, outcomes.false | ~column.known)


def _leaf_outcomes(column: ColumnBounds, filter: Leaf) -> FilterOutcomes | None:
    """Return None when the filter's literals are not of the column's type."""
    match filter:
        case IsNull():
            return FilterOutcomes(column.nulls > 0, column.values > 0)
        case Comparison():
            return _comparison(column, filter)
        case In():
            return _in(column, filter.literals)
        case TextMatch(_, TextOperator.STARTS_WITH, prefix):
            return _starts_with(column, prefix)
        case TextMatch():
            return FilterOutcomes(column.values > 0, column.values > 0)
        case _:
            assert_never(filter)


def _comparison(column: ColumnBounds, comparison: Comparison) -> FilterOutcomes | None:
    sign, literal = comparison.operator, comparison.literal
    if literal is None:
        return _leaf_outcomes(column, IsNull("")) if sign is Operator.NULL_SAFE else None
    point = literal_bound(literal, column.type)
    if point is None:
        return None
    outcomes = (_against_nan if _is_nan(point) else _against)(column, sign, point)
    if sign is Operator.NULL_SAFE:
        return FilterOutcomes(outcomes.true, outcomes.false | (column.nulls > 0))
    return outcomes


def _against(column: ColumnBounds, sign: Operator, point: Point) -> FilterOutcomes:
    has_nan = column.nans > 0
    match sign:
        case Operator.LESS:
            return FilterOutcomes(_some_below(column, point), _some_from(column, point) | has_nan)
        case Operator.LESS_OR_EQUAL:
            return FilterOutcomes(_some_to(column, point), _some_above(column, point) | has_nan)
        case Operator.GREATER:
            return FilterOutcomes(_some_above(column, point) | has_nan, _some_to(column, point))
        case Operator.GREATER_OR_EQUAL:
            return FilterOutcomes(_some_from(column, point) | has_nan, _some_below(column, point))
        case Operator.EQUAL | Operator.NULL_SAFE:
            equal = _some_to(column, point) & _some_from(column, point)
            return FilterOutcomes(equal, (column.values > 0) & ~_all_equal(column, point))
        case _:
            assert_never(sign)


def _against_nan(column: ColumnBounds, sign: Operator, point: Point) -> FilterOutcomes:
    is_nan, is_ordered, nothing = column.nans > 0, column.ordered > 0, np.zeros_like(column.known)
    match sign:
        case Operator.LESS:
            return FilterOutcomes(is_ordered, is_nan)
        case Operator.LESS_OR_EQUAL:
            return FilterOutcomes(column.values > 0, nothing)
        case Operator.GREATER:
            return FilterOutcomes(nothing, column.values > 0)
        case Operator.GREATER_OR_EQUAL | Operator.EQUAL | Operator.NULL_SAFE:
            return FilterOutcomes(is_nan, is_ordered)
        case _:
            assert_never(sign)


def _in(column: ColumnBounds, literals: Sequence[Literal | None]) -> FilterOutcomes | None:
    points: list[Point] = []
    for literal in literals:
        point = None if literal is None else literal_bound(literal, column.type)
        if point is None and literal is not None:
            return None
        if point is not None:
            points.append(point)
    ordered: list[Any] = sorted(point for point in points if not _is_nan(point))
    matching = _some_among(column, ordered)
    if len(ordered) < len(points):
        matching |= column.nans > 0
    if not literals:
        # Since Spark 4 even null is not in an empty list; before, that was null.
        return FilterOutcomes(matching, column.rows > 0)
    # A value that is none of the others is not known to differ from null.
    differing = np.zeros_like(matching) if None in literals else column.values > 0
    return FilterOutcomes(matching, differing)


def _some_among(column: ColumnBounds, ordered: Sequence[Any]) -> Mask:
    """Return the groups where one of some points lies between the bounds."""
    matching = column.ordered > 0
    lower, upper = column.lower.tolist(), column.upper.tolist()
    for index in np.flatnonzero(matching):
        low, high = lower[index], upper[index]
        first = 0 if low is None else bisect.bisect_left(ordered, low)
        matching[index] = first < len(ordered) and (high is None or ordered[first] <= high)
    return matching


def _starts_with(column: ColumnBounds, prefix: str) -> FilterOutcomes | None:
    point = literal_bound(prefix, column.type)
    if not isinstance(point, bytes):
        return None
    lower, upper = column.lower.tolist(), column.upper.tolist()
    some = column.ordered > 0
    every = np.zeros_like(some)
    for index in np.flatnonzero(some):
        # Values that start with the prefix follow one another.
        low, high = (_head(bound, len(point)) for bound in (lower[index], upper[index]))
        some[index] = (low is None or low <= point) and (high is None or high >= point)
        every[index] = low == point == high
    return FilterOutcomes(some, (column.values > 0) & ~every)


def _head(bound: Bound | None, length: int) -> bytes | None:
    return bound[:length] if isinstance(bound, bytes) else None


def _some_below(column: ColumnBounds, point: Point) -> Mask:
    return _some(column, column.lower, operator.lt, point)


def _some_to(column: ColumnBounds, point: Point) -> Mask:
    return _some(column, column.lower, operator.le, point)


def _some_above(column: ColumnBounds, point: Point) -> Mask:
    return _some(column, column.upper, operator.gt, point)


def _some_from(column: ColumnBounds, point: Point) -> Mask:
    return _some(column, column.upper, operator.ge, point)


def _some(
    column: ColumnBounds, bounds: Bounds, compare: Callable[[Any, Any], Mask], point: Point
) -> Mask:
    return (column.ordered > 0) & (~bounds.exists | compare(*bounds.comparable(point)))


def _all_equal(column: ColumnBounds, point: Point) -> Mask:
    equal: Mask = column.nans == 0
    for bounds in (column.lower, column.upper):
        equal = equal & bounds.exists & operator.eq(*bounds.comparable(point))
    return equal


def _is_nan(point: Point) -> bool:
    return isinstance(point, float) and math.isnan(point)
