"""What is known of one column, group by group, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lancestat.stats.bounds import Bound
from lancestat.stats.column_type import ColumnType, Kind

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
