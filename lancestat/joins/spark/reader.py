"""Reads the vectors and columns of sides inside Spark's workers, with or without a filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.vectors import Vectors, vectors
from lancestat.joins.search.work import FragmentRows, Rows, Selection, VectorSide, fragment_rows
from lancestat.joins.spark.parquet_side import ParquetSide
from lancestat.lake.open import pinned_reads
from lancestat.lake.row_ranges import RowRange, count_rows
from lancestat.lake.snapshot import Pin
from lancestat.spark.fragment_reader import pinned_dataset, read_range

_ADDRESS = "_rowaddr"
_ROW_OF_ADDRESS = (1 << 32) - 1
# Fragments whose matches a worker remembers, four or eight bytes for each of them.
_REMEMBERED = 64
_Key = tuple[Pin, str, int]
_offsets: dict[_Key, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}


def select_rows(
    dataset: lance.LanceDataset, live: tuple[FragmentRows, ...], filter: str
) -> tuple[tuple[FragmentRows, ...], Selection]:
    """Count the rows of each fragment that pass a filter in Lance's SQL.

    Returns:
        The fragments with those rows alone, and the selection.
    """
    counts = [(part.id, count_rows(dataset.get_fragment(part.id), filter)) for part in live]
    selected = fragment_rows(counts)
    ids = {part.id for part in selected}
    return selected, Selection(filter, tuple(part for part in live if part.id in ids))


def read_selected(
    side: VectorSide, selection: Selection, rows: Rows, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    dataset = pinned_dataset(side.pin, side.storage_options)
    counts = {part.id: part.rows for part in side.fragments}
    for part in side.ranges(rows):
        physical = RowRange(part.fragment_id)
        if part.count != counts[part.fragment_id]:
            offsets, _ = _matches(side, selection, part.fragment_id)
            first, last = offsets[part.offset], offsets[part.offset + (part.count or 0) - 1]
            physical = RowRange(part.fragment_id, int(first), int(last - first) + 1)
        yield from read_range(
            dataset, physical, columns, side.storage_options, filter=selection.filter
        )


def live_positions(
    side: VectorSide, selection: Selection, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions in a scan of the whole dataset of rows at ascending positions."""
    starts = np.array([part.start for part in side.fragments], np.int64)
    edges = np.append(np.searchsorted(positions, starts), len(positions)).tolist()
    live = np.empty(len(positions), np.int64)
    whole = {part.id: part for part in selection.live}
    for part, (start, stop) in zip(side.fragments, pairwise(edges), strict=True):
        if stop > start:
            _, offsets = _matches(side, selection, part.id)
            inside = offsets[positions[start:stop] - part.start]
            live[start:stop] = whole[part.id].start + inside
    return live


