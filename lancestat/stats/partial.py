"""The statistic of one column in one fragment, and how partials combine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lancestat.stats.column_type import ColumnType
from lancestat.stats.sketch import Sketch

# Values as the kernel sees them: booleans and integers as int, dates as days and timestamps as microseconds since
# 1970-01-01 UTC, decimals as their unscaled integer, floats as float, strings and binary as bytes (UTF-8).
Bound = int | float | bytes


@dataclass(frozen=True, slots=True)
class ColumnPartial:
    """Mergeable statistic of one column over some rows.

    `minimum` and `maximum` ignore nulls and NaN and are None when nothing else is left. `total_bytes` and
    `max_bytes` are the summed and the largest length of strings and binary, 0 for fixed-width types.
    """

    rows: int
    nulls: int
    nans: int
    minimum: Bound | None
    maximum: Bound | None
    total_bytes: int
    max_bytes: int
    sketch: Sketch


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What Spark's optimizer is told about one column; lengths in bytes."""

    rows: int
    nulls: int
    distinct: int
    minimum: Bound | None
    maximum: Bound | None
    average_length: int
    maximum_length: int


def merge(partials: Iterable[ColumnPartial]) -> ColumnPartial:
    """Combine partials of one column over disjoint rows; associative and commutative."""
    raise NotImplementedError


def summarize(partial: ColumnPartial, type: ColumnType) -> ColumnStatistics:
    """The column statistics that Spark's `CommandUtils.computeColumnStats` would give for the same rows."""
    raise NotImplementedError


def encode(partial: ColumnPartial) -> bytes:
    """The stored form of a partial."""
    raise NotImplementedError


def decode(stored: bytes) -> ColumnPartial:
    """The inverse of `encode`; raises ValueError on anything else."""
    raise NotImplementedError
