"""The statistics of one column, group of fragments by group, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lancestat.statistics.bounds import Bound
from lancestat.statistics.column_type import ColumnType, Kind
from lancestat.statistics.partial import EMPTY_PARTIAL, ColumnPartial, merge
from lancestat.statistics.quantiles import QuantileSketch
from lancestat.statistics.sketch import REGISTERS, Sketch

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class Bounds:
    """One bound per group, where `exists` says so; int64, float64, or objects that Python compares.

    Where there is none, `values` holds something of the same type that means nothing.
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
        """The values and `point` in a form in which numpy compares them exactly."""
        if self.values.dtype == np.float64 or (self.values.dtype == np.int64 and _fits(point)):
            return self.values, point
        # By itself a point of bytes would lose its zero bytes at the end.
        boxed = np.empty((), object)
        boxed[()] = point
        return self.values.astype(object), boxed

    def tolist(self) -> list[Bound | None]:
        """As Python values, None where there is none."""
        pairs = zip(self.values.tolist(), self.exists.tolist(), strict=True)
        return [value if exists else None for value, exists in pairs]

    def least(self, chosen: Mask) -> Bound | None:
        """The smallest of the chosen groups."""
        found = self.values[chosen & self.exists]
        return _plain(found.min()) if len(found) else None

    def greatest(self, chosen: Mask) -> Bound | None:
        """The largest of the chosen groups."""
        found = self.values[chosen & self.exists]
        return _plain(found.max()) if len(found) else None


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Rows, nulls, NaN and bounds of one column in every group.

    Bounds are as in `ColumnPartial`: they ignore nulls and NaN, and enclose what they do not say
    exactly. `known` is False for groups of which the rest means nothing.
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

    What it makes of those is not known, so groups that have some are not either.
    """
    return type.kind is not Kind.INTEGER or not isinstance(maximum, int) or maximum < _LARGEST


def _fits(literal: object) -> bool:
    return isinstance(literal, int) and -_LARGEST <= literal < _LARGEST


def _plain(value: Any) -> Bound:
    bound: Bound = value.item() if isinstance(value, np.generic) else value
    return bound


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """Struct of arrays; `registers` is groups x 4,096, `quantiles` by group where there are any."""

    bounds: ColumnBounds
    total_bytes: Counts
    max_bytes: Counts
    total_characters: Counts
    max_characters: Counts
    registers: npt.NDArray[np.uint8]
    quantiles: Sequence[QuantileSketch | None]

    @classmethod
    def of(cls, partials: Sequence[ColumnPartial | None], type: ColumnType) -> GroupColumn:
        """Lay partials out; None is what is not known, as are values that Spark cannot hold."""
        partials = [
            each if each is not None and fits_spark(each.maximum, type) else None
            for each in partials
        ]
        found = [EMPTY_PARTIAL if each is None else each for each in partials]
        joined = b"".join(each.sketch.registers for each in found)
        return cls(
            bounds=ColumnBounds(
                type=type,
                known=np.array([each is not None for each in partials], np.bool_),
                rows=_counts(each.rows for each in found),
                nulls=_counts(each.nulls for each in found),
                nans=_counts(each.nans for each in found),
                lower=Bounds.of([each.minimum for each in found], type),
                upper=Bounds.of([each.maximum for each in found], type),
            ),
            total_bytes=_counts(each.total_bytes for each in found),
            max_bytes=_counts(each.max_bytes for each in found),
            total_characters=_counts(each.total_characters for each in found),
            max_characters=_counts(each.max_characters for each in found),
            registers=np.frombuffer(joined, np.uint8).reshape(-1, REGISTERS),
            quantiles=[each.quantiles for each in found],
        )

    def merged(self, groups: Mask) -> ColumnPartial:
        """What `stats.partial.merge` makes of the chosen groups, all of which must be known."""
        bounds = self.bounds
        if not groups.any():
            return EMPTY_PARTIAL
        lower, upper = bounds.lower, bounds.upper
        unbounded = groups & lower.exists & ~upper.exists
        merged = ColumnPartial(
            rows=int(bounds.rows[groups].sum()),
            nulls=int(bounds.nulls[groups].sum()),
            nans=int(bounds.nans[groups].sum()),
            minimum=lower.least(groups),
            maximum=None if unbounded.any() else upper.greatest(groups),
            total_bytes=int(self.total_bytes[groups].sum()),
            max_bytes=int(self.max_bytes[groups].max()),
            sketch=Sketch(self.registers[groups].max(axis=0).tobytes()),
            total_characters=int(self.total_characters[groups].sum()),
            max_characters=int(self.max_characters[groups].max()),
        )
        return replace(merged, quantiles=self._merged_quantiles(groups))

    def _merged_quantiles(self, groups: Mask) -> QuantileSketch | None:
        """By the rule of `merge`, of partials that have nothing else."""
        if not any(self.quantiles):
            return None
        return merge(
            replace(EMPTY_PARTIAL, rows=int(self.bounds.rows[place]), quantiles=sketch)
            for place, sketch in enumerate(self.quantiles)
            if groups[place]
        ).quantiles


def _counts(numbers: object) -> Counts:
    return np.fromiter(numbers, np.int64)  # type: ignore[call-overload,no-any-return]
