"""Which fragments, or groups of them, may hold rows that pass a filter, by their statistics."""

from __future__ import annotations

import bisect
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

from lancestat.lake.snapshot import Snapshot
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
    columns_of,
)
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, Bound, ColumnPartial, merge
from lancestat.tables.statistics.sketches import EMPTY_SKETCH, REGISTERS, Sketch

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Bounds:
    """One bound per group, where `exists` says so; int64, float64, or objects that Python compares.

    Where there is none, `values` holds a filler of the same type.
    """

    values: npt.NDArray[Any]
    exists: Mask

    @classmethod
    def of(cls, bounds: Sequence[Bound | None], type: ColumnType) -> Bounds:
        """Bounds of one column, None where there is none."""
        filler: Bound = b"" if type.is_variable_width else 0
        exists = np.array([bound is not None for bound in bounds], np.bool_)
        filled = [filler if bound is None else bound for bound in bounds]
        if type.kind is Kind.FLOAT:
            return cls(np.array(filled, np.float64), exists)
        if not type.is_variable_width and all(map(_fits, filled)):
            return cls(np.array(filled, np.int64), exists)
        objects = np.empty(len(filled), object)
        objects[:] = filled
        return cls(objects, exists)

    def comparable(self, point: object) -> tuple[npt.NDArray[Any], Any]:
        """Return the values and `point` in a form in which numpy compares them exactly."""
        if self.values.dtype == np.float64 or (self.values.dtype == np.int64 and _fits(point)):
            return self.values, point
        # NumPy would strip the zero bytes at the end of bare bytes.
        boxed = np.empty((), object)
        boxed[()] = point
        return self.values.astype(object), boxed

    def tolist(self) -> list[Bound | None]:
        """Return Python values, None where there is none."""
        pairs = zip(self.values.tolist(), self.exists.tolist(), strict=True)
        return [value if exists else None for value, exists in pairs]

    def least(self, chosen: Mask) -> Bound | None:
        """Return the smallest of the chosen groups."""
        bounds = self.values[chosen & self.exists]
        return _python_value(bounds.min()) if len(bounds) else None

    def greatest(self, chosen: Mask) -> Bound | None:
        """Return the largest of the chosen groups."""
        bounds = self.values[chosen & self.exists]
        return _python_value(bounds.max()) if len(bounds) else None


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Rows, nulls, NaN and bounds of one column in every group.

    Bounds are as in `ColumnPartial`: they ignore nulls and NaN, and enclose the values where they
    are not exact. Where `known` is False, the rest of a group is filler.
    """

    type: ColumnType
    known: Mask
    rows: Counts
    nulls: Counts
    nans: Counts
    lower: Bounds
    upper: Bounds

    @property
    def values(self) -> Counts:
        """Rows that are not null."""
        return self.rows - self.nulls

    @property
    def ordered(self) -> Counts:
        """Rows that are neither null nor NaN."""
        return self.rows - self.nulls - self.nans


def fits_spark(maximum: Bound | None, type: ColumnType) -> bool:
    """Whether Spark can hold values up to a maximum: unsigned 64-bit ones may be too large.

    Spark's handling of those is not known, so groups that have some count as unknown.
    """
    return type.kind is not Kind.INTEGER or not isinstance(maximum, int) or maximum < _LARGEST


def _fits(literal: object) -> bool:
    return isinstance(literal, int) and -_LARGEST <= literal < _LARGEST


def _python_value(value: Any) -> Bound:
    bound: Bound = value.item() if isinstance(value, np.generic) else value
    return bound


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column in every group: `registers` is groups x 4,096, `rest` the partials without sketches.

    Bounds and sketches are arrays, since queries prune and merge many groups.
    """

    bounds: ColumnBounds
    registers: npt.NDArray[np.uint8]
    rest: Sequence[ColumnPartial]

    @classmethod
    def of(cls, partials: Sequence[ColumnPartial | None], type: ColumnType) -> GroupColumn:
        """Lay partials out; unknown are None, and those with values that Spark cannot hold."""
        partials = [
            partial if partial is not None and fits_spark(partial.maximum, type) else None
            for partial in partials
        ]
        filled = [EMPTY_PARTIAL if partial is None else partial for partial in partials]
        joined = b"".join(partial.sketch.registers for partial in filled)
        return cls(
            bounds=ColumnBounds(
                type=type,
                known=np.array([partial is not None for partial in partials], np.bool_),
                rows=_counts(partial.rows for partial in filled),
                nulls=_counts(partial.nulls for partial in filled),
                nans=_counts(partial.nans for partial in filled),
                lower=Bounds.of([partial.minimum for partial in filled], type),
                upper=Bounds.of([partial.maximum for partial in filled], type),
            ),
            registers=np.frombuffer(joined, np.uint8).reshape(-1, REGISTERS),
            rest=[
                replace(partial, minimum=None, maximum=None, sketch=EMPTY_SKETCH)
                for partial in filled
            ],
        )

    def merged(self, groups: Mask) -> ColumnPartial:
        """Merge the partials of the chosen groups, all of them known, as `partial.merge` does."""
        if not groups.any():
            return EMPTY_PARTIAL
        lower, upper = self.bounds.lower, self.bounds.upper
        unbounded = groups & lower.exists & ~upper.exists
        return replace(
            merge(
                partial for partial, is_chosen in zip(self.rest, groups, strict=True) if is_chosen
            ),
            minimum=lower.least(groups),
            maximum=None if unbounded.any() else upper.greatest(groups),
            sketch=Sketch(self.registers[groups].max(axis=0).tobytes()),
        )


