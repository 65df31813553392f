"""Reads the vectors and columns of sides inside Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.knn.metric import Metric
from lancestat.knn.side import Rows, VectorSide
from lancestat.knn.vectors import Vectors, vectors
from lancestat.lake.open import readable
from lancestat.read.part import Piece
from lancestat.spark.fragment_reader import open_pinned, read_piece

# Vectors that a task holds at once.
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that can match: (n,) `places` and (n, dimension) `rows`; `excluded` others cannot."""

    places: NDArray[np.int64]
    rows: NDArray[np.float32]
    excluded: int


@dataclass(frozen=True, slots=True)
class VectorReader:
    """Reads vectors of one length from a side, called `name` in errors."""

    side: VectorSide
    dimension: int
    metric: Metric
    name: str

    def read(self, rows: Rows) -> Vectors:
        """Those of consecutive rows."""
        return read_vectors(self.side, rows, self.dimension, self.metric, self.name)

    def blocks(self, rows: Rows, size_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Those of consecutive rows that can match, so many bytes at a time."""
        step = max(1, size_bytes // (4 * self.dimension))
        for start in range(rows.start, rows.stop, step):
            stop = min(rows.stop, start + step)
            found, places = self.read(Rows(start, stop)), np.arange(start, stop)
            usable = places[found.valid]
            excluded = stop - start - len(usable)
            yield Block(usable, found.values[found.valid] if excluded else found.values, excluded)

    def take(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Those of rows at ascending places that can match."""
        column = take(self.side, places, (self.side.vector,)).column(0)
        found = vectors(column, self.dimension, self.metric, place=f"the {self.name} side")
        return found.values[found.valid]

    def sample(self, count: int) -> NDArray[np.float32]:
        """Those of evenly spread rows that can match: the same in every run over the same rows."""
        rows = self.side.all_rows
        step = max(1, len(rows) // max(1, count))
        return self.take(np.arange(rows.start, rows.stop, step)[:count])

    def count(self, rows: Rows) -> int:
        """How many of consecutive rows can match."""
        return int(np.count_nonzero(self.read(rows).valid))


def read_vectors(
    side: VectorSide, rows: Rows, dimension: int | None, metric: Metric, name: str
) -> Vectors:
    """The vectors of consecutive rows; of the length of the first when none is given."""
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


def take(side: VectorSide, places: NDArray[np.int64], columns: tuple[str, ...]) -> pa.Table:
    """Columns of the rows at ascending places."""
    dataset = open_pinned(side.uri, side.version, side.storage_options, side.committed_at)
    with readable(side.uri, version=side.version, storage_options=side.storage_options):
        return dataset.take(places, columns=list(columns))
