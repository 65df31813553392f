"""From a table's statistics to what Spark's optimizer is told about one scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from lancestat.lake.filter import Filter
from lancestat.read.estimate import ColumnEstimate, Estimate
from lancestat.read.settings import Settings
from lancestat.read.survivors import FragmentStatistics, Survivors
from lancestat.read.table import ReadTable
from lancestat.stats.column_type import ColumnType
from lancestat.stats.guard import Verdict
from lancestat.stats.histogram import equi_height
from lancestat.stats.partial import ColumnPartial, summarize
from lancestat.stats.size import decoded_size
from lancestat.stats.wire import PublishedColumn, published_column


def estimate(
    table: ReadTable,
    columns: Sequence[str],
    filters: Sequence[Filter],
    settings: Settings,
    now: datetime,
) -> Estimate:
    """What to tell the optimizer about a scan; it applies the filters to these figures itself.

    Filters that rule out whole fragments narrow everything alike: rows, bounds, nulls and distinct
    counts are those of the fragments that are left. Where the bounds of a filtered column are not
    known in all of them, the figures stay those of the whole table, since a filter estimated
    against the whole table's bounds would otherwise count twice.

    Args:
        table: The table at its version.
        columns: The projected columns.
        filters: A conjunction.
        settings: Of the session and the scan.
        now: An aware instant.
    """
    verdict = table.judge(settings, now)
    survivors = surviving(table, filters)
    is_narrowed = survivors is not None and (survivors.is_known or not verdict.use)
    rows = survivors.rows if survivors is not None and is_narrowed else table.snapshot.rows
    known: FragmentStatistics | Survivors = table.fragments
    if survivors is not None and is_narrowed:
        known = survivors
    found = _columns(table, columns, verdict, known, rows, is_narrowed)
    lengths = {name: column.average_length for name, column in found.items()}
    return Estimate(
        rows=rows,
        size_bytes=decoded_size(
            rows,
            [table.fields[name] for name in columns],
            {name: length for name, length in lengths.items() if length is not None},
        ),
        verdict=verdict,
        columns=found,
        fragment_ids=tuple(survivors.fragment_ids) if survivors is not None else None,
    )


def surviving(table: ReadTable, filters: Sequence[Filter]) -> Survivors | None:
    """The fragments that the filters leave, None for all of them."""
    return table.fragments.survivors(filters) if filters else None


def _columns(
    table: ReadTable,
    columns: Sequence[str],
    verdict: Verdict,
    known: FragmentStatistics | Survivors,
    rows: int,
    is_narrowed: bool,
) -> Mapping[str, ColumnEstimate]:
    if not verdict.use or verdict.statistics is None:
        return {}
    found = {}
    for name in columns:
        column = verdict.statistics.columns.get(name)
        if column is None:
            continue
        type = table.types[name]
        partial = known.partial(name) if is_narrowed or table.histogram else None
        if is_narrowed and partial is not None:
            column = published_column(type, summarize(partial, type))
        elif is_narrowed:
            column = _scaled(column, rows, table.snapshot.rows)
        told = _told(column, type, rows)
        if table.histogram and partial is not None:
            told = _with_histogram(told, partial, type)
        found[name] = told
    return found


def _with_histogram(
    told: ColumnEstimate, partial: ColumnPartial, type: ColumnType
) -> ColumnEstimate:
    """Adds the histogram of a column, if there is one between the bounds that are told.

    Spark's `FilterEstimation` asserts that the bounds lie inside of the histogram; stale ones that
    a policy accepts need not.
    """
    own = published_column(type, summarize(partial, type))
    if told.minimum is None or (own.minimum, own.maximum) != (told.minimum, told.maximum):
        return told
    return replace(told, histogram=equi_height(partial, type))


def _scaled(column: PublishedColumn, rows: int, of: int) -> PublishedColumn:
    """The whole table's statistics for a part of its rows, spread evenly."""
    nulls = None if column.nulls is None or not of else round(column.nulls * rows / of)
    return replace(column, nulls=nulls)


def _told(column: PublishedColumn, type: ColumnType, rows: int) -> ColumnEstimate:
    """What may be said of a column among `rows` rows.

    Of a type whose bounds Spark's `FilterEstimation` uses, a distinct count is told with both
    bounds or not at all: with one and not the other it would estimate that no row is left.
    """
    nulls = None if column.nulls is None else min(column.nulls, rows)
    is_bounded = column.minimum is not None and column.maximum is not None
    distinct = column.distinct if is_bounded or type.is_variable_width else None
    if distinct is not None:
        distinct = min(distinct, rows - (nulls or 0)) or None
    return ColumnEstimate(
        minimum=column.minimum if is_bounded else None,
        maximum=column.maximum if is_bounded else None,
        nulls=nulls,
        distinct=distinct,
        average_length=column.average_length,
        maximum_length=column.maximum_length,
    )
