"""Samples of the rows of tables, in which conditions are counted.

Spark's `FilterEstimation` assumes that conditions such as `contains` hold for every row, and so do
all conditions on columns without statistics (`ColumnType.is_published`). Joins are then ordered as
if the filter were absent. Their selectivity is measured in a sample instead.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.snapshot import count_rows, take_rows
from lancestat.query.predicates.filter import And, Filter, Not, TextMatch, Unread, flattened, leaves
from lancestat.query.pruning import ColumnBounds, may_match
from lancestat.tables.statistics.column_type import column_type

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

# Rows come in blocks at even distances: single ones cost a request each to an object store, and on
# a local disk forty times as long.
BLOCKS = 64
SAMPLE_ROWS = 16_384
# Of one table, in other fragments.
SAMPLES_KEPT = 16
# The text of so few rows is not worth a sample of it.
LEAST_ROWS = 20_000
# A table, or the fragments that are left of it, with fewer rows is read whole: as one of days, of
# which a query wants a year, that a sample in blocks mostly misses.
WHOLE_ROWS = 100_000

# About what Python takes for a result that is no array.
_ENTRY_BYTES = 1_000

_log = logging.getLogger("lancestat.read")


class Memo:
    """Results by name and by the object that they were made of; equal calls return the same one.

    It holds those objects too, and forgets everything before it takes more than `most_bytes`.
    """

    def __init__(self, most_bytes: int = 1 << 25) -> None:
        self._known: dict[tuple[object, ...], tuple[object, object]] = {}
        self._most, self._size = most_bytes, 0

    def once(self, name: tuple[str | bytes, ...], of: object, make: Callable[[], Any]) -> Any:
        """Return what is known by a name of an object, or is made of it now."""
        key = *name, id(of)
        known = self._known.get(key)
        if known is None:
            known = of, make()
            size = _ENTRY_BYTES + sum(map(len, name)) + sum(map(_size, known))
            if self._size + size > self._most:
                self._known, self._size = {}, 0
            self._known[key] = known
            self._size += size
        return known[1]


def _size(made: object) -> int:
    return sum(map(_size, made)) if isinstance(made, tuple) else getattr(made, "nbytes", 0)


class TableSample:
    """The same `rows` rows of a table for all columns, each of which is read once; thread-safe.

    They are in so many `blocks` of rows that stand side by side; `is_whole` is whether the table
    has no others. No other sample has its `name`. `memo` has what plans have made of the rows.
    """

    def __init__(
        self,
        rows: int,
        read: Callable[[list[str]], pa.Table],
        *,
        blocks: int = BLOCKS,
        is_whole: bool = False,
    ) -> None:
        self.rows, self.blocks, self.is_whole = rows, blocks, is_whole
        self.name = uuid.uuid4().hex
        self.memo = Memo()
        self._read = read
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._has_failed = False
        self._lock = threading.Lock()

    def columns(self, names: Collection[str]) -> pa.Table | None:
        """Return some columns, None where the table cannot be read."""
        import pyarrow as pa

        with self._lock:
            missing = [name for name in dict.fromkeys(names) if name not in self._columns]
            if missing and not self._has_failed:
                self._add(missing)
            if self._has_failed:
                return None
            return pa.table({name: self._columns[name] for name in names})

    def _add(self, names: list[str]) -> None:
        try:
            rows = self._read(names)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            self._has_failed = True
            return
        self._columns.update((name, rows.column(name)) for name in names)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples of one table at one version, which are kept.

    `open` opens the dataset at that version, which has `rows` live rows. `unreported` are the
    columns of which Spark knows nothing (`conditions`).
    """

    open: Callable[[], lance.LanceDataset]
    rows: int
    unreported: frozenset[str] = frozenset()
    _samples: dict[tuple[int, ...] | None, TableSample | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(
        self, filters: Sequence[Filter], fragment_ids: Sequence[int] | None = None
    ) -> float | None:
        """Return the share of rows that pass those of a conjunction that Spark does not estimate.

        It is the share of the rows in which the matched strings are not null, since Spark estimates
        those nulls. None when there are no such filters, when the table is small, or when it cannot
        be read. `fragment_ids` are the fragments to sample, None for all.
        """
        unestimated = tuple(sorted(conditions(filters, self.unreported), key=repr))
        if not unestimated or self.rows < LEAST_ROWS:
            return None
        sample = self.sample(fragment_ids)
        columns = {leaf.column for condition in unestimated for leaf in leaves(condition)}
        rows = None if sample is None else sample.columns(sorted(columns))
        return None if rows is None else _share(rows, unestimated)

    def sample(self, fragment_ids: Sequence[int] | None = None) -> TableSample | None:
        """Return rows of some fragments, or of all; None when there are none or on a failure."""
        key = None if fragment_ids is None else tuple(fragment_ids)
        with self._lock:
            if key not in self._samples:
                while len(self._samples) >= SAMPLES_KEPT:
                    del self._samples[next(iter(self._samples))]
                self._samples[key] = self._sample(key)
            return self._samples[key]

    def _sample(self, fragment_ids: tuple[int, ...] | None) -> TableSample | None:
        try:
            if fragment_ids is None:
                return self._of_all()
            return _of_fragments(self.open(), fragment_ids)
        except BaseException as error:
            if not is_error_or_panic(error):
                raise
            _log.warning("no sample could be read: %s", type(error).__name__)
            return None

    def _of_all(self) -> TableSample | None:
        if not self.rows:
            return None
        if self.rows < WHOLE_ROWS:
            return TableSample(
                self.rows, lambda names: self.open().to_table(columns=names), is_whole=True
            )
        positions = _row_positions(self.rows, BLOCKS)
        return TableSample(
            len(positions), lambda names: take_rows(self.open(), positions, columns=names)
        )


def _of_fragments(dataset: lance.LanceDataset, ids: Sequence[int]) -> TableSample | None:
    import pyarrow as pa

    fragments = [dataset.get_fragment(id) for id in ids]
    rows = [count_rows(fragment) for fragment in fragments]
    total = sum(rows)
    if not total:
        return None
    if total < WHOLE_ROWS:
        return TableSample(
            total,
            lambda names: dataset.scanner(columns=names, fragments=fragments).to_table(),
            is_whole=True,
        )
    count = min(BLOCKS, len(ids))
    chosen = [index * len(ids) // count for index in range(count)]
    of_each = -(-BLOCKS // count)
    positions = [_row_positions(rows[index], of_each) for index in chosen]

    def read(names: list[str]) -> pa.Table:
        return pa.concat_tables(
            fragments[index].take(places, columns=names)
            for index, places in zip(chosen, positions, strict=True)
        )

    return TableSample(sum(map(len, positions)), read, blocks=count * of_each)


def _row_positions(rows: int, blocks: int) -> list[int]:
    size = min(SAMPLE_ROWS // BLOCKS, -(-rows // blocks))
    starts = [block * rows // blocks for block in range(blocks)]
    return sorted({row for start in starts for row in range(start, min(start + size, rows))})


def conditions(filters: Sequence[Filter], unreported: Collection[str] = ()) -> list[Filter]:
    """Return the conditions of a conjunction that Spark assumes to hold for every row.

    `unreported` are the columns of types that are not published.
    """
    return [
        part
        for filter in filters
        for part in flattened(filter, And)
        if not isinstance(part, Unread)
        and all(isinstance(leaf, TextMatch) or leaf.column in unreported for leaf in leaves(part))
    ]


def _share(sample: pa.Table, unestimated: Sequence[Filter]) -> float | None:
    columns = {}
    for name in sample.column_names:
        type = column_type(sample.schema.field(name).type)
        columns[name] = None if type is None else ColumnBounds.of_rows(sample.column(name), type)
    passing = may_match(unestimated, columns.get, sample.num_rows)
    valid = np.ones(sample.num_rows, np.bool_)
    for condition in unestimated:
        match condition:
            case TextMatch(name) | Not(TextMatch(name)):
                # Spark knows how many rows hold null there.
                valid &= sample.column(name).is_valid().to_numpy()
    if not valid.any():
        return None
    # No match in the sample does not prove that there is none: it counts as half a row.
    return max(0.5, float(passing.sum())) / float(valid.sum())
