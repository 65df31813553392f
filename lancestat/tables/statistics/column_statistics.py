"""From a merged partial to the statistics of a column, each declared once, and its histogram."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

from lancestat.formats import count
from lancestat.tables.statistics.bounds import Bound, next_characters, whole_characters
from lancestat.tables.statistics.column_type import ColumnType, Kind, are_estimable, format_bound
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.sketches import QuantileSketch

ALL_KINDS = frozenset(Kind)
# Spark uses no bounds of strings and binary.
BOUNDED_KINDS = ALL_KINDS - {Kind.STRING, Kind.BINARY}


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of a column: how it is computed, named, published and shown.

    Attributes:
        key: Its suffix in the wire format of the Lance Spark connector.
        label: Its name in tables for people, with `~` where it is an estimate.
        compute: Makes the value of a merged partial, None where it is not known.
        type: The type of its published value: `str` for a bound, which is a value of the column in
            Spark's spelling; `int` for a count, which is not below zero.
        scales_with_rows: Whether it shrinks with the rows when fewer are read, as a count of rows.
        kinds: The kinds of columns for which it is published.
        name: The field of `ColumnStatistics` that declares it.
    """

    key: str
    label: str
    compute: Callable[[ColumnPartial, ColumnType], Bound | None]
    type: type = int
    scales_with_rows: bool = False
    kinds: frozenset[Kind] = ALL_KINDS
    name: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether it is a value of the column."""
        return self.type is str

    @property
    def sql_name(self) -> str:
        """Its key in JSON and its column in SQL and CSV: `null_count` for `nullCount`."""
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.key)

    def of(self, column: ColumnStatistics[Any]) -> Any:
        """Return its value, an integer or a bound, None where it is not known."""
        return getattr(column, self.name)

    def text(self, value: Any) -> str:
        """Return a value of it for people, empty where it is not known.

        An empty string, which would look as if it were not known, is two quotes.
        """
        if value is None:
            return ""
        return count(value) if self.type is int else str(value) or '""'


# Spark orders NaN above every number. With the numbers' maximum as bound its estimates would leave
# NaN out, and with NaN as bound planning fails.
def _minimum(partial: ColumnPartial, type: ColumnType) -> Bound | None:
    if partial.nans:
        return None
    if type.kind is not Kind.STRING:
        return partial.minimum
    return whole_characters(partial.minimum) if isinstance(partial.minimum, bytes) else None


def _maximum(partial: ColumnPartial, type: ColumnType) -> Bound | None:
    if partial.nans:
        return None
    if type.kind is not Kind.STRING:
        return partial.maximum
    return next_characters(partial.maximum) if isinstance(partial.maximum, bytes) else None


def _average_length(partial: ColumnPartial, type: ColumnType) -> int:
    if not type.is_variable_width or not partial.values:
        return type.default_size
    is_text = type.kind is Kind.STRING
    total = partial.total_characters if is_text else partial.total_bytes
    return -(-total // partial.values)


def _maximum_length(partial: ColumnPartial, type: ColumnType) -> int:
    if not type.is_variable_width or not partial.values:
        return type.default_size
    return partial.max_characters if type.kind is Kind.STRING else partial.max_bytes


B = TypeVar("B", covariant=True)


@dataclass(frozen=True, slots=True)
class ColumnStatistics(Generic[B]):
    """The statistics of one column, None where not known; `B` is the form of its bounds.

    Lengths are in bytes, except that Spark's own lengths of strings count code points, and so do
    these. The order is that of tables for people.
    """

    nulls: int | None = field(
        default=None,
        metadata={
            "statistic": Statistic(
                "nullCount", "nulls", lambda partial, _: partial.nulls, scales_with_rows=True
            )
        },
    )
    distinct: int | None = field(
        default=None,
        metadata={
            "statistic": Statistic(
                "distinctCount", "distinct ~", lambda partial, _: partial.distinct
            )
        },
    )
    minimum: B | None = field(
        default=None,
        metadata={"statistic": Statistic("min", "min", _minimum, type=str, kinds=BOUNDED_KINDS)},
    )
    maximum: B | None = field(
        default=None,
        metadata={"statistic": Statistic("max", "max", _maximum, type=str, kinds=BOUNDED_KINDS)},
    )
    average_length: int | None = field(
        default=None,
        metadata={"statistic": Statistic("avgLen", "avg length", _average_length)},
    )
    maximum_length: int | None = field(
        default=None,
        metadata={"statistic": Statistic("maxLen", "max length", _maximum_length)},
    )

    def items(self) -> Iterator[tuple[Statistic, Any]]:
        """Yield all statistics with their values, in the order of tables for people."""
        return ((statistic, statistic.of(self)) for statistic in STATISTICS)

    def to_json(self) -> dict[str, Any]:
        """Return the values by their keys in JSON, bounds first."""
        return {statistic.sql_name: statistic.of(self) for statistic in BOUNDS_FIRST}


STATISTICS: tuple[Statistic, ...] = tuple(
    replace(declared.metadata["statistic"], name=declared.name)
    for declared in fields(ColumnStatistics)
)
# The order of JSON, CSV and SQL.
BOUNDS_FIRST = tuple(sorted(STATISTICS, key=lambda statistic: not statistic.is_bound))


def column_statistics_of(partial: ColumnPartial, type: ColumnType) -> ColumnStatistics[Bound]:
    """Return what Spark's `CommandUtils.computeColumnStats` would give for the same rows.

    Two things differ: the distinct count is closer to the truth, and where there are NaN, which in
    Spark is the largest value, there are no bounds. Strings and binary have bounds here and none in
    Spark; those of strings are valid UTF-8.
    """
    values = {statistic.name: statistic.compute(partial, type) for statistic in STATISTICS}
    return ColumnStatistics(**values)  # type: ignore[arg-type]


# Spark makes histograms of numbers, dates and timestamps.
_TEMPORAL_KINDS = frozenset((Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME))
HISTOGRAM_KINDS = _TEMPORAL_KINDS | {Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL}

# The default of `spark.sql.statistics.histogram.numBins`.
BINS = 254


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """The values from `low` to `high`, both included, in Spark's numeric form of the type.

    `distinct` is their estimated number, at least 1.
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


