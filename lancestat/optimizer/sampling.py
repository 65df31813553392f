"""Estimates from a sample how many rows pass a filter that Spark does not estimate.

Spark's `FilterEstimation` takes conditions such as `contains` for true of every row, and joins are
then ordered as if the filter were not there. These conditions are counted in a sample instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.row_counts import count_rows
from lancestat.predicates.filter import And, Filter, Not, TextMatch, TextOperator

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

# Rows come in blocks at even distances: single ones cost a request each to an object store, and on
# a local disk ten times as long.
BLOCKS = 8
SAMPLE_ROWS = 4_096
# Reading a sample is not worth it where the whole table is small.
LEAST_ROWS = 20_000

_log = logging.getLogger("lancestat.read")


@dataclass(frozen=True, slots=True)
class _Condition:
    """A text match, or its negation."""

    match: TextMatch
    is_match: bool


# Conditions, and the fragments whose rows are meant.
_SampleKey = tuple[tuple[_Condition, ...], tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Counts matches in a sample of one table at one version; answers are cached.

    Args:
        open: Opens the dataset at that version.
        rows: Its live rows.
    """

    open: Callable[[], lance.LanceDataset]
    rows: int
    _shares: dict[_SampleKey, float | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(
        self, filters: Sequence[Filter], fragment_ids: Sequence[int] | None = None
    ) -> float | None:
        """Return the share of rows that pass those filters which Spark does not estimate.

        It is of the rows in which the filtered columns are not null, since Spark estimates nulls.
        None when there are no such filters, when the table is small, or when it cannot be read.

        Args:
            filters: A conjunction.
            fragment_ids: The fragments whose rows are meant, all when None.
        """
        unestimated = tuple(sorted(conditions(filters), key=repr))
        if not unestimated or self.rows < LEAST_ROWS:
            return None
        key = unestimated, None if fragment_ids is None else tuple(fragment_ids)
        with self._lock:
            if key not in self._shares:
                self._shares[key] = self._counted(*key)
            return self._shares[key]

    def _counted(
        self, unestimated: Sequence[_Condition], fragment_ids: Sequence[int] | None
    ) -> float | None:
        columns = sorted({condition.match.column for condition in unestimated})
        try:
            dataset = self.open()
            if fragment_ids is None:
                sample = dataset.take(_row_positions(self.rows, BLOCKS), columns=columns)
            else:
                sample = _taken(dataset, fragment_ids, columns)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            return None
        return _share(sample, unestimated)


def conditions(filters: Sequence[Filter]) -> list[_Condition]:
    """Return the conditions of a conjunction that Spark takes for true of every row."""
    unestimated = []
    waiting = list(filters)
    while waiting:
        part = waiting.pop()
        match part:
            case And(left, right):
                waiting += [left, right]
            case TextMatch():
                unestimated.append(_Condition(part, True))
            case Not(TextMatch() as inner):
                unestimated.append(_Condition(inner, False))
            case _:
                continue
    return unestimated


def _taken(
    dataset: lance.LanceDataset, fragment_ids: Sequence[int], columns: list[str]
) -> pa.Table | None:
    """Sample some fragments, as many of them as there are blocks."""
    import pyarrow as pa

    if not fragment_ids:
        return None
    count = min(BLOCKS, len(fragment_ids))
    ids = [fragment_ids[index * len(fragment_ids) // count] for index in range(count)]
    fragments = [dataset.get_fragment(id) for id in ids]
    blocks = -(-BLOCKS // count)
    return pa.concat_tables(
        fragment.take(_row_positions(count_rows(fragment), blocks), columns=columns)
        for fragment in fragments
    )


def _row_positions(rows: int, blocks: int) -> list[int]:
    """Return the rows to take, ascending: blocks at even distances."""
    size = min(SAMPLE_ROWS // BLOCKS, -(-rows // blocks))
    starts = [block * rows // blocks for block in range(blocks)]
    return sorted({row for start in starts for row in range(start, min(start + size, rows))})


def _share(sample: pa.Table | None, unestimated: Sequence[_Condition]) -> float | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if sample is None:
        return None
    passing, valid = pa.scalar(True), pa.scalar(True)
    for condition in unestimated:
        column = sample.column(condition.match.column).cast(pa.string())
        matches = _matched(column, condition.match)
        passing = pc.and_(passing, matches if condition.is_match else pc.invert(matches))
        valid = pc.and_(valid, pc.is_valid(column))
    counted = pc.sum(valid).as_py() or 0
    if not counted:
        return None
    # No match in the sample does not prove that there is none: it counts as half a row.
    return max(0.5, pc.sum(pc.fill_null(passing, False)).as_py() or 0) / counted


def _matched(column: pa.ChunkedArray, match: TextMatch) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    match match.operator:
        case TextOperator.STARTS_WITH:
            return pc.starts_with(column, match.text)
        case TextOperator.ENDS_WITH:
            return pc.ends_with(column, match.text)
        case TextOperator.CONTAINS:
            return pc.match_substring(column, match.text)