def _counts(numbers: object) -> Counts:
    return np.fromiter(numbers, np.int64)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Bounds that enclose the values of a column, and the most nulls that it may have."""

    minimum: Bound | None
    maximum: Bound | None
    nulls: int


def literal_bound(literal: Literal, type: ColumnType) -> Bound | Fraction | None:
    """Return a literal in the form of a column's bounds, exactly; None for another type.

    A fraction is a decimal with more digits than the column has. A float may be NaN.
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
            with suppress(UnicodeEncodeError):
                return literal.encode()
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


# None for a column whose bounds are unknown.
BoundsOf = Callable[[str], ColumnBounds | None]
Point = Bound | Fraction


# The groups where a filter may be true for some row, and those where it may be false.
_Outcomes = tuple[Mask, Mask]


def may_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups that may hold a row for which a conjunction of filters is true.

    `bounds_of` returns the bounds of a column by group, None where they are unknown.
    """
    outcomes = _FilterEvaluator(bounds_of, groups)
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        matching &= outcomes.evaluate(filter)[0]
    return matching


def must_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups of which every row is known to pass a conjunction of filters.

    `bounds_of` returns the bounds of a column by group, None where they are unknown.
    """
    outcomes = _FilterEvaluator(bounds_of, groups)
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        matching &= ~outcomes.evaluate(filter)[1] & ~outcomes.may_be_null(filter)
    return matching


@dataclass(frozen=True, slots=True)
class _FilterEvaluator:
    bounds_of: BoundsOf
    groups: int

    def evaluate(self, filter: Filter) -> _Outcomes:
        """Evaluate a filter; where it is null it is neither true nor false, negated or not."""
        match filter:
            case Not():
                true, false = self.evaluate(filter.operand)
                return false, true
            case And():
                (true, false), other = self.evaluate(filter.left), self.evaluate(filter.right)
                return true & other[0], false | other[1]
            case Or():
                (true, false), other = self.evaluate(filter.left), self.evaluate(filter.right)
                return true | other[0], false & other[1]
            case Comparison() | In() | IsNull() | TextMatch():
                return self._evaluate_leaf(filter)
            case Unread():
                every = np.ones(self.groups, np.bool_)
                return every, every
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

    def _evaluate_leaf(self, filter: Leaf) -> _Outcomes:
        column = self.bounds_of(filter.column)
        outcomes = None if column is None else _leaf_outcomes(column, filter)
        if column is None or outcomes is None:
            every = np.ones(self.groups, np.bool_)
            return every, every
        return outcomes[0] | ~column.known, outcomes[1] | ~column.known