# Every query of a session needs the same ones, and each takes milliseconds to compute.
@lru_cache(maxsize=256)
def equi_height(partial: ColumnPartial, type: ColumnType, bins: int = BINS) -> Histogram | None:
    """Return the histogram of a column; None without quantiles, values, or usable bounds.

    The first bin begins at the column's minimum and the last ends at its maximum as Spark reads
    them, since `FilterEstimation` asserts that both lie inside. Rows that are NaN, which Spark
    orders last, count at the maximum.

    Source: Spark's `AnalyzeColumnCommand`, whose percentiles are the ends of bins, and
        `EstimationUtils.toDouble` for the numeric form.
    """
    minimum, maximum, quantiles = partial.minimum, partial.maximum, partial.quantiles
    if quantiles is None or type.kind not in HISTOGRAM_KINDS or not quantiles.count:
        return None
    if minimum is None or maximum is None or not are_estimable(minimum, maximum):
        return None
    lowest, highest = _numeric(minimum, type), _numeric(maximum, type)
    if lowest is None or highest is None:
        return None
    low, high = lowest - _doubt(minimum, type), highest + _doubt(maximum, type)
    numbers = partial.values - partial.nans
    ranks = [min(1.0, bin * partial.values / (bins * numbers)) for bin in range(1, bins)]
    values = [float(minimum), *quantiles.quantiles(ranks), float(maximum)]
    within = (min(max(_of_quantile(value, type), low), high) for value in values[1:-1])
    ends = [low, *accumulate(within, max), high]
    height = partial.values / bins
    counts = _distinct_counts(
        ends,
        *_inside(values, quantiles),
        partial.distinct,
        [_capacity(*pair, height, type) for pair in pairwise(ends)],
    )
    made = zip(ends, ends[1:], counts, strict=False)
    return Histogram(height, tuple(HistogramBin(*values) for values in made))


