"""Equi-height histograms, as Spark's optimizer takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from lancestat.stats.bounds import Bound
from lancestat.stats.column_type import ColumnType, Kind
from lancestat.stats.partial import ColumnPartial, summarize
from lancestat.stats.values import are_estimable, format_bound

# Numbers, dates and timestamps: what Spark makes histograms of.
HISTOGRAM_KINDS = frozenset((Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP))

# The default of `spark.sql.statistics.histogram.numBins`.
BINS = 254


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """The values from `low` to `high`, both included, in Spark's numeric form of the type.

    `distinct` estimates how many there are, at least 1.
    """

    low: float
    high: float
    distinct: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """An equi-height histogram; `height` is the rows per bin.

    Each bin begins where the one before ends. A value that fills bins of its own has bins whose
    ends are equal.
    """

    height: float
    bins: tuple[HistogramBin, ...]


def equi_height(partial: ColumnPartial, type: ColumnType, bins: int = BINS) -> Histogram | None:
    """The histogram of a column; None without quantiles, values, or bounds that Spark can use.

    The first bin begins at the column's minimum and the last ends at its maximum exactly as Spark
    reads them, since `FilterEstimation` asserts that both lie inside. Rows that are NaN, which
    Spark orders last, count at the maximum.

    Source: Spark's `AnalyzeColumnCommand`, whose percentiles are the ends of bins, and
        `EstimationUtils.toDouble` for the numeric form.
    """
    minimum, maximum = partial.minimum, partial.maximum
    if partial.quantiles is None or type.kind not in HISTOGRAM_KINDS:
        return None
    if minimum is None or maximum is None or not are_estimable(minimum, maximum):
        return None
    low, high = _numeric(minimum, type), _numeric(maximum, type)
    numbers = partial.values - partial.nans
    if low is None or high is None or numbers <= 0 or not partial.quantiles.count:
        return None
    ranks = [min(1.0, bin * partial.values / (bins * numbers)) for bin in range(1, bins)]
    inner = [_of_quantile(value, type) for value in partial.quantiles.quantiles(ranks)]
    within = (min(max(end, low), high) for end in inner)
    ends = [low, *accumulate(within, max), high]
    height = partial.values / bins
    counts = _distinct_counts(ends, summarize(partial, type).distinct, height, type)
    return Histogram(
        height,
        tuple(HistogramBin(*pair, n) for pair, n in zip(pairwise(ends), counts, strict=True)),
    )


def _numeric(bound: Bound, type: ColumnType) -> float | None:
    """A bound as `EstimationUtils.toDouble` has it: the double of its Java text, or days, micros."""
    if type.kind in (Kind.DATE, Kind.TIMESTAMP):
        return float(bound) if format_bound(bound, type) is not None else None
    text = format_bound(bound, type)
    # Spark's negative zero equals zero, and so does every comparison here.
    return None if text is None else float(text) + 0.0


def _of_quantile(value: float, type: ColumnType) -> float:
    if type.kind is Kind.DECIMAL:
        return float(value / 10**type.scale)
    if type.kind is Kind.FLOAT:
        numeric = _numeric(value, type)
        return value if numeric is None else numeric
    return value


def _distinct_counts(
    ends: Sequence[float], distinct: int, height: float, type: ColumnType
) -> list[int]:
    """Share a column's distinct count over its bins.

    The ends of bins are values themselves. What else there is lies inside of bins, as evenly as
    there is room: a bin holds no more values than rows, and no more than its type has between its
    ends.
    """
    pairs = list(pairwise(ends))
    rooms = [_room(low, high, height, type) if low < high else 0 for low, high in pairs]
    left = max(0, distinct - len(set(ends)))
    inside = [0] * len(pairs)
    order = sorted(range(len(pairs)), key=rooms.__getitem__)
    for place, index in enumerate(order):
        inside[index] = min(rooms[index], -(-left // (len(order) - place)))
        left -= inside[index]
    return [1 if low == high else 2 + n for (low, high), n in zip(pairs, inside, strict=True)]


def _room(low: float, high: float, height: float, type: ColumnType) -> int:
    """How many values may lie between the ends of a bin."""
    rows = int(height)
    if type.kind is Kind.FLOAT:
        return rows
    return max(0, min(rows, round((high - low) * 10**type.scale) - 1))
