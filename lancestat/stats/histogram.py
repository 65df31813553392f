"""Equi-height histograms, as Spark's optimizer takes them."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.stats.column_type import Kind

# Numbers, dates and timestamps: what Spark makes histograms of.
HISTOGRAM_KINDS = frozenset((Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP))


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """One bin of an equi-height histogram, in Spark's numeric form of the type."""

    low: float
    high: float
    distinct: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """An equi-height histogram; `height` is the rows per bin."""

    height: float
    bins: tuple[HistogramBin, ...]
