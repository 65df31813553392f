"""The answers to Spark's optimizer about one scan: estimates, aggregates, and their explanation.

A count of rows comes from the manifest. Other aggregates are answered from the partials of the
state, which are known to describe the content of the fragments at the version that is read: their
fingerprints are equal. The statistics in a manifest answer no aggregate. Their tag says for which
version they are meant, and proves neither who computed them nor from which rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lancestat.formats import StringEnum, count
from lancestat.query.fragments import ColumnRange, FragmentStatistics, RemainingFragments
from lancestat.query.predicates.filter import Comparison, Filter, columns_of, leaves
from lancestat.query.table import PUSHDOWN, ReadSettings, ReadTable
from lancestat.tables.judgement import Verdict
from lancestat.tables.statistics.bounds import BOUND_BYTES, Bound
from lancestat.tables.statistics.column_statistics import Histogram as Histogram
from lancestat.tables.statistics.column_statistics import HistogramBin as HistogramBin
from lancestat.tables.statistics.column_statistics import column_statistics_of, equi_height
from lancestat.tables.statistics.column_type import (
    DAY_MICROS,
    ColumnType,
    Kind,
    decoded_size,
    parse_bound,
)
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial
from lancestat.tables.wire import PublishedColumn, column_bounds, published_column


@dataclass(frozen=True, slots=True)
class ColumnEstimate(PublishedColumn):
    """The estimates of one column for the optimizer, None for those that it is not given."""

    histogram: Histogram | None = None

    def sampled(self, rows: int, total: int) -> ColumnEstimate:
        """Return the estimates for those rows of a scan that a sample says pass its filters."""
        values = self.with_row_counts(lambda counted: round(counted * rows / total))
        values["distinct"] = _possible_distinct(values, rows)
        histogram = self.histogram
        if histogram is not None:
            histogram = replace(histogram, height=histogram.height * rows / total)
        return ColumnEstimate(**values, histogram=histogram)


def estimate(
    table: ReadTable,
    columns: Sequence[str],
    filters: Sequence[Filter],
    settings: ReadSettings,
    now: datetime,
    *,
    is_covered: bool = False,
) -> Explanation:
    """Estimate a scan for the optimizer, which applies the filters to these figures itself.

    Filters that rule out whole fragments narrow rows, bounds, nulls and distinct counts to those of
    the remaining fragments. Where the bounds of a filtered column are not known in all of these,
    the figures stay those of the whole table, since the filter would otherwise count twice. The
    selectivity of filters that Spark does not estimate is sampled, unless the statistics are
    refused. Histograms are for sessions without estimates of whole plans: Spark takes minutes to
    join them with each other.

    Args:
        table: The table at its version.
        columns: The projected columns.
        filters: A conjunction.
        settings: Of the session and the scan.
        now: An aware instant.
        is_covered: Every remaining row is known to pass the filters, and Spark does not apply them.
    """
    verdict = table.verdict(settings, now)
    left = remaining_fragments(table, filters)
    narrows = left is not None and (is_covered or left.is_known or not verdict.use)
    remaining = left if narrows else None
    whole = table.snapshot.rows if remaining is None else remaining.rows
    share = None
    if verdict.use and settings.samples and table.sampler and not is_covered:
        ids = None if remaining is None else remaining.fragment_ids
        share = table.sampler.share(filters, ids)
    rows = whole if share is None else min(whole, max(1, round(whole * share)))
    estimates = column_estimates(
        table, columns, verdict, remaining, whole, histograms=not settings.estimates
    )
    for name in estimates.keys() & _compared_with_nan(filters):
        # With bounds, Spark's estimation would fail to divide by it.
        estimates[name] = replace(estimates[name], minimum=None, maximum=None, distinct=None)
    if rows < whole:
        estimates = {name: column.sampled(rows, whole) for name, column in estimates.items()}
    lengths = {name: column.average_length for name, column in estimates.items()}
    known = {name: length for name, length in lengths.items() if length is not None}
    size_bytes = decoded_size(rows, [table.fields[name] for name in columns], known)
    made = explained(table, rows, size_bytes, verdict, None if left is None else left.fragment_ids)
    # Of a type whose bounds `FilterEstimation` uses, values without bounds are none to Spark before
    # 4.2: it would estimate that no row equals anything.
    sound = {
        name: column
        for name, column in estimates.items()
        if table.types[name].is_variable_width
        or (column.minimum is not None and column.maximum is not None)
        or column.nulls == rows
    }
    return replace(made, columns=sound, sampled_share=share)


def _compared_with_nan(filters: Sequence[Filter]) -> set[str]:
    compared: set[str] = set()
    for leaf in (leaf for filter in filters for leaf in leaves(filter)):
        match leaf:
            case Comparison(column, _, float(literal)) if math.isnan(literal):
                compared.add(column)
    return compared


def remaining_fragments(table: ReadTable, filters: Sequence[Filter]) -> RemainingFragments | None:
    """Return the fragments that the filters leave, None for all of them."""
    return table.fragments.prune(filters) if filters else None


def column_estimates(
    table: ReadTable,
    columns: Sequence[str],
    verdict: Verdict,
    remaining: RemainingFragments | None,
    rows: int,
    *,
    histograms: bool = False,
) -> dict[str, ColumnEstimate]:
    """Return the estimates of columns in all rows, or in the `rows` of the remaining fragments."""
    if not verdict.use or verdict.statistics is None:
        return {}
    published = {
        name: verdict.statistics.columns[name]
        for name in columns
        if name in verdict.statistics.columns
    }
    known = table.fragments if remaining is None else remaining
    has_histograms = histograms and table.histogram
    asks_for_partials = remaining is not None or has_histograms
    if asks_for_partials:
        table.fragments.load(published)
    estimates = {}
    for name, column in published.items():
        type = table.types[name]
        partial = known.partial(name) if asks_for_partials else None
        if remaining is not None:
            column = _narrowed(column, partial, remaining.range(name), type, rows, table)
        estimated = _capped(column, type, rows)
        if has_histograms and partial is not None:
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
    # The whole table's statistics for a part of its rows, spread evenly.
    total = table.snapshot.rows
    column = PublishedColumn(
        **column.with_row_counts(lambda counted: round(counted * rows / total) if total else None)
    )
    if range is None:
        return column
    low, high, nulls = range
    bounds = column_bounds(type, low, high)
    if bounds is None:
        return replace(column, minimum=None, maximum=None, nulls=nulls)
    distinct = column.distinct
    if distinct is not None:
        distinct = max(1, round(distinct * _share(column, low, high, type)))
    return replace(column, minimum=bounds[0], maximum=bounds[1], nulls=nulls, distinct=distinct)


def _share(column: PublishedColumn, least: Any, greatest: Any, type: ColumnType) -> float:
    """Return the share of the width between the whole table's bounds that a range takes."""
    if column.minimum is None or column.maximum is None:
        return 1.0
    low, high = parse_bound(column.minimum, type), parse_bound(column.maximum, type)
    if low is None or high is None or not high > low:
        return 1.0
    return min(1.0, float(greatest - least) / float(high - low))


