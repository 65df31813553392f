"""Which fragments, or groups of them, may hold rows that pass a filter, by their statistics."""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_never

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
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, ColumnType, Kind
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial

if TYPE_CHECKING:
    import pyarrow as pa

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Point = Bound | Fraction

_LARGEST = 2**63
_DAY_MILLISECONDS = 86_400_000
# Decimals of so many digits fit into 64 bits.
_SHORT_DECIMAL = 18


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Rows, nulls, NaN and bounds of one column in every group of fragments.

    Bounds are as in `ColumnPartial`: they ignore nulls and NaN, enclose the values where they are
    not exact, and are None where they are not known. Where `known` is False, the rest of a group is
    filler. `partials` are what they were made from, if they were.
    """

    type: ColumnType
    known: Mask
    rows: Counts
    nulls: Counts
    nans: Counts
    lower: Sequence[Bound | None]
    upper: Sequence[Bound | None]
    partials: Sequence[ColumnPartial] = ()

    @classmethod
    def of(cls, partials: Iterable[ColumnPartial | None], type: ColumnType) -> ColumnBounds:
        """Return the bounds of partials by group, None where one is not known.

        Spark's handling of unsigned integers that it cannot hold is not known: groups with some
        count as unknown.
        """
        is_integer = type.kind is Kind.INTEGER
        some = [
            None if p is None or (is_integer and int(p.maximum or 0) >= _LARGEST) else p
            for p in partials
        ]
        filled = [EMPTY_PARTIAL if partial is None else partial for partial in some]
        return cls(
            type=type,
            known=np.array([partial is not None for partial in some], np.bool_),
            rows=np.array([partial.rows for partial in filled], np.int64),
            nulls=np.array([partial.nulls for partial in filled], np.int64),
            nans=np.array([partial.nans for partial in filled], np.int64),
            lower=[partial.minimum for partial in filled],
            upper=[partial.maximum for partial in filled],
            partials=filled,
        )

    @classmethod
    def of_rows(cls, column: pa.ChunkedArray, type: ColumnType) -> ColumnBounds:
        """Return the bounds of a column of which every row is a group."""
        values = bound_values(column, type)
        every = np.ones(len(values), np.int64)
        nulls = column.is_null().to_numpy().astype(np.int64)
        missing = np.array([value is None for value in values], np.int64)
        return cls(type, every > 0, every, nulls, missing - nulls, values, values)

    @property
    def values(self) -> Counts:
        """Rows that are not null."""
        return self.rows - self.nulls

    @property
    def ordered(self) -> Counts:
        """Rows that are neither null nor NaN."""
        return self.rows - self.nulls - self.nans


def bound_values(column: pa.ChunkedArray, type: ColumnType) -> list[Bound | None]:
    """Return values in the form of a column's bounds; None for null and NaN."""
    import pyarrow as pa

    if type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME):
        divisor, factor = TO_MICROSECONDS[column.type.unit]
    elif type.kind is Kind.DATE:
        divisor, factor = (1 if pa.types.is_date32(column.type) else _DAY_MILLISECONDS), 1
    elif type.kind is Kind.FLOAT:
        floats = column.cast(pa.float64()).to_pylist()
        return [None if value is None or _is_nan(value) else value for value in floats]
    elif pa.types.is_decimal128(column.type) and column.type.precision <= _SHORT_DECIMAL:
        return [value for chunk in column.chunks for value in _unscaled_values(chunk)]
    else:
        points = (None if v is None else literal_bound(v, type) for v in column.to_pylist())
        return [None if point is None or _is_nan(point) else point for point in points]  # type: ignore[misc]
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    stored = column.cast(width).to_pylist()
    return [None if value is None else value // divisor * factor for value in stored]


def _unscaled_values(decimals: pa.Decimal128Array) -> list[int | None]:
    """Return decimals without their points, of which the lower half has all digits."""
    if not len(decimals):
        return []
    halves = np.frombuffer(decimals.buffers()[1], "<i8")[2 * decimals.offset :: 2]
    values: list[int | None] = halves[: len(decimals)].tolist()
    if decimals.null_count:
        for index in np.flatnonzero(decimals.is_null().to_numpy(zero_copy_only=False)):
            values[index] = None
    return values


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

# The groups where a filter may be true, false or null for some row.
_Outcomes = tuple[Mask, Mask, Mask]


def may_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups that may hold a row for which a conjunction of filters is true.

    `bounds_of` returns the bounds of a column by group, None where they are unknown.
    """
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        matching &= _outcomes(filter, bounds_of, groups)[0]
    return matching


def must_match(filters: Iterable[Filter], bounds_of: BoundsOf, groups: int) -> Mask:
    """Return the groups of which every row is known to pass a conjunction of filters.

    `bounds_of` returns the bounds of a column by group, None where they are unknown.
    """
    matching = np.ones(groups, np.bool_)
    for filter in filters:
        _, may_be_false, may_be_null = _outcomes(filter, bounds_of, groups)
        matching &= ~may_be_false & ~may_be_null
    return matching


def _outcomes(filter: Filter, bounds_of: BoundsOf, groups: int) -> _Outcomes:
    match filter:
        case Not(operand):
            true, false, null = _outcomes(operand, bounds_of, groups)
            return false, true, null
        case And(left, right) | Or(left, right):
            a, b = (_outcomes(side, bounds_of, groups) for side in (left, right))
            if isinstance(filter, And):
                return a[0] & b[0], a[1] | b[1], a[2] | b[2]
            return a[0] | b[0], a[1] & b[1], a[2] | b[2]
        case Comparison() | In() | IsNull() | TextMatch():
            column = bounds_of(filter.column)
            outcomes = None if column is None else _leaf_outcomes(column, filter)
            if column is not None and outcomes is not None:
                true, false = outcomes
                unknown = ~column.known
                return true | unknown, false | unknown, _may_be_null(column, filter)
        case Unread():
            pass
        case _:
            assert_never(filter)
    every = np.ones(groups, np.bool_)
    return every, every, every


def _may_be_null(column: ColumnBounds, filter: Leaf) -> Mask:
    match filter:
        case IsNull() | Comparison(_, Operator.NULL_SAFE):
            return np.zeros_like(column.known)
        case Comparison(_, _, None):
            return np.ones_like(column.known)
        case In() if None in filter.literals:
            return np.ones_like(column.known)
    return (column.nulls > 0) | ~column.known


def _leaf_outcomes(column: ColumnBounds, filter: Leaf) -> tuple[Mask, Mask] | None:
    """Return None when the filter's literals are not of the column's type."""
    match filter:
        case IsNull():
            return column.nulls > 0, column.values > 0
        case Comparison():
            return _comparison(column, filter)
        case In():
            return _in(column, filter.literals)
        case TextMatch():
            return _text_match(column, filter)
        case _:
            assert_never(filter)


def _comparison(column: ColumnBounds, comparison: Comparison) -> tuple[Mask, Mask] | None:
    sign, literal = comparison.operator, comparison.literal
    if literal is None:
        if sign is Operator.NULL_SAFE:
            return column.nulls > 0, column.values > 0
        return np.zeros_like(column.known), np.zeros_like(column.known)
    point = literal_bound(literal, column.type)
    if point is None:
        return None
    outcomes = (_against_nan if _is_nan(point) else _against)(column, sign, point)
    if sign is Operator.NULL_SAFE:
        return outcomes[0], outcomes[1] | (column.nulls > 0)
    return outcomes


def _against(column: ColumnBounds, sign: Operator, point: Point) -> tuple[Mask, Mask]:
    low, high, has_nan = column.lower, column.upper, column.nans > 0

    def some(bounds: Sequence[Bound | None], compare: Callable[[Any, Any], bool]) -> Mask:
        passing = [bound is None or compare(bound, point) for bound in bounds]
        return (column.ordered > 0) & np.array(passing, np.bool_)

    match sign:
        case Operator.LESS:
            return some(low, operator.lt), some(high, operator.ge) | has_nan
        case Operator.LESS_OR_EQUAL:
            return some(low, operator.le), some(high, operator.gt) | has_nan
        case Operator.GREATER:
            return some(high, operator.gt) | has_nan, some(low, operator.le)
        case Operator.GREATER_OR_EQUAL:
            return some(high, operator.ge) | has_nan, some(low, operator.lt)
        case Operator.EQUAL | Operator.NULL_SAFE:
            equal = some(low, operator.le) & some(high, operator.ge)
            bounds = zip(low, high, strict=True)
            same = np.array([least == point == greatest for least, greatest in bounds], np.bool_)
            return equal, (column.values > 0) & ~(same & ~has_nan)
        case _:
            assert_never(sign)


def _against_nan(column: ColumnBounds, sign: Operator, point: Point) -> tuple[Mask, Mask]:
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


def _in(column: ColumnBounds, literals: Sequence[Literal | None]) -> tuple[Mask, Mask] | None:
    points: list[Point] = []
    for literal in literals:
        point = None if literal is None else literal_bound(literal, column.type)
        if point is None and literal is not None:
            return None
        if point is not None:
            points.append(point)
    ordered: list[Any] = sorted(point for point in points if not _is_nan(point))
    matching = _some_among(column, ordered)
    has_nan = column.nans > 0
    # In a list, zero may differ from the zero with the other sign.
    among = frozenset(point for point in ordered if not isinstance(point, float) or point)
    bounds = zip(column.lower, column.upper, strict=True)
    same = np.array([low == high and low in among for low, high in bounds], np.bool_)
    every = same | (column.ordered == 0)
    if len(ordered) < len(points):
        matching |= has_nan
    else:
        every &= ~has_nan
    if not literals:
        # Since Spark 4 even null is not in an empty list; before, that was null.
        return matching, column.rows > 0
    # A value that is none of the others is not known to differ from null.
    differing = np.zeros_like(matching) if None in literals else (column.values > 0) & ~every
    return matching, differing


def _some_among(column: ColumnBounds, ordered: Sequence[Any]) -> Mask:
    matching = column.ordered > 0
    for index in np.flatnonzero(matching).tolist():
        low, high = column.lower[index], column.upper[index]
        first = 0 if low is None else bisect.bisect_left(ordered, low)
        matching[index] = first < len(ordered) and (high is None or ordered[first] <= high)
    return matching


_TEXT_TESTS: dict[TextOperator, Callable[[bytes, bytes], bool]] = {
    TextOperator.STARTS_WITH: bytes.startswith,
    TextOperator.ENDS_WITH: bytes.endswith,
    TextOperator.CONTAINS: operator.contains,
}


def _text_match(column: ColumnBounds, match: TextMatch) -> tuple[Mask, Mask] | None:
    point = literal_bound(match.text, column.type)
    if not isinstance(point, bytes):
        return None
    some = column.values > 0
    every = np.zeros_like(some)
    for index in np.flatnonzero(some).tolist():
        low, high = column.lower[index], column.upper[index]
        if isinstance(low, bytes) and low == high:
            some[index] = every[index] = _TEXT_TESTS[match.operator](low, point)
        elif match.operator is TextOperator.STARTS_WITH:
            # Values that start with the prefix follow one another.
            low, high = (_head(bound, len(point)) for bound in (low, high))
            some[index] = (low is None or low <= point) and (high is None or high >= point)
            every[index] = low == point == high
    return some, (column.values > 0) & ~every


def _head(bound: Bound | None, length: int) -> bytes | None:
    return bound[:length] if isinstance(bound, bytes) else None


def _is_nan(point: Point) -> bool:
    return isinstance(point, float) and math.isnan(point)
