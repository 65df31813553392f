"""The materialize stage: neighbours become rows of the result, fetched by their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.output.result import output_of
from lancestat.joins.output.writer import OutputWriter, Written
from lancestat.joins.search.neighbours import Neighbours, without
from lancestat.joins.search.work import JoinKind, OutputNames, Rows, VectorSide
from lancestat.joins.spark.kept_pairs import KeptPairs, PairKeeper, WrittenPairs
from lancestat.joins.spark.reader import (
    Side,
    read_columns,
    read_schema,
    row_places,
    take,
    take_addressed,
)
from lancestat.spark.fragment_reader import PROBE_ROWS, fitting_rows


@dataclass(frozen=True, slots=True)
class ProbedChunk:
    """The neighbours of those rows of a chunk that `is_valid` says can match, in their order."""

    number: int
    rows: Rows
    is_valid: NDArray[np.bool_]
    neighbours: Neighbours

    def spread(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return positions and distances for every row, -1 and inf without a match."""
        found, width = self.neighbours, self.neighbours.positions.shape[1]
        positions = np.full((len(self.rows), max(1, width)), -1, np.int64)
        distances = np.full(positions.shape, np.inf, np.float32)
        positions[self.is_valid, :width] = found.positions
        distances[self.is_valid, :width] = found.distances
        return positions, distances


# Reads columns of the rows of a side at ascending places: positions, or addresses.
Fetch = Callable[[Any, NDArray[np.int64], tuple[str, ...]], pa.Table]