def _with_histogram(
    estimated: ColumnEstimate, partial: ColumnPartial, type: ColumnType
) -> ColumnEstimate:
    """Add the histogram of a column if its bounds are the estimated ones.

    Spark's `FilterEstimation` asserts that the bounds lie inside the histogram; stale ones that a
    policy accepts may not.
    """
    own = published_column(type, column_statistics_of(partial, type))
    if estimated.minimum is None or (own.minimum, own.maximum) != (
        estimated.minimum,
        estimated.maximum,
    ):
        return estimated
    return replace(estimated, histogram=equi_height(partial, type))


def _capped(column: PublishedColumn, type: ColumnType, rows: int) -> ColumnEstimate:
    """Return the estimate of a column among `rows` rows.

    Of a type whose bounds Spark's `FilterEstimation` uses, a distinct count comes with both
    bounds or not at all: with only one of them it would estimate that no row is left.
    """
    # Whatever else scales with rows, as a sum, is not a count of them.
    values = column.with_row_counts(
        lambda value: min(value, rows) if isinstance(value, int) else value
    )
    values["distinct"] = _possible_distinct(values, rows)
    if column.minimum is None or column.maximum is None:
        values |= {"minimum": None, "maximum": None}
        if not type.is_variable_width:
            values["distinct"] = None
    return ColumnEstimate(**values)


def _possible_distinct(values: Mapping[str, Any], rows: int) -> int | None:
    """Return the distinct count, at most the rows that are not null; None where there are none."""
    if values["distinct"] is None:
        return None
    return min(values["distinct"], rows - (values["nulls"] or 0)) or None


class PruningReason(StringEnum):
    """The reasons why fragments are ruled out, or none is; the spelling is a contract."""

    RULED_OUT = "ruled_out"
    NO_FILTERS = "no_filters"
    UNKNOWN_FILTERS = "unknown_filters"
    NO_STATISTICS = "no_statistics"
    UNKNOWN_COLUMNS = "unknown_columns"
    ALL_MATCH = "all_match"


