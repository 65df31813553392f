"""What Spark's optimizer is told about one scan of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancestat.stats.guard import Verdict
from lancestat.stats.histogram import Histogram as Histogram
from lancestat.stats.histogram import HistogramBin as HistogramBin


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """One column; None is not told. Bounds are in the strings of Spark's `CatalogColumnStat`."""

    minimum: str | None = None
    maximum: str | None = None
    nulls: int | None = None
    distinct: int | None = None
    average_length: int | None = None
    maximum_length: int | None = None
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one scan reads, as told to the optimizer.

    `size_bytes` is the decoded size of the projected columns. `fragment_ids` are the fragments to
    scan, None for all of them. `sampled_share` is that of the rows which pass the filters that
    Spark does not estimate, None where there are none; `rows` are what is left then.
    """

    rows: int
    size_bytes: int
    verdict: Verdict
    columns: Mapping[str, ColumnEstimate] = field(default_factory=dict)
    fragment_ids: tuple[int, ...] | None = None
    sampled_share: float | None = None