def _leaf_outcomes(column: ColumnBounds, filter: Leaf) -> _Outcomes | None:
    """Return None when the filter's literals are not of the column's type."""
    match filter:
        case IsNull():
            return column.nulls > 0, column.values > 0
        case Comparison():
            return _comparison(column, filter)
        case In():
            return _in(column, filter.literals)
        case TextMatch(_, TextOperator.STARTS_WITH, prefix):
            return _starts_with(column, prefix)
        case TextMatch():
            return column.values > 0, column.values > 0
        case _:
            assert_never(filter)


def _comparison(column: ColumnBounds, comparison: Comparison) -> _Outcomes | None:
    sign, literal = comparison.operator, comparison.literal
    if literal is None:
        return _leaf_outcomes(column, IsNull("")) if sign is Operator.NULL_SAFE else None
    point = literal_bound(literal, column.type)
    if point is None:
        return None
    outcomes = (_against_nan if _is_nan(point) else _against)(column, sign, point)
    if sign is Operator.NULL_SAFE:
        return outcomes[0], outcomes[1] | (column.nulls > 0)
    return outcomes


def _against(column: ColumnBounds, sign: Operator, point: Point) -> _Outcomes:
    has_nan = column.nans > 0
    match sign:
        case Operator.LESS:
            return _some_below(column, point), _some_from(column, point) | has_nan
        case Operator.LESS_OR_EQUAL:
            return _some_to(column, point), _some_above(column, point) | has_nan
        case Operator.GREATER:
            return _some_above(column, point) | has_nan, _some_to(column, point)
        case Operator.GREATER_OR_EQUAL:
            return _some_from(column, point) | has_nan, _some_below(column, point)
        case Operator.EQUAL | Operator.NULL_SAFE:
            equal = _some_to(column, point) & _some_from(column, point)
            return equal, (column.values > 0) & ~_all_equal(column, point)
        case _:
            assert_never(sign)


def _against_nan(column: ColumnBounds, sign: Operator, point: Point) -> _Outcomes:
    is_nan, is_ordered, nothing = column.nans > 0, column.ordered > 0, np.zeros_like(column.known)
    match sign:
        case Operator.LESS:
            return is_ordered, is_nan
        case Operator.LESS_OR_EQUAL:
            return column.values > 0, nothing
        case Operator.GREATER:
            return nothing, column.values > 0
        case Operator.GREATER_OR_EQUAL | Operator.EQUAL | Operator.NULL_SAFE:
            return is_nan, is_ordered
        case _:
            assert_never(sign)


def _in(column: ColumnBounds, literals: Sequence[Literal | None]) -> _Outcomes | None:
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
        return matching, column.rows > 0
    # A value that is none of the others is not known to differ from null.
    differing = np.zeros_like(matching) if None in literals else column.values > 0
    return matching, differing


def _some_among(column: ColumnBounds, ordered: Sequence[Any]) -> Mask:
    matching = column.ordered > 0
    lower, upper = column.lower.tolist(), column.upper.tolist()
    for index in np.flatnonzero(matching):
        low, high = lower[index], upper[index]
        first = 0 if low is None else bisect.bisect_left(ordered, low)
        matching[index] = first < len(ordered) and (high is None or ordered[first] <= high)
    return matching


def _starts_with(column: ColumnBounds, prefix: str) -> _Outcomes | None:
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
    return some, (column.values > 0) & ~every


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