@dataclass(frozen=True, slots=True)
class Pruning:
    """The decision on the fragments of a scan; `detail` is the reason in words."""

    reason: PruningReason
    detail: str

    @property
    def use(self) -> bool:
        """Whether some fragments are not read."""
        return self.reason is PruningReason.RULED_OUT


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer to the optimizer: the verdict on the statistics, and the estimates.

    `rows` and `size_bytes` are estimates for the fragments that are left of all `fragments`:
    `rows` that remain after filters that Spark does not estimate, `size_bytes` decoded of the
    projected columns. `columns` are empty where the verdict refuses. `fragment_ids` are the
    fragments to scan, None for all of them; `sampled_share` is the share of rows that pass filters
    that Spark does not estimate, None without any. `filters` are the pushed conditions as text, and
    `other_filters` those that only Spark knows; `is_covered` means that every remaining row is
    known to pass all of them, so that Spark does not apply them. `table_rows` is the live row count
    of the version, None when it was not counted. `pruning` and `aggregates` are None where they
    were not considered.
    """

    table: str
    version: int
    rows: int
    size_bytes: int
    verdict: Verdict
    columns: Mapping[str, ColumnEstimate] = field(default_factory=dict)
    fragments: int = 0
    fragment_ids: Sequence[int] | None = None
    filters: tuple[str, ...] = ()
    table_rows: int | None = None
    other_filters: tuple[str, ...] = ()
    is_covered: bool = False
    pruning: Pruning | None = None
    aggregates: PushDown | None = None
    sampled_share: float | None = None

    @property
    def fragments_scanned(self) -> int:
        """The number of fragments to scan."""
        return self.fragments if self.fragment_ids is None else len(self.fragment_ids)


def explained(
    table: ReadTable, rows: int, size_bytes: int, verdict: Verdict, ids: Sequence[int] | None
) -> Explanation:
    """Return the explanation of a scan of some fragments, or of all, so far without columns."""
    now = table.snapshot
    return Explanation(
        table=table.name,
        version=now.version,
        rows=rows,
        size_bytes=size_bytes,
        verdict=verdict,
        fragments=len(now.fragments),
        fragment_ids=None if ids is None else tuple(ids),
        table_rows=now.rows,
    )


def pruning_of(
    table: ReadTable,
    filters: Sequence[Filter],
    others: Sequence[str],
    left: Collection[int] | None,
) -> Pruning:
    """Return why a scan reads the fragments that it reads.

    Args:
        table: The table at its version.
        filters: A conjunction.
        others: Filters that lancestat does not know, in Spark's SQL.
        left: The remaining fragments, None for all of them.
    """
    if left is not None:
        fragments = len(table.snapshot.fragments)
        ruled_out = count(fragments - len(left))
        detail = f"the filters rule out {ruled_out} of {count(fragments, 'fragment')}"
        return Pruning(PruningReason.RULED_OUT, detail)
    if not filters and not others:
        return Pruning(PruningReason.NO_FILTERS, "the scan has no filters")
    if not filters:
        what = f"lancestat does not know the kind of filter: {', '.join(others)}"
        return Pruning(PruningReason.UNKNOWN_FILTERS, what)
    if table.fragments.is_empty:
        what = "neither a state nor a zone map knows the fragments"
        return Pruning(PruningReason.NO_STATISTICS, what)
    names = sorted(set().union(*map(columns_of, filters)))
    unknown = [f"'{name}'" for name in names if not table.fragments.knows(name)]
    if unknown:
        what = f"no fragment has known bounds of {', '.join(unknown)}"
        return Pruning(PruningReason.UNKNOWN_COLUMNS, what)
    return Pruning(PruningReason.ALL_MATCH, "every fragment may hold a row that passes")


class Function(StringEnum):
    """The aggregate functions that are answered."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows that a scan selects; a count of no column counts rows."""

    function: Function
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function.value}({'*' if self.column is None else self.column})"


class PushDownReason(StringEnum):
    """The reasons why aggregates are answered, or left to Spark; the spelling is a contract."""

    EXACT = "exact"
    DISABLED = "disabled"
    GROUPED = "grouped"
    FILTERED = "filtered"
    UNSUPPORTED = "unsupported"
    UNPROVEN = "unproven"
    INEXACT = "inexact"


@dataclass(frozen=True, slots=True)
class PushDown:
    """The decision on the aggregates of a scan; `functions` are their names, empty where not known.

    `values` are the answers in the order of the aggregates, empty where Spark computes them. They
    are stored as bounds are: dates in days, timestamps and times of day in microseconds, unscaled
    decimals, strings and binary as bytes; None is null.
    """

    reason: PushDownReason
    detail: str
    functions: tuple[str, ...] = ()
    values: tuple[Bound | None, ...] = ()

    @property
    def use(self) -> bool:
        """Whether the aggregates are answered."""
        return self.reason is PushDownReason.EXACT