@dataclass(frozen=True, slots=True)
class Materializer:
    """Builds rows of the result and writes them; pickled for Spark's workers.

    `schema` is the result's, which shows up to `shown` neighbours of a left row, None for all. With
    `drops_self` one neighbour more than is wanted was searched for, since each row may be among its
    own. Distances are counted at `ranks`, all together without any. `keeper` keeps the pairs.
    """

    left: Side
    right: Side
    names: OutputNames
    kind: JoinKind
    schema: pa.Schema
    writer: OutputWriter
    shown: int | None = None
    drops_self: bool = False
    ranks: tuple[int, ...] = ()
    keeper: PairKeeper | None = None

    def without_self(self, chunk: ProbedChunk) -> ProbedChunk:
        """Drop each row from its own neighbours, where these may hold it."""
        if not self.drops_self:
            return chunk
        positions = chunk.rows.start + np.flatnonzero(chunk.is_valid)
        own, _ = row_places(self.left, self.right, positions)
        return replace(chunk, neighbours=without(chunk.neighbours, own))

    def write(self, number: int, parts: Iterable[ProbedChunk]) -> Written:
        """Write the rows of a chunk, of which each part holds some consecutive left rows."""
        return self.write_batches(
            number, (batch for part in parts for batch in self._batches(part))
        )

    def write_batches(self, number: int, batches: Iterable[pa.RecordBatch]) -> Written:
        return output_of(self.writer).write(self.writer, number, self.schema, batches)

    def kept(self, chunk: ProbedChunk, lines: int) -> KeptPairs | None:
        """Return the pairs of a chunk as they are kept, of which so many lines come before."""
        if self.keeper is None:
            return None
        return self.keeper.pairs(chunk.rows, *chunk.spread(), lines)

    def keep(self, pairs: Sequence[KeptPairs]) -> WrittenPairs | None:
        return None if self.keeper is None else self.keeper.write(KeptPairs.together(pairs))

    def shown_of(self, chunk: ProbedChunk) -> ProbedChunk:
        """Return a chunk with the neighbours that the result shows."""
        found = chunk.neighbours
        shown = Neighbours(found.positions[:, : self.shown], found.distances[:, : self.shown])
        return replace(chunk, neighbours=shown)

    def lines(self, widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of result rows of left rows with so many neighbours."""
        fewest = 1 if self.kind is JoinKind.LEFT_OUTER else 0
        lines: NDArray[np.int64] = np.maximum(widths, fewest)
        return lines

    def _batches(self, chunk: ProbedChunk) -> Iterator[pa.RecordBatch]:
        positions, distances = chunk.spread()
        # Columns beyond the last neighbour of all are empty.
        lines = self.lines(np.count_nonzero(positions >= 0, axis=1))
        ends = np.cumsum(lines)
        # The width of the first rows limits how many a task holds at once.
        start, most = 0, PROBE_ROWS
        while start < len(lines):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            part = slice(start, stop)
            rows = Rows(chunk.rows.start + start, chunk.rows.start + stop)
            for batch in self._batch(rows, positions[part], distances[part], lines[part]):
                most = fitting_rows(batch)
                yield batch
            start = stop

    def _batch(
        self,
        rows: Rows,
        positions: NDArray[np.int64],
        distances: NDArray[np.float32],
        lines: NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:
        is_line = np.arange(positions.shape[1]) < lines[:, None]
        line_positions, line_distances = positions[is_line], distances[is_line]
        if not len(line_positions):
            return
        origin = pa.array(np.repeat(np.arange(len(rows)), lines))
        left = []
        if self.left.columns:
            read = pa.Table.from_batches(read_columns(self.left, rows, self.left.columns))
            left = [column.take(origin) for column in read.columns]
        rank = np.broadcast_to(np.arange(positions.shape[1]), is_line.shape)[is_line]
        yield from self._lines_of(left, line_positions, line_distances, rank)

    def pair_batches(
        self,
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        distances: NDArray[np.float32],
        ranks: NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the result for pairs of addresses (n,), -1 for no right row."""
        assert isinstance(self.left, VectorSide), "rows have addresses"
        start, step = 0, PROBE_ROWS
        while start < len(left):
            some = slice(start, start + step)
            columns = []
            if self.left.columns:
                unique, inverse = np.unique(left[some], return_inverse=True)
                taken = take_addressed(self.left, unique, self.left.columns)
                columns = [column.take(pa.array(inverse)) for column in taken.columns]
            start += step
            measures = distances[some], ranks[some]
            for batch in self._lines_of(columns, right[some], *measures, fetch=take_addressed):
                step = fitting_rows(batch)
                yield batch

    def _lines_of(
        self,
        left: list[pa.ChunkedArray],
        positions: NDArray[np.int64],
        distances: NDArray[np.float32],
        ranks: NDArray[np.int64],
        fetch: Fetch = take,
    ) -> Iterator[pa.RecordBatch]:
        is_missing = positions < 0
        right = self._right_columns(positions, fetch)
        arrays = [*left, *right, pa.array(distances, mask=is_missing)]
        if len(self.names.measures) > 1:
            arrays.append(pa.array((ranks + 1).astype(np.int32), mask=is_missing))
        table = pa.Table.from_arrays(arrays, names=list(self.names.all)).cast(self.schema)
        yield from table.combine_chunks().to_batches()

    def _right_columns(self, positions: NDArray[np.int64], fetch: Fetch) -> list[pa.ChunkedArray]:
        if not self.right.columns:
            return []
        unique, inverse = np.unique(positions, return_inverse=True)
        missing = int(np.searchsorted(unique, 0))
        names = list(self.names.right)
        schema = pa.schema([self.schema.field(name) for name in names])
        fetched = pa.Table.from_batches([], schema)
        if missing < len(unique):
            taken = fetch(self.right, unique[missing:], self.right.columns)
            fetched = taken.rename_columns(names).cast(schema)
        index = pa.array(inverse - missing, mask=inverse < missing)
        return [column.take(index) for column in fetched.columns]


def output_schema(left: Side, right: Side, names: OutputNames, kind: JoinKind) -> pa.Schema:
    is_outer, fields = kind is JoinKind.LEFT_OUTER, []
    for side, side_names, may_miss in (left, names.left, False), (right, names.right, is_outer):
        schema = read_schema(side)
        for name, column in zip(side_names, side.columns, strict=True):
            field = schema.field(column)
            fields.append(pa.field(name, field.type, field.nullable or may_miss))
    types = (pa.float32(), pa.int32())
    measures = zip(names.measures, types, strict=False)
    return pa.schema([*fields, *(pa.field(name, type, is_outer) for name, type in measures)])
