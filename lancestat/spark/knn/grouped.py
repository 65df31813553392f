"""Joins of rows with equal keys: both sides are laid out by group, and each group is searched."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.knn.groups import GroupCell, Groups, distinct_keys, group_cells, key_table
from lancestat.knn.partitions import (
    PartitionedDataset,
    WrittenPart,
    commit,
    read_lists,
    read_piece,
    search_lists,
    write_groups,
)
from lancestat.knn.request import JoinRequest
from lancestat.knn.search import Neighbours, nothing
from lancestat.knn.work import Rows
from lancestat.plan.stages import CommitResult, JoinStage, OnStage, Probe
from lancestat.scratch.folder import require_visible
from lancestat.spark.knn.grid import CHUNK_BYTES, NEIGHBOUR_BYTES, cut
from lancestat.spark.knn.materialize import Materializer
from lancestat.spark.knn.reader import Side, VectorReader, read_columns, row_places
from lancestat.spark.knn.tasks import (
    SEARCHING,
    WRITING,
    ProbeResult,
    ProgressMeter,
    TaskProgress,
    WrittenChunk,
    worker_task,
    written_chunk,
)
from lancestat.spark.read.fragment_reader import pinned_dataset
from lancestat.spark.session.jobs import Jobs, Merging

# Bytes of vectors that a task lays out at once, and that it reads of the right side at once.
LAYOUT_BYTES = 128 << 20
_BLOCK_BYTES = 64 << 20
# Rows by which the search judges how accurate its products are.
_LIKE_ROWS = 2048
# Vectors of so small a share of rows are looked up, and not read through.
_SPARSE = 1 / 16


@dataclass(frozen=True, slots=True)
class GroupedSide:
    """A side by group: `lists` are None where no row is in a group."""

    lists: PartitionedDataset | None
    excluded: int


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """Both sides by group.

    `excluded` right rows cannot match, since their vector cannot or a key is null; `like` are right
    rows, for the accuracy of products.
    """

    left: PartitionedDataset | None
    right: PartitionedDataset | None
    excluded: int
    like: NDArray[np.float32]

    @property
    def groups(self) -> int:
        """The number of groups that have rows of both sides that can match."""
        if self.left is None or self.right is None:
            return 0
        return int(np.count_nonzero((self.left.list_rows > 0) & (self.right.list_rows > 0)))


@dataclass(frozen=True, slots=True)
class Grouping:
    """Lays both sides out by group; its tasks travel to Spark's workers.

    `types` are those in which keys are compared. Unless `counts_all`, the vectors of right rows
    that are in no group need not be read.
    """

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    types: tuple[pa.DataType, ...]
    counts_all: bool

    def lay_out(self, left_uri: str, right_uri: str) -> GroupLayout:
        """Write the rows of groups that both sides have."""
        groups = Groups.common(self._keys(self.left), self._keys(self.right))
        left = self._written(self.left, groups, left_uri, counts_all=False)
        right = self._written(self.right, groups, right_uri, counts_all=self.counts_all)
        like = self.right.sample(_LIKE_ROWS, 8)
        return GroupLayout(left.lists, right.lists, right.excluded, like)

    def _keys(self, reader: VectorReader) -> list[pa.Table]:
        types, side = self.types, reader.side

        def read(task_parts: Iterable[Rows]) -> Iterator[tuple[bytes, tuple[()]]]:
            with worker_task(1, side.storage_options, f"reading keys of the {reader.name} side"):
                for rows in task_parts:
                    yield _encoded(distinct_keys(_read_keys(reader, rows, types))), ()

        return [_decoded(keys) for keys in self.jobs.run(read, self._parts(reader))]

    def _written(
        self, reader: VectorReader, groups: Groups, uri: str, *, counts_all: bool
    ) -> GroupedSide:
        types, options = self.types, reader.side.storage_options

        def write(
            task_parts: Iterable[Rows],
        ) -> Iterator[tuple[tuple[WrittenPart, int], tuple[()]]]:
            with worker_task(1, options, f"laying out the {reader.name} side"):
                require_visible(uri)
                for rows in task_parts:
                    yield _write_part(reader, rows, groups, types, uri, counts_all=counts_all), ()

        if not len(groups) and not counts_all:
            return GroupedSide(None, 0)
        parts = self.jobs.run(write, self._parts(reader))
        excluded = sum(excluded for _, excluded in parts)
        written = [part for part, _ in parts]
        if not any(part.fragments for part in written):
            return GroupedSide(None, excluded)
        return GroupedSide(commit(written, uri, reader.dimension, options), excluded)

    def _parts(self, reader: VectorReader) -> Sequence[Rows]:
        rows, cores = reader.side.all_rows, self.jobs.cores
        blocks = -(-4 * reader.dimension * len(rows) // LAYOUT_BYTES)
        return cut(rows, max(1, min(len(rows), -(-blocks // cores) * cores)))


def _read_keys(reader: VectorReader, rows: Rows, types: Sequence[pa.DataType]) -> pa.Table:
    batches = list(read_columns(reader.side, rows, reader.side.keys))
    if not batches:
        return pa.table({str(at): pa.array([], type) for at, type in enumerate(types)})
    return key_table(pa.Table.from_batches(batches).columns, types)


def _write_part(
    reader: VectorReader,
    rows: Rows,
    groups: Groups,
    types: Sequence[pa.DataType],
    uri: str,
    *,
    counts_all: bool,
) -> tuple[WrittenPart, int]:
    """Write the rows of a range that are in a group, and count those that cannot match."""
    keys = _read_keys(reader, rows, types)
    numbers = groups.assign(keys)
    chosen = np.flatnonzero(numbers >= 0)
    if not counts_all and len(chosen) < _SPARSE * len(rows):
        read = reader.look_up(rows.start + chosen)
        is_null: NDArray[np.bool_] = np.zeros(len(chosen), np.bool_)
        numbers, places = numbers[chosen], rows.start + chosen
    else:
        read, places = reader.read(rows), np.arange(rows.start, rows.stop)
        is_null = _any_null(keys)
    excluded = int(np.count_nonzero(~read.valid | is_null))
    kept = (numbers >= 0) & read.valid
    part = write_groups(
        numbers[kept], places[kept], read.values[kept], len(groups), uri,
        reader.side.storage_options,
    )  # fmt: skip
    return part, excluded


def _any_null(keys: pa.Table) -> NDArray[np.bool_]:
    is_null = np.zeros(len(keys), np.bool_)
    for column in keys.columns:
        is_null |= column.is_null().to_numpy()
    return is_null


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _decoded(encoded: bytes) -> pa.Table:
    return pa.ipc.open_stream(encoded).read_all()


@dataclass(frozen=True, slots=True)
class GroupedNeighbours:
    """Neighbours of some left rows of a chunk: their positions, in any order."""

    positions: NDArray[np.int64]
    neighbours: Neighbours
    pairs: int


def merge_grouped(left: GroupedNeighbours, right: GroupedNeighbours) -> GroupedNeighbours:
    """Put the neighbours of different left rows together."""
    both = (left.neighbours, right.neighbours)
    return GroupedNeighbours(
        np.concatenate([left.positions, right.positions]),
        Neighbours(
            np.concatenate([part.positions for part in both]),
            np.concatenate([part.distances for part in both]),
        ),
        left.pairs + right.pairs,
    )


@dataclass(frozen=True, slots=True)
class GroupProbe:
    """Searches groups for the neighbours of their left rows; travels to Spark's workers.

    `starts` are the positions at which the chunks of left rows start, and `sides` those that were
    laid out.
    """

    left: PartitionedDataset
    right: PartitionedDataset
    like: NDArray[np.float32]
    request: JoinRequest
    dimension: int
    starts: NDArray[np.int64]
    sides: tuple[Side, Side]

    def __call__(self, cell: GroupCell) -> Iterator[tuple[int, GroupedNeighbours]]:
        """Yield the neighbours of a cell's left rows, by chunk of the left side."""
        groups, positions, queries = self._left_rows(cell)
        if not len(queries):
            return
        right, request = self.right, self.request
        searched = search_lists(
            pinned_dataset(right.pin, right.storage_options),
            right,
            queries,
            groups[:, None],
            cell.groups,
            request.searched,
            request.metric,
            limit=request.limit,
            behind=self._behind(positions),
            like=self.like,
        )
        pairs, found = searched.pairs, searched.neighbours
        chunks = np.searchsorted(self.starts, positions, side="right") - 1
        order = np.argsort(chunks, kind="stable")
        numbers, firsts = np.unique(chunks[order], return_index=True)
        for number, (start, stop) in zip(
            numbers.tolist(), pairwise([*firsts.tolist(), len(order)]), strict=True
        ):
            some = order[start:stop]
            part = Neighbours(found.positions[some], found.distances[some])
            yield number, GroupedNeighbours(positions[some], part, pairs)
            pairs = 0

    def _behind(self, positions: NDArray[np.int64]) -> NDArray[np.int64] | None:
        if not self.request.pairs_once:
            return None
        order = np.argsort(positions)
        behind = np.empty(len(positions), np.int64)
        _, behind[order] = row_places(*self.sides, positions[order])
        return behind

    def _left_rows(
        self, cell: GroupCell
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float32]]:
        """Return group, position and vector of the rows."""
        dataset = pinned_dataset(self.left.pin, self.left.storage_options)
        if cell.rows is not None:
            [number] = cell.groups
            first, last = cell.rows.start, cell.rows.stop
            positions, rows = read_piece(dataset, self.left, number, first, last, self.dimension)
            return np.full(len(rows), number, np.int32), positions, rows
        most = max(1, _BLOCK_BYTES // (4 * self.dimension))
        lists = list(read_lists(dataset, self.left, cell.groups, self.dimension, most))
        return (
            np.concatenate([np.full(len(rows), number, np.int32) for number, _, rows in lists]),
            np.concatenate([positions for _, positions, _ in lists]),
            np.concatenate([rows for _, _, rows in lists]),
        )


@dataclass(frozen=True, slots=True)
class GroupedJob:
    """The job over all groups: cells are searched, and neighbours go to the chunks of left rows."""

    jobs: Jobs
    chunks: tuple[Rows, ...]
    materialize: Materializer
    request: JoinRequest
    dimension: int
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def run(self, layout: GroupLayout) -> list[WrittenChunk]:
        """Search all groups, and write the chunks in their order.

        Raises:
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        done = self._searched(layout)
        missing = [number for number in range(len(self.chunks)) if number not in done]
        done |= self._written_empty(missing, layout.excluded)
        return [done[number] for number in range(len(self.chunks))]

    def _searched(self, layout: GroupLayout) -> dict[int, WrittenChunk]:
        left, right = layout.left, layout.right
        if left is None or right is None:
            return {}
        row_bytes = 4 * self.dimension + NEIGHBOUR_BYTES * self.request.searched
        largest = max(1, CHUNK_BYTES // row_bytes)
        cells = list(
            group_cells(
                left.list_rows,
                right.list_rows,
                dimension=self.dimension,
                largest=largest,
                cores=self.jobs.cores,
            )
        )
        if not cells:
            return {}
        chunks, materialize, threads, k = (
            self.chunks, self.materialize, self.threads, self.request.searched
        )  # fmt: skip
        starts = np.array([chunk.start for chunk in chunks], np.int64)
        sides = (materialize.left, materialize.right)
        probe = GroupProbe(left, right, layout.like, self.request, self.dimension, starts, sides)
        options, (probing, committing) = materialize.writer.storage_options, self.stages
        excluded = layout.excluded

        def probed(
            task_cells: Iterable[GroupCell],
        ) -> Iterator[tuple[tuple[int, GroupedNeighbours], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    started = time.perf_counter()
                    for number, part in probe(cell):
                        seconds = time.perf_counter() - started
                        rows = len(part.positions)
                        yield (number, part), [TaskProgress(probing, rows, part.pairs, seconds)]
                        started = time.perf_counter()

        def written(
            results: Iterable[tuple[int, GroupedNeighbours]],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            with worker_task(threads, options, WRITING):
                for number, part in results:
                    rows = chunks[number]
                    chunk = written_chunk(
                        materialize, number, rows, _in_order(part, rows, k, excluded)
                    )
                    yield (number, chunk), [TaskProgress(committing, len(rows))]

        totals: dict[JoinStage, int] = {
            probing: int(left.list_rows[right.list_rows > 0].sum()),
            committing: sum(map(len, chunks)),
        }
        meter = ProgressMeter(self.on_stage, totals, min(len(cells), self.jobs.cores))
        merging = Merging(len(chunks), merge_grouped, written)
        return dict(self.jobs.run_merged(probed, merging, cells, meter.listen))

    def _written_empty(self, numbers: Sequence[int], excluded: int) -> dict[int, WrittenChunk]:
        """Write chunks of which no row is in a group."""
        if not numbers:
            return {}
        chunks, materialize, threads, k = (
            self.chunks, self.materialize, self.threads, self.request.searched
        )  # fmt: skip

        def write(chunk_numbers: Iterable[int]) -> Iterator[tuple[WrittenChunk, tuple[()]]]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number in chunk_numbers:
                    rows = chunks[number]
                    none = np.zeros(len(rows), np.bool_)
                    probed = ProbeResult(none, nothing(0, k), excluded, 0)
                    yield written_chunk(materialize, number, rows, probed), ()

        return dict(zip(numbers, self.jobs.run(write, numbers), strict=True))


def _in_order(part: GroupedNeighbours, rows: Rows, k: int, excluded: int) -> ProbeResult:
    """Return the neighbours of a chunk in the order of its rows."""
    order = np.argsort(part.positions)
    is_valid = np.zeros(len(rows), np.bool_)
    is_valid[part.positions - rows.start] = True
    found = part.neighbours
    neighbours = Neighbours(found.positions[order], found.distances[order])
    return ProbeResult(is_valid, neighbours, excluded, part.pairs)
