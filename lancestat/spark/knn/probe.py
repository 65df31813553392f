"""The probe stage: chunks of left vectors against the vectors of the right side, block by block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.knn.metric import Metric
from lancestat.knn.neighbours import Neighbours
from lancestat.knn.search import Nearest
from lancestat.knn.side import Rows, VectorSide
from lancestat.knn.vectors import Vectors, vectors
from lancestat.read.part import Piece
from lancestat.spark.fragment_reader import open_pinned, read_piece

# Right vectors that a task holds at once.
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk of left rows against one part of the right side."""

    chunk: int
    left: Rows
    part: int


@dataclass(frozen=True, slots=True)
class Probed:
    """What one chunk of left rows found in one part of the right side.

    `neighbours` are those of the left rows that can match, in order; `is_valid` tells which of the
    chunk's rows these are. `excluded` right rows of the part cannot match; `pairs` were compared,
    in `seconds`.
    """

    is_valid: NDArray[np.bool_]
    neighbours: Neighbours
    excluded: int
    pairs: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExactProbe:
    """Compares every pair, streaming the rows of one of `parts`; travels to Spark's workers."""

    left: VectorSide
    right: VectorSide
    parts: tuple[Rows, ...]
    dimension: int
    k: int
    metric: Metric

    def __call__(self, cell: Cell) -> Probed:
        """Search one part of the right side for the neighbours of one chunk."""
        started = time.perf_counter()
        left, right = cell.left, self.parts[cell.part]
        queries = read_vectors(self.left, left, self.dimension, self.metric, "left")
        asked = queries.values[queries.valid]
        nearest = Nearest(asked, self.k, self.metric)
        excluded = compared = 0
        for places, block in self._blocks(right):
            found = block.values[block.valid]
            excluded += len(block.valid) - len(found)
            compared += len(found)
            nearest.add(found, places[block.valid])
        pairs, seconds = compared * len(asked), time.perf_counter() - started
        return Probed(queries.valid, nearest.neighbours(), excluded, pairs, seconds)

    def _blocks(self, right: Rows) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        step = max(1, BLOCK_BYTES // (4 * self.dimension))
        for start in range(right.start, right.stop, step):
            rows = Rows(start, min(right.stop, start + step))
            block = read_vectors(self.right, rows, self.dimension, self.metric, "right")
            yield np.arange(rows.start, rows.stop), block


@dataclass(frozen=True, slots=True)
class CountValid:
    """Counts rows that can match; travels to Spark's workers."""

    side: VectorSide
    dimension: int
    metric: Metric
    name: str

    def __call__(self, rows: Rows) -> int:
        """How many of the rows."""
        found = read_vectors(self.side, rows, self.dimension, self.metric, self.name)
        return int(np.count_nonzero(found.valid))


def read_vectors(
    side: VectorSide, rows: Rows, dimension: int | None, metric: Metric, name: str
) -> Vectors:
    """The vectors of consecutive rows of a side, called `name` in errors."""
    batches = list(read_columns(side, rows, (side.vector,)))
    columns = pa.chunked_array([batch.column(0) for batch in batches]) if batches else None
    if columns is None:
        columns = pa.chunked_array([], pa.list_(pa.float32(), dimension or -1))
    return vectors(columns, dimension, metric, first_row=rows.start, place=f"the {name} side")


def read_columns(
    side: VectorSide, rows: Rows, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Columns of consecutive rows of a side, in order."""
    dataset = open_pinned(side.uri, side.version, side.storage_options, side.committed_at)
    for each in side.ranges(rows):
        piece = Piece(each.fragment_id, each.offset, each.count)
        yield from read_piece(dataset, piece, columns, side.storage_options)
