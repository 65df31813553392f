"""Estimates of one scan for Spark's optimizer: rows, bytes and column statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lancestat.query.predicates.filter import And, Comparison, Filter, Not, Or
from lancestat.query.pruned_fragments import ColumnRange, RemainingFragments
from lancestat.query.table import ReadSettings, ReadTable
from lancestat.tables.manifest.guard import Verdict
from lancestat.tables.manifest.wire import PublishedColumn, column_bounds, published_column
from lancestat.tables.statistics.bound_text import parse_bound
from lancestat.tables.statistics.column_statistics import column_statistics_of
from lancestat.tables.statistics.column_type import ColumnType, decoded_size
from lancestat.tables.statistics.histogram import Histogram as Histogram
from lancestat.tables.statistics.histogram import HistogramBin as HistogramBin
from lancestat.tables.statistics.histogram import equi_height
from lancestat.tables.statistics.partial import ColumnPartial


@dataclass(frozen=True, slots=True)
class ColumnEstimate(PublishedColumn):
    """The estimates of one column for the optimizer, None for those that it is not given."""

    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one scan for the optimizer.

    `size_bytes` is the decoded size of the projected columns. `fragment_ids` are the fragments to
    scan, None for all of them. `sampled_share` is that of the rows which pass the filters that
    Spark does not estimate, None where there are none; `rows` are those that are left then.
    """

    rows: int
    size_bytes: int
    verdict: Verdict
    columns: Mapping[str, ColumnEstimate] = field(default_factory=dict)
    fragment_ids: tuple[int, ...] | None = None
    sampled_share: float | None = None


def estimate(
    table: ReadTable,
    columns: Sequence[str],
    filters: Sequence[Filter],
    settings: ReadSettings,
    now: datetime,
    *,
    is_covered: bool = False,
) -> Estimate:
    """Estimate a scan for the optimizer, which applies the filters to these figures itself.

    Filters that rule out whole fragments narrow everything alike: rows, bounds, nulls and distinct
    counts are those of the fragments that are left. Where the bounds of a filtered column are not
    known in all of them, the figures stay those of the whole table, since a filter estimated
    against the whole table's bounds would otherwise count twice. Filters that Spark takes for true
    of every row are counted in a sample, unless the statistics are refused.

    Args:
        table: The table at its version.
        columns: The projected columns.
        filters: A conjunction.
        settings: Of the session and the scan.
        now: An aware instant.
        is_covered: Every row that the filters leave is known to pass them, and Spark does not apply
            them.
    """
    verdict = table.judge(settings, now)
    left = remaining_fragments(table, filters)
    narrows = left is not None and (is_covered or left.is_known or not verdict.use)
    remaining = left if narrows else None
    whole = table.snapshot.rows if remaining is None else remaining.rows
    share = None
    if verdict.use and settings.samples and table.sampler and not is_covered:
        ids = None if remaining is None else remaining.fragment_ids
        share = table.sampler.share(filters, ids)
    rows = whole if share is None else min(whole, max(1, round(whole * share)))
    estimates = _columns(table, columns, verdict, remaining, whole)
    for name in estimates.keys() & _compared_with_nan(filters):
        # With bounds, Spark's estimation would fail to divide by it.
        estimates[name] = replace(estimates[name], minimum=None, maximum=None, distinct=None)
    if rows < whole:
        estimates = {name: _sampled(column, rows, whole) for name, column in estimates.items()}
    lengths = {name: column.average_length for name, column in estimates.items()}
    return Estimate(
        rows=rows,
        size_bytes=decoded_size(
            rows,
            [table.fields[name] for name in columns],
            {name: length for name, length in lengths.items() if length is not None},
        ),
        verdict=verdict,
        columns={
            name: column
            for name, column in estimates.items()
            if _is_estimated_soundly(column, table.types[name], rows)
        },
        fragment_ids=tuple(left.fragment_ids) if left is not None else None,
        sampled_share=share,
    )


def _compared_with_nan(filters: Sequence[Filter]) -> set[str]:
    """Return the columns that some filter compares with a literal NaN."""
    compared: set[str] = set()
    waiting = list(filters)
    while waiting:
        match waiting.pop():
            case And(left, right) | Or(left, right):
                waiting += [left, right]
            case Not(operand):
                waiting.append(operand)
            case Comparison(column, _, float(literal)) if math.isnan(literal):
                compared.add(column)
    return compared


def remaining_fragments(table: ReadTable, filters: Sequence[Filter]) -> RemainingFragments | None:
    """Return the fragments that the filters leave, None for all of them."""
    return table.fragments.prune(filters) if filters else None