class FragmentStatistics(ABC):
    """Statistics of a table's fragments at one version, by groups of fragments.

    Fragments of groups that are no longer whole, and those of no group, are one last group of which
    nothing is known.

    Args:
        snapshot: The fragments.
        groups: Ids of fragments, each in one group.
    """

    def __init__(self, snapshot: Snapshot, groups: Sequence[Sequence[int]]) -> None:
        sizes = [len(group) for group in groups]
        rest = len(groups)
        home = dict(
            zip(
                (id for group in groups for id in group),
                np.repeat(np.arange(rest), sizes).tolist(),
                strict=True,
            )
        )
        ordered = sorted(snapshot.fragments, key=lambda fragment: fragment.id)
        group_of = np.array([home.get(fragment.id, rest) for fragment in ordered], np.int64)
        present = np.bincount(group_of, minlength=rest + 1)
        self._is_whole: Mask = np.append(present[:rest] == np.array(sizes, np.int64), False)
        self._group_of = np.where(self._is_whole[group_of], group_of, rest)
        self._ids = np.array([fragment.id for fragment in ordered], np.int64)
        rows = np.array([fragment.rows for fragment in ordered], np.int64)
        self._rows = np.bincount(self._group_of, rows, rest + 1).astype(np.int64)
        self._is_present: Mask = np.bincount(self._group_of, minlength=rest + 1) > 0

    def load(self, columns: Iterable[str]) -> None:  # noqa: B027 - not all load ahead
        """Load columns together, which takes less time than one by one."""

    @abstractmethod
    def bounds(self, column: str) -> ColumnBounds | None:
        """Return the bounds of a column, once loaded, by group; None where they are unknown."""

    def partial_of(self, column: str, groups: Mask) -> ColumnPartial | None:
        """Return the partial of a column over some groups, None where one is unknown."""
        return None

    def range_of(self, column: str, groups: Mask) -> ColumnRange | None:
        """Return the range of a column without a partial, None where it is unknown, too."""
        return None

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over the whole table, None where a group is unknown."""
        return self.partial_of(column, self._is_present)

    def knows(self, column: str) -> bool:
        """Whether the bounds of a column are known in some fragment."""
        self.load([column])
        bounds = self.bounds(column)
        return bounds is not None and bool(bounds.known.any())

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        """Return the fragments that a conjunction of filters leaves; None when it leaves all."""
        try:
            columns = set().union(*map(columns_of, filters))
            matching = self._matching(filters)
        except RecursionError:
            return None
        if matching[self._is_present].all():
            return None
        alive = matching & self._is_present
        bounds = [self.bounds(name) for name in columns]
        return RemainingFragments(
            self,
            alive,
            fragment_ids=tuple(self._ids[alive[self._group_of]].tolist()),
            rows=int(self._rows[alive].sum()),
            is_known=all(
                column is not None and bool(column.known[alive].all()) for column in bounds
            ),
        )

    def covers(self, filters: Sequence[Filter]) -> bool:
        """Whether every row of the fragments that `prune` leaves is known to pass the filters."""
        try:
            left = self._matching(filters)
            passing = must_match(filters, self.bounds, len(left)) & self._is_whole
        except RecursionError:
            return False
        return bool(passing[left & self._is_present].all())

    def _matching(self, filters: Sequence[Filter]) -> Mask:
        self.load(set().union(*map(columns_of, filters)))
        return may_match(filters, self.bounds, len(self._rows)) | ~self._is_whole


class NoFragmentStatistics(FragmentStatistics):
    """No statistics: neither state nor index has any of the fragments."""

    def __init__(self) -> None:
        """There are no groups."""

    def bounds(self, column: str) -> ColumnBounds | None:
        return None

    def partial(self, column: str) -> ColumnPartial | None:
        return None

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        return None

    def covers(self, filters: Sequence[Filter]) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class RemainingFragments:
    """The fragments of a table that are left after pruning: their ids, ascending, and live rows.

    `is_known` says whether the bounds of every filtered column are known in all of them. Only then
    may an estimate start from these fragments: Spark applies the filter once more, to bounds that
    must be theirs.
    """

    statistics: FragmentStatistics
    groups: Mask
    fragment_ids: Sequence[int]
    rows: int
    is_known: bool

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over these fragments, None where one is unknown."""
        return self.statistics.partial_of(column, self.groups)

    def range(self, column: str) -> ColumnRange | None:
        """Return the range of a column without a known partial, None where it is unknown, too."""
        return self.statistics.range_of(column, self.groups)
