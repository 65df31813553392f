"""Statistics by group of fragments, compared with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.query.fragments import ColumnRange, FragmentStatistics, RemainingFragments
from lancestat.query.predicates.filter import Filter, columns_of
from lancestat.tables.statistics.bounds import lower_bound, upper_bound
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import ColumnPartial
from tests.query.values import holds


def one_pass(dataset: lance.LanceDataset, ids: Sequence[int] | None) -> dict[str, ColumnPartial]:
    """Partials of all columns over some fragments, all when None, without fragments or state."""
    schema = pa.schema([field for field in dataset.schema if column_type(field.type)])
    fragments = [dataset.get_fragment(id) for id in ids] if ids is not None else None
    scanner = dataset.scanner(columns=schema.names, fragments=fragments)
    return analyze([] if ids == () else scanner.to_batches(), schema)


def without_quantiles(partial: ColumnPartial | None) -> ColumnPartial | None:
    """Return the partial without quantiles, as `one_pass` computes it."""
    return None if partial is None else replace(partial, quantiles=None)


def check_whole(known: FragmentStatistics, dataset: lance.LanceDataset) -> None:
    """Check that merged groups equal one pass over the table."""
    expected = one_pass(dataset, None) if dataset.get_fragments() else {}
    assert {name: known.partial(name) for name in expected} == expected


def check_filter(
    known: FragmentStatistics, dataset: lance.LanceDataset, filters: Sequence[Filter]
) -> RemainingFragments | None:
    """Check that every matching row is in a remaining fragment, and partials by their rows.

    Where all rows of these are said to pass, they do.
    """
    left = known.prune(filters)
    check_covered(known, dataset, filters, left)
    if left is None:
        return None
    every = {fragment.fragment_id for fragment in dataset.get_fragments()}
    assert list(left.fragment_ids) == sorted(left.fragment_ids)
    assert set(left.fragment_ids) < every
    columns = sorted(set().union(*map(columns_of, filters)))
    for gone in every - set(left.fragment_ids):
        for row in rows_of(dataset.get_fragment(gone).to_table(columns=columns)):
            assert not all(holds(filter, row) is True for filter in filters), (filters, row)
    ids = tuple(left.fragment_ids)
    assert left.rows == sum(dataset.get_fragment(id).count_rows() for id in ids)
    for name, expected in one_pass(dataset, ids).items():
        partial, range = without_quantiles(left.partial(name)), left.range(name)
        assert partial in (None, expected), name
        if range is not None:
            check_range(range, expected)
        knows = partial is not None or range is not None
        assert knows or not left.is_known or name not in columns
    return left


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Spark has them, whose times are microseconds."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            floored = pc.floor_temporal(table.column(index), unit="microsecond")
            coarse = floored.cast(pa.timestamp("us", field.type.tz))
            table = table.set_column(index, field.name, coarse)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def check_covered(
    known: FragmentStatistics,
    dataset: lance.LanceDataset,
    filters: Sequence[Filter],
    left: RemainingFragments | None,
) -> None:
    """Check that every row of the remaining fragments passes, if that is said to be known."""
    if not known.covers(filters):
        return
    columns = sorted(set().union(*map(columns_of, filters)))
    for fragment in dataset.get_fragments():
        if left is None or fragment.fragment_id in left.fragment_ids:
            for row in rows_of(fragment.to_table(columns=columns)):
                assert all(holds(filter, row) is True for filter in filters), (filters, row)


def check_range(range: ColumnRange, rows: ColumnPartial) -> None:
    """Check that a range encloses the rows; bounds of text and bytes are shortened."""
    low, high, nulls = range
    assert nulls >= rows.nulls
    if isinstance(low, bytes) and isinstance(high, bytes):
        low, high = lower_bound(low), upper_bound(high)
    if low is not None and rows.minimum is not None:
        assert low <= rows.minimum  # type: ignore[operator]
    if high is not None and rows.maximum is not None:
        assert high >= rows.maximum  # type: ignore[operator]