class _Unknown(Exception):  # noqa: N818 - no error: the aggregates are left to Spark
    """An answer that is not known exactly."""

    def __init__(self, reason: PushDownReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def push_down(
    table: ReadTable,
    aggregates: Sequence[Aggregate],
    filters: Sequence[Filter],
    settings: ReadSettings,
) -> PushDown:
    """Answer all aggregates over the rows that pass a conjunction of filters, or none of them.

    `aggregates` is not empty, and the table has their columns.
    """
    functions = tuple(map(str, aggregates))
    try:
        return PushDown(
            PushDownReason.EXACT,
            f"known of every fragment of version {table.snapshot.version}",
            functions,
            _answers(table, aggregates, filters, settings),
        )
    except _Unknown as unknown:
        return PushDown(unknown.reason, unknown.detail, functions)


def _answers(
    table: ReadTable,
    aggregates: Sequence[Aggregate],
    filters: Sequence[Filter],
    settings: ReadSettings,
) -> tuple[Bound | None, ...]:
    if not settings.pushdown:
        raise _Unknown(PushDownReason.DISABLED, f"{PUSHDOWN} is false")
    if filters and not table.fragments.covers(filters):
        raise _Unknown(PushDownReason.FILTERED, "the filters may select parts of fragments")
    remaining = remaining_fragments(table, filters)
    rows = table.snapshot.rows if remaining is None else remaining.rows
    names = dict.fromkeys(a.column for a in aggregates if a.column is not None)
    partials: Mapping[str, ColumnPartial] = dict.fromkeys(names, EMPTY_PARTIAL)
    if rows and names:
        partials = _partials(table, remaining, names, rows)
    return tuple(
        rows
        if aggregate.column is None
        else _answer(aggregate, partials[aggregate.column], table.types.get(aggregate.column))
        for aggregate in aggregates
    )


def _partials(
    table: ReadTable, remaining: RemainingFragments | None, names: Iterable[str], rows: int
) -> Mapping[str, ColumnPartial]:
    names = list(names)
    known: FragmentStatistics | RemainingFragments = remaining or table.fragments
    table.fragments.load(name for name in names if name in table.types)
    partials = {}
    for name in names:
        type = table.types.get(name)
        if type is None:
            what = f"columns of the type of '{name}' have no statistics"
            raise _Unknown(PushDownReason.UNSUPPORTED, what)
        partial = known.partial(name)
        if partial is None or partial.rows != rows:
            what = f"no state knows the content of '{name}' in all fragments of this version"
            raise _Unknown(PushDownReason.UNPROVEN, what)
        if not _fits(partial, type):
            # A query that reads them fails, and has to fail.
            what = f"'{name}' has values that Spark's {type.spark_type} cannot hold"
            raise _Unknown(PushDownReason.INEXACT, what)
        partials[name] = partial
    return partials


def _fits(partial: ColumnPartial, type: ColumnType) -> bool:
    low, high = partial.minimum, partial.maximum
    if not isinstance(low, int) or not isinstance(high, int) or type.kind is Kind.BOOLEAN:
        return True
    if type.kind is Kind.DECIMAL:
        digits = int(type.spark_type.removeprefix("decimal(").partition(",")[0])
        return bool(max(abs(low), abs(high)) < 10**digits)
    if type.kind is Kind.TIME:
        return bool(low >= 0 and high < DAY_MICROS)
    end = 1 << (8 * type.default_size - 1)
    return bool(-end <= low and high < end)


def _answer(aggregate: Aggregate, partial: ColumnPartial, type: ColumnType | None) -> Bound | None:
    """Return the answer as Spark orders values: NaN is the greatest."""
    if aggregate.function is Function.COUNT:
        return partial.values
    if partial.values == 0:
        return None
    assert type is not None, "a column without a type has no partial"
    is_min = aggregate.function is Function.MIN
    bound = partial.minimum if is_min else partial.maximum
    if partial.nans and (not is_min or partial.nans == partial.values):
        return math.nan
    if type.kind is Kind.FLOAT and bound == 0:
        what = f"the {aggregate} is a zero, of which the sign is not known"
        raise _Unknown(PushDownReason.INEXACT, what)
    if type.is_variable_width and partial.max_bytes > BOUND_BYTES:
        what = f"'{aggregate.column}' has values of more than {BOUND_BYTES} bytes"
        raise _Unknown(PushDownReason.INEXACT, what)
    if bound is None:
        raise _Unknown(PushDownReason.INEXACT, f"the {aggregate} is not known")
    return bound
