"""The materialize stage: neighbours become rows of the result, fetched by their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.output import result as output
from lancestat.joins.output.result import read_rows
from lancestat.joins.output.writer import OutputWriter, Written
from lancestat.joins.search.neighbours import Neighbours, merge, without
from lancestat.joins.search.work import DISTANCE, JoinKind, OutputNames, OutputState, Rows
from lancestat.joins.spark.reader import Side, read_columns, read_schema, row_places, take
from lancestat.spark.fragment_reader import PROBE_ROWS, fitting_rows


@dataclass(frozen=True, slots=True)
class ProbedChunk:
    """The neighbours of those rows of a chunk that `is_valid` says can match, in their order."""

    number: int
    rows: Rows
    is_valid: NDArray[np.bool_]
    neighbours: Neighbours


# The number of neighbours of each left row of a chunk in the last result. It is pickled.
Widths = Callable[[ProbedChunk], NDArray[np.int64]]


def same_widths(width: int, chunk: ProbedChunk) -> NDArray[np.int64]:
    """Return the widths where every left row that can match has as many neighbours."""
    return np.where(chunk.is_valid, width, 0)


@dataclass(frozen=True, slots=True)
class PreviousResult:
    """A result over the same left rows; chunks start at the lines `starts` of it."""

    state: OutputState
    widths: Widths
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Materializer:
    """Builds rows of the result and writes them; pickled for Spark's workers.

    `schema` is the result's. With `drops_self` one neighbour more than is wanted was searched for,
    since each row may be among its own. Distances are counted at `ranks`, all together without any.
    """

    left: Side
    right: Side
    names: OutputNames
    kind: JoinKind
    schema: pa.Schema
    writer: OutputWriter
    previous: PreviousResult | None = None
    drops_self: bool = False
    ranks: tuple[int, ...] = ()

    def completed(self, chunk: ProbedChunk) -> ProbedChunk:
        """Merge the neighbours of the previous result, if there is one, into the chunk.

        Positions up to that result's number of rows are then rows of it, which keep their columns
        of the right side; positions of the right side follow them, as added rows follow others.
        """
        if self.previous is None:
            return chunk
        k = chunk.neighbours.positions.shape[1]
        widths = self.previous.widths(chunk)
        has_some = chunk.is_valid | (widths > 0)
        known = self._known(self.previous, chunk, widths, has_some)
        positions, distances = _spread(chunk)
        shifted = np.where(positions < 0, positions, positions + self.previous.state.rows)
        merged = merge([known, Neighbours(shifted[has_some], distances[has_some])], k)
        return replace(chunk, is_valid=has_some, neighbours=merged)

    def without_self(self, chunk: ProbedChunk) -> ProbedChunk:
        """Drop each row from its own neighbours, where these may hold it."""
        if not self.drops_self:
            return chunk
        positions = chunk.rows.start + np.flatnonzero(chunk.is_valid)
        own, _ = row_places(self.left, self.right, positions)
        return replace(chunk, neighbours=without(chunk.neighbours, own))

    def write(self, number: int, parts: Iterable[ProbedChunk]) -> Written:
        """Write the rows of a chunk, of which each part holds some consecutive left rows."""
        batches = (batch for part in parts for batch in self._batches(part))
        return output.write(self.writer, number, self.schema, batches)

    def _known(
        self,
        previous: PreviousResult,
        chunk: ProbedChunk,
        widths: NDArray[np.int64],
        which: NDArray[np.bool_],
    ) -> Neighbours:
        lines = self.lines(widths)
        start = previous.starts[chunk.number]
        first = start + np.cumsum(lines) - lines
        place = np.arange(int(np.max(widths, initial=0)))
        is_known = place < widths[which][:, None]
        positions = np.where(is_known, first[which][:, None] + place, -1)
        options = self.writer.storage_options
        rows = read_rows(previous.state, start, start + int(lines.sum()), options)
        read = [batch.column(DISTANCE).to_numpy(zero_copy_only=False) for batch in rows]
        distances = np.full(positions.shape, np.inf, np.float32)
        distances[is_known] = np.concatenate([np.empty(0, np.float32), *read])[
            positions[is_known] - start
        ]
        return Neighbours(positions, distances)

    def lines(self, widths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of result rows of left rows with so many neighbours."""
        fewest = 1 if self.kind is JoinKind.LEFT_OUTER else 0
        lines: NDArray[np.int64] = np.maximum(widths, fewest)
        return lines

    def _batches(self, chunk: ProbedChunk) -> Iterator[pa.RecordBatch]:
        positions, distances = _spread(chunk)
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
        is_missing = line_positions < 0
        arrays = []
        if self.left.columns:
            left = pa.Table.from_batches(read_columns(self.left, rows, self.left.columns))
            arrays += [column.take(origin) for column in left.columns]
        arrays += self._right_columns(line_positions)
        arrays.append(pa.array(line_distances, mask=is_missing))
        if len(self.names.measures) > 1:
            rank = np.broadcast_to(
                np.arange(1, positions.shape[1] + 1, dtype=np.int32), is_line.shape
            )
            arrays.append(pa.array(rank[is_line], mask=is_missing))
        table = pa.Table.from_arrays(arrays, names=list(self.names.all)).cast(self.schema)
        yield from table.combine_chunks().to_batches()

    def _right_columns(self, positions: NDArray[np.int64]) -> list[pa.ChunkedArray]:
        if not self.right.columns:
            return []
        unique, inverse = np.unique(positions, return_inverse=True)
        missing = int(np.searchsorted(unique, 0))
        fetched = self._fetch(unique[missing:])
        index = pa.array(inverse - missing, mask=inverse < missing)
        return [column.take(index) for column in fetched.columns]

    def _fetch(self, positions: NDArray[np.int64]) -> pa.Table:
        names, side, parts = list(self.names.right), self.right, []
        schema = pa.schema([self.schema.field(name) for name in names])
        split = 0
        if self.previous is not None:
            state = self.previous.state
            split = int(np.searchsorted(positions, state.rows))
            if split:
                start, stop = int(positions[0]), int(positions[split - 1]) + 1
                rows = read_rows(state, start, stop, self.writer.storage_options)
                known = pa.Table.from_batches(rows).select(names)
                parts.append(known.take(pa.array(positions[:split] - start)))
            positions = positions - state.rows
        if split < len(positions):
            parts.append(take(side, positions[split:], side.columns).rename_columns(names))
        tables = [part.cast(schema) for part in parts]
        return pa.concat_tables(tables) if tables else schema.empty_table()


def _spread(chunk: ProbedChunk) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return positions and distances for every row of the chunk, -1 and inf without a match."""
    neighbours = chunk.neighbours
    positions = np.full((len(chunk.rows), max(1, neighbours.positions.shape[1])), -1, np.int64)
    distances = np.full(positions.shape, np.inf, np.float32)
    positions[chunk.is_valid, : neighbours.positions.shape[1]] = neighbours.positions
    distances[chunk.is_valid, : neighbours.positions.shape[1]] = neighbours.distances
    return positions, distances


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