def places_of(
    left: VectorSide, right: VectorSide, positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where left rows are among the rows of the right side, which is the same dataset.

    Args:
        left: A side.
        right: The other one, over the same fragments before its filter.
        positions: Ascending positions of left rows.

    Returns:
        The position of each row on the right side, -1 for one that its filter does not pass; and
        the position of the first right row after it.
    """
    live = positions
    if left.selection is not None:
        live = live_positions(left, left.selection, positions)
    if right.selection is None:
        return live, live + 1
    own, after = np.full(len(live), -1, np.int64), np.empty(len(live), np.int64)
    # Fragments of which no row passes are not among those of the selection.
    firsts = np.array([part.start for part in right.selection.live], np.int64)
    starts = np.array([*(part.start for part in right.fragments), right.all_rows.stop], np.int64)
    at = np.searchsorted(firsts, live, side="right") - 1
    after[:] = starts[at + 1]
    for number, part in enumerate(right.selection.live):
        here = np.flatnonzero((at == number) & (live < part.start + part.rows))
        if not len(here):
            continue
        _, offsets = _matches(right, right.selection, part.id)
        inside = live[here] - part.start
        place = np.searchsorted(offsets, inside)
        passes = offsets[np.minimum(place, len(offsets) - 1)] == inside
        own[here] = np.where(passes, starts[number] + place, -1)
        after[here] = starts[number] + place + passes
    return own, after


def _matches(
    side: VectorSide, selection: Selection, fragment_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which rows of a fragment pass, by their places among physical and live rows."""
    key = (side.pin, selection.filter, fragment_id)
    if key not in _offsets:
        while len(_offsets) >= _REMEMBERED:
            del _offsets[next(iter(_offsets))]
        with pinned_reads(side.pin, side.storage_options):
            _offsets[key] = _scanned(side, selection, fragment_id)
    return _offsets[key]


def _scanned(
    side: VectorSide, selection: Selection, fragment_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    fragment = pinned_dataset(side.pin, side.storage_options).get_fragment(fragment_id)
    physical = physical_offsets(fragment, selection.filter)
    if fragment.metadata.deletion_file is None:
        return physical, physical
    return physical, np.searchsorted(physical_offsets(fragment, None), physical)


def matching_offsets(side: VectorSide, selection: Selection, fragment_id: int) -> NDArray[np.int64]:
    return _matches(side, selection, fragment_id)[0]


def physical_offsets(fragment: lance.LanceFragment, filter: str | None) -> NDArray[np.int64]:
    table = fragment.scanner(columns=[], filter=filter, with_row_address=True).to_table()
    addresses: NDArray[np.int64] = table.column(_ADDRESS).to_numpy().astype(np.int64)
    # A scan by way of a scalar index may come in the index's order.
    return np.sort(addresses & _ROW_OF_ADDRESS)


# The rows of a side: a Lance dataset, or Parquet files that it goes through once.
Side = VectorSide | ParquetSide

# Vectors that a task holds at once.
BLOCK_BYTES = 64 << 20
# Those that are only checked.
_CHECKED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that can match: (n,) `positions` and (n, dimension) `rows`.

    `excluded_positions` are those of the others among them.
    """

    positions: NDArray[np.int64]
    rows: NDArray[np.float32]
    excluded_positions: NDArray[np.int64]

    @property
    def excluded(self) -> int:
        return len(self.excluded_positions)


@dataclass(frozen=True, slots=True)
class VectorReader:
    """Reads vectors of one length from a side, called `name` in errors."""

    side: Side
    dimension: int
    metric: Metric
    name: str

    def read(self, rows: Rows) -> Vectors:
        held = [batch.column(0) for batch in read_columns(self.side, rows, (self.side.vector,))]
        if not held:
            return Vectors(np.zeros((0, self.dimension), np.float32), np.zeros(0, np.bool_))
        return self._vectors(pa.chunked_array(held), rows.start)

    def batches(self, rows: Rows) -> Iterator[tuple[int, Vectors]]:
        """Yield vectors of consecutive rows as they are read, and the position of the first."""
        start = rows.start
        for batch in read_columns(self.side, rows, (self.side.vector,)):
            yield start, self._vectors(pa.chunked_array([batch.column(0)]), start)
            start += len(batch)

    def blocks(self, rows: Rows, size_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Yield the consecutive rows that can match, so many bytes of vectors at a time."""
        step = max(1, size_bytes // (4 * self.dimension))
        start, filled = rows.start, 0
        block = self._empty(min(step, len(rows)))
        for batch in read_columns(self.side, rows, (self.side.vector,)):
            column = batch.column(0)
            # Copied as they come, batches are not held together with a block of them.
            while len(column):
                piece = column[: step - filled]
                read = self._vectors(pa.chunked_array([piece]), start + filled)
                block.values[filled : filled + len(piece)] = read.values
                block.valid[filled : filled + len(piece)] = read.valid
                column, filled = column[len(piece) :], filled + len(piece)
                if filled == step:
                    yield _usable(block, start)
                    start, filled = start + step, 0
                    block = self._empty(min(step, rows.stop - start))
        if filled:
            yield _usable(Vectors(block.values[:filled], block.valid[:filled]), start)

    def _empty(self, rows: int) -> Vectors:
        return Vectors(np.empty((rows, self.dimension), np.float32), np.empty(rows, np.bool_))

    def _vectors(self, columns: pa.ChunkedArray, first_row: int) -> Vectors:
        source = f"the {self.name} side"
        return vectors(
            columns,
            self.dimension,
            self.metric,
            has_bits=self.side.has_bits,
            first_row=first_row,
            source=source,
        )

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        taken = self.look_up(positions)
        return taken.values[taken.valid]

    def look_up(self, positions: NDArray[np.int64]) -> Vectors:
        column = take(self.side, positions, (self.side.vector,)).column(0)
        source = f"the {self.name} side"
        has_bits = self.side.has_bits
        return vectors(column, self.dimension, self.metric, has_bits=has_bits, source=source)

    def sample(self, count: int, together: int = 1) -> NDArray[np.float32]:
        """Return vectors of evenly spread rows that can match, the same in every run.

        Args:
            count: At most so many.
            together: How many rows in a row are taken at each position, which reads faster.
        """
        rows = self.side.all_rows
        runs = count // together
        if runs < 2 or runs * together >= len(rows):
            return self.take(np.arange(rows.start, rows.stop)[:count])
        firsts = rows.start + np.arange(runs) * (len(rows) - together) // (runs - 1)
        return self.take((firsts[:, None] + np.arange(together)).ravel())

    def count(self, rows: Rows) -> int:
        return int(np.count_nonzero(self.valid(rows)))

    def valid(self, rows: Rows) -> NDArray[np.bool_]:
        is_valid = np.ones(len(rows), np.bool_)
        for block in self.blocks(rows, _CHECKED_BYTES):
            is_valid[block.excluded_positions - rows.start] = False
        return is_valid


def _usable(block: Vectors, start: int) -> Block:
    positions = np.arange(start, start + len(block.valid))
    if block.valid.all():
        return Block(positions, block.values, positions[:0])
    return Block(positions[block.valid], block.values[block.valid], positions[~block.valid])


def read_columns(side: Side, rows: Rows, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    if isinstance(side, ParquetSide):
        yield from side.read(rows, columns)
        return
    if side.selection is not None:
        yield from read_selected(side, side.selection, rows, columns)
        return
    dataset = pinned_dataset(side.pin, side.storage_options)
    for part in side.ranges(rows):
        yield from read_range(dataset, part, columns, side.storage_options)


def take(side: Side, positions: NDArray[np.int64], columns: tuple[str, ...]) -> pa.Table:
    if isinstance(side, ParquetSide):
        return side.take(positions, columns)
    if side.selection is not None:
        positions = live_positions(side, side.selection, positions)
    dataset = pinned_dataset(side.pin, side.storage_options)
    with pinned_reads(side.pin, side.storage_options):
        return dataset.take(positions, columns=list(columns))


def row_places(
    left: Side, right: Side, positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the right positions of left rows of the same dataset, and those of the rows after.

    The first are -1 for rows that are not on the right side.
    """
    assert isinstance(left, VectorSide) and isinstance(right, VectorSide)
    if (positions[:-1] <= positions[1:]).all():
        return places_of(left, right, positions)
    order = np.argsort(positions)
    own, after = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
    own[order], after[order] = places_of(left, right, positions[order])
    return own, after


def rows_after(rows: Rows, after: NDArray[np.int64]) -> Rows:
    """Return the rows that some query may have as a neighbour, by its least ascending positions."""
    if not len(after):
        return rows
    return Rows(min(max(rows.start, int(after[0])), rows.stop), rows.stop)


def read_schema(side: Side) -> pa.Schema:
    if isinstance(side, ParquetSide):
        return side.schema
    return pinned_dataset(side.pin, side.storage_options).schema
