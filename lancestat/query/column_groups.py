"""The statistics of one column, group of fragments by group, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, merge
from lancestat.tables.statistics.sketch import EMPTY_SKETCH, REGISTERS, Sketch

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