def _numeric(bound: Bound, type: ColumnType) -> float | None:
    """Return a bound as `EstimationUtils.toDouble` does: of Java text, days or microseconds."""
    text = format_bound(bound, type)
    if text is None or type.kind in _TEMPORAL_KINDS:
        return None if text is None else float(bound)
    # Spark's negative zero equals zero, and so does every comparison here.
    return float(text) + 0.0


def _doubt(bound: Bound, type: ColumnType) -> float:
    """Return a bound on the difference of Spark's double of a bound from ours, 0 but for floats.

    Spark takes theirs from Java's text, which may be any that rounds to the float: the shortest is
    what Java prints only from version 19 on (JDK-4511638).
    """
    if type.spark_type != "float":
        return 0.0
    import numpy as np

    single = np.float32(bound)
    gap = float(np.abs(single - np.nextafter(single, np.float32(0))))
    return gap or 2.0**-149


def _of_quantile(value: float, type: ColumnType) -> float:
    if type.kind is Kind.DECIMAL:
        return float(value / 10**type.scale)
    if type.spark_type == "float":
        return _numeric(value, type) or 0.0
    return value + 0.0


def _inside(ends: Sequence[float], quantiles: QuantileSketch) -> tuple[list[int], list[float]]:
    """Return what the sketch has between the ends of each bin.

    Returns:
        How many values it kept several times; and the rows of all others, and of one more that it
        might have kept.
    """
    import numpy as np

    values, weights = quantiles.samples()
    values, indices, times = np.unique(values, return_inverse=True, return_counts=True)
    rows = np.bincount(indices, weights)
    bins = np.searchsorted(ends, values, side="right") - 1
    within = (bins >= 0) & (bins < len(ends) - 1) & ~np.isin(values, ends)
    is_frequent = within & (times > 1)
    is_rare = within & (times == 1)
    frequent = np.bincount(bins[is_frequent], minlength=len(ends) - 1)
    rare_rows = np.zeros(len(ends) - 1) + rows.sum() / times.sum()
    np.add.at(rare_rows, bins[is_rare], rows[is_rare])
    return frequent.tolist(), rare_rows.tolist()


def _distinct_counts(
    ends: Sequence[float],
    frequent: Sequence[int],
    rare_rows: Sequence[float],
    distinct: int,
    capacities: Sequence[int],
) -> list[int]:
    """Share a column's distinct count over its bins.

    The ends of bins are values themselves, and so is what the sketch kept several times. All other
    values are shared out by the rows that hold them, as if each had equally many, up to the
    capacity of each bin.
    """
    counts = [min(pair) for pair in zip(frequent, capacities, strict=True)]
    left = max(0, distinct - len(set(ends)) - sum(counts))
    rare_left = sum(rare_rows)
    free = [capacity - count for capacity, count in zip(capacities, counts, strict=True)]
    for index in sorted(range(len(free)), key=lambda index: free[index] / rare_rows[index]):
        share = min(free[index], round(left * min(1.0, rare_rows[index] / rare_left)))
        counts[index] += share
        left -= share
        rare_left -= rare_rows[index]
    return [
        1 if low == high else 2 + count
        for (low, high), count in zip(pairwise(ends), counts, strict=True)
    ]


def _capacity(low: float, high: float, height: float, type: ColumnType) -> int:
    """Return the most values between the ends of a bin: no more than rows, or than the type has."""
    if low == high:
        return 0
    rows = int(height)
    if type.kind is Kind.FLOAT:
        return rows
    return max(0, min(rows, round((high - low) * 10.0**type.scale) - 1))