def _columns(
    table: ReadTable,
    columns: Sequence[str],
    verdict: Verdict,
    remaining: RemainingFragments | None,
    rows: int,
) -> dict[str, ColumnEstimate]:
    if not verdict.use or verdict.statistics is None:
        return {}
    published = {
        name: verdict.statistics.columns[name]
        for name in columns
        if name in verdict.statistics.columns
    }
    known = table.fragments if remaining is None else remaining
    asks_for_partials = remaining is not None or table.histogram
    if asks_for_partials:
        table.fragments.load(published)
    estimates = {}
    for name, column in published.items():
        type = table.types[name]
        partial = known.partial(name) if asks_for_partials else None
        if remaining is not None:
            column = _narrowed(column, partial, remaining.range(name), type, rows, table)
        estimated = _capped(column, type, rows)
        if table.histogram and partial is not None:
            estimated = _with_histogram(estimated, partial, type)
        estimates[name] = estimated
    return estimates


def _narrowed(
    column: PublishedColumn,
    partial: ColumnPartial | None,
    range: ColumnRange | None,
    type: ColumnType,
    rows: int,
    table: ReadTable,
) -> PublishedColumn:
    """Return a column over the remaining fragments, from the best that is known of it."""
    if partial is not None:
        return published_column(type, column_statistics_of(partial, type))
    column = _scaled(column, rows, table.snapshot.rows)
    if range is None:
        return column
    bounds = column_bounds(type, range.minimum, range.maximum)
    if bounds is None:
        return replace(column, minimum=None, maximum=None, nulls=range.nulls)
    distinct = column.distinct
    if distinct is not None:
        distinct = max(1, round(distinct * _share(column, range, type)))
    return replace(
        column, minimum=bounds[0], maximum=bounds[1], nulls=range.nulls, distinct=distinct
    )


def _share(column: PublishedColumn, range: ColumnRange, type: ColumnType) -> float:
    """Return the share of the width between the whole table's bounds that a range takes."""
    if column.minimum is None or column.maximum is None:
        return 1.0
    low, high = parse_bound(column.minimum, type), parse_bound(column.maximum, type)
    if low is None or high is None or not high > low:
        return 1.0
    assert not isinstance(range.minimum, bytes | None)
    assert not isinstance(range.maximum, bytes | None)
    return min(1.0, float(range.maximum - range.minimum) / float(high - low))


def _with_histogram(
    estimated: ColumnEstimate, partial: ColumnPartial, type: ColumnType
) -> ColumnEstimate:
    """Add the histogram of a column, if it has one between the estimated bounds.

    Spark's `FilterEstimation` asserts that the bounds lie inside of the histogram; stale ones that
    a policy accepts need not.
    """
    own = published_column(type, column_statistics_of(partial, type))
    if estimated.minimum is None or (own.minimum, own.maximum) != (
        estimated.minimum,
        estimated.maximum,
    ):
        return estimated
    return replace(estimated, histogram=equi_height(partial, type))


def _sampled(column: ColumnEstimate, rows: int, total: int) -> ColumnEstimate:
    """A column in those rows of a scan that a sample says pass its filters."""
    values = _with_row_counts(column, lambda counted: round(counted * rows / total))
    values["distinct"] = _possible_distinct(values, rows)
    histogram = column.histogram
    if histogram is not None:
        histogram = replace(histogram, height=histogram.height * rows / total)
    return ColumnEstimate(**values, histogram=histogram)


def _scaled(column: PublishedColumn, rows: int, total: int) -> PublishedColumn:
    """The whole table's statistics for a part of its rows, spread evenly."""
    return PublishedColumn(
        **_with_row_counts(column, lambda counted: round(counted * rows / total) if total else None)
    )


def _capped(column: PublishedColumn, type: ColumnType, rows: int) -> ColumnEstimate:
    """Return the estimate of a column among `rows` rows.

    Of a type whose bounds Spark's `FilterEstimation` uses, a distinct count comes with both
    bounds or not at all: with only one of them it would estimate that no row is left.
    """
    values = _with_row_counts(column, lambda counted: min(counted, rows))
    values["distinct"] = _possible_distinct(values, rows)
    if column.minimum is None or column.maximum is None:
        values |= {"minimum": None, "maximum": None}
        if not type.is_variable_width:
            values["distinct"] = None
    return ColumnEstimate(**values)


def _is_estimated_soundly(column: ColumnEstimate, type: ColumnType, rows: int) -> bool:
    """Whether Spark estimates filters on a column by these statistics no worse than without them.

    Of a type whose bounds `FilterEstimation` uses, values without bounds are none to Spark before
    4.2: it would estimate that no row equals anything.
    """
    has_bounds = column.minimum is not None and column.maximum is not None
    return type.is_variable_width or has_bounds or column.nulls == rows


def _with_row_counts(
    column: PublishedColumn, change: Callable[[int], int | None]
) -> dict[str, Any]:
    """Return the values by name, with `change` applied to those that count rows."""
    return {
        statistic.name: change(value) if statistic.counts_rows and value is not None else value
        for statistic, value in column.items()
    }


def _possible_distinct(values: Mapping[str, Any], rows: int) -> int | None:
    """Return the distinct count, at most the rows that are not null; None where there are none."""
    if values["distinct"] is None:
        return None
    return min(values["distinct"], rows - (values["nulls"] or 0)) or None
