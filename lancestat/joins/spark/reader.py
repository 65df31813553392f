"""Reads the vectors and columns of sides inside Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.vectors import Vectors, vectors
from lancestat.joins.search.work import Rows, VectorSide
from lancestat.joins.spark.parquet_side import ParquetSide
from lancestat.joins.spark.selected_rows import live_positions, places_of, read_selected
from lancestat.lake.open import pinned_reads
from lancestat.spark.fragment_reader import pinned_dataset, read_range

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
        """How many rows cannot match."""
        return len(self.excluded_positions)


@dataclass(frozen=True, slots=True)
class VectorReader:
    """Reads vectors of one length from a side, called `name` in errors."""

    side: Side
    dimension: int
    metric: Metric
    name: str

    def read(self, rows: Rows) -> Vectors:
        """Return the vectors of consecutive rows."""
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
        """Return the vectors of rows at ascending positions that can match."""
        taken = self.look_up(positions)
        return taken.values[taken.valid]

    def look_up(self, positions: NDArray[np.int64]) -> Vectors:
        """Return the vectors of rows at ascending positions."""
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
        """Return how many of consecutive rows can match."""
        return int(np.count_nonzero(self.valid(rows)))

    def valid(self, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of consecutive rows that can match."""
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
    """Yield columns of consecutive rows of a side, in order."""
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
    """Return columns of the rows at ascending positions."""
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
    """Return the right positions of left rows of the same dataset, and those of the rows behind.

    The first are -1 for rows that are not on the right side.
    """
    assert isinstance(left, VectorSide) and isinstance(right, VectorSide)
    return places_of(left, right, positions)


def rows_behind(rows: Rows, behind: NDArray[np.int64]) -> Rows:
    """Return the rows that some query may have as a neighbour, by its least ascending positions."""
    if not len(behind):
        return rows
    return Rows(min(max(rows.start, int(behind[0])), rows.stop), rows.stop)


def read_schema(side: Side) -> pa.Schema:
    """Return the schema of the columns that the output has, and others."""
    if isinstance(side, ParquetSide):
        return side.schema
    return pinned_dataset(side.pin, side.storage_options).schema
