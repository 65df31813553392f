"""The job of a join: cells are searched, what they find is collected, and the result is written.

A *cell* is a block of left rows against a block of right rows: a chunk of the left side against a
part of the right one, or groups of rows with equal keys. There are two collectors. The nearest k of
each left row are merged by chunk and written in the same job. All pairs within a distance are never
held at once: they are spilled to scratch and counted before any of the result is written.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import TooManyPairs
from lancestat.joins.action import CommitResult, JoinStage, Probe
from lancestat.joins.output.writer import Written
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.ivf import SampledResult
from lancestat.joins.search.neighbours import Neighbours, merge, nothing
from lancestat.joins.search.pair_store import MOST_HELD, Pairs, PairStore, WrittenPairs, write_pairs
from lancestat.joins.search.request import RANGE_NEIGHBOURS, JoinRequest
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.materialize import Materializer, ProbedChunk
from lancestat.joins.spark.reader import Side, VectorReader, row_places, rows_after
from lancestat.joins.spark.tasks import (
    SEARCHING,
    WRITING,
    Grid,
    ProgressMeter,
    TaskProgress,
    cut,
    worker_task,
)
from lancestat.runs.stages import OnStage
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs, Merging

# Left rows that a radius search compares at a time: each time it streams the right side.
SLICE_ROWS = 16_384
# Left rows of a bin, by which spilled pairs are found again.
_BIN_ROWS = 1024
# Where a row has as many neighbours as fit, it is searched again with so many times the capacity.
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class LeftRows:
    """Left rows that can match: (n,) positions, (n, dimension) vectors, and (n,) groups by keys."""

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    groups: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64] | slice) -> LeftRows:
        groups = None if self.groups is None else self.groups[which]
        return LeftRows(self.positions[which], self.vectors[which], groups)


@dataclass(frozen=True, slots=True)
class CellResult:
    """The neighbours of the left rows at `positions` (n,), which are in any order.

    `excluded` of the right rows that were met cannot match; `pairs` were compared. `sampled` are
    queries that measure the recall, if there are any.
    """

    positions: NDArray[np.int64]
    neighbours: Neighbours
    excluded: int = 0
    pairs: int = 0
    sampled: SampledResult | None = None

    def merged(self, other: CellResult, k: int) -> CellResult:
        """Merge what was found in other right rows for the same left rows, or for other ones."""
        mine, theirs = self.neighbours, other.neighbours
        positions = self.positions
        if np.array_equal(positions, other.positions):
            neighbours = merge([mine, theirs], k)
        else:
            positions = np.concatenate([positions, other.positions])
            neighbours = Neighbours(
                np.concatenate([mine.positions, theirs.positions]),
                np.concatenate([mine.distances, theirs.distances]),
            )
        sampled = self.sampled or other.sampled
        if self.sampled is not None and other.sampled is not None:
            sampled = self.sampled.merged(other.sampled, k)
        return CellResult(
            positions,
            neighbours,
            self.excluded + other.excluded,
            self.pairs + other.pairs,
            sampled,
        )


class Cell(Protocol):
    """A block of left rows against a block of right rows. It is pickled."""

    @property
    def left_count(self) -> int: ...


CellT = TypeVar("CellT", bound=Cell)


class CellSearch(ABC, Generic[CellT]):
    """How a strategy searches cells. It is pickled."""

    __slots__ = ()

    @abstractmethod
    def left_rows(self, cell: CellT) -> Iterator[LeftRows]:
        """Yield the left rows of a cell, those together that are searched in one pass."""

    @abstractmethod
    def nearest(self, cell: CellT, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        """Return up to k right rows of the cell that are nearest to left rows, within the limit.

        `is_first` is true in one of the passes over a cell, which counts its excluded right rows.
        """

    @abstractmethod
    def by_chunk(self, cell: CellT, result: CellResult) -> Iterator[tuple[int, CellResult]]:
        """Yield the result by the chunks of the left side that its rows are in."""


@dataclass(frozen=True, slots=True)
class ChunkCell:
    """A chunk of left rows against one part of the right side."""

    chunk: int
    left: Rows
    part: int = 0

    @property
    def left_count(self) -> int:
        return len(self.left)


def chunk_cells(grid: Grid) -> list[ChunkCell]:
    return [
        ChunkCell(number, chunk, part)
        for number, chunk in enumerate(grid.chunks)
        for part in range(grid.parts)
    ]


@dataclass(frozen=True, slots=True)
class ChunkSearch(CellSearch[ChunkCell]):
    """A strategy whose cells are chunks of left rows; with `slice_rows` they come in slices."""

    left: VectorReader
    request: JoinRequest
    slice_rows: int | None = None

    def left_rows(self, cell: ChunkCell) -> Iterator[LeftRows]:
        count = -(-len(cell.left) // self.slice_rows) if self.slice_rows else 1
        for rows in cut(cell.left, max(1, count)):
            read = self.left.read(rows)
            yield LeftRows(rows.start + np.flatnonzero(read.valid), read.values[read.valid])

    def by_chunk(self, cell: ChunkCell, result: CellResult) -> Iterator[tuple[int, CellResult]]:
        yield cell.chunk, result


@dataclass(frozen=True, slots=True)
class ExactCells(ChunkSearch):
    """Compares every pair, streaming one of the `parts` of the right side."""

    right: VectorReader = field(kw_only=True)
    parts: tuple[Rows, ...] = field(kw_only=True)

    def nearest(self, cell: ChunkCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        request, read, after = self.request, self.parts[cell.part], None
        if request.pairs_once:
            _, after = row_places(self.left.side, self.right.side, rows.positions)
            # The first chunk meets every right row once, and so counts those that cannot match.
            read = read if cell.chunk == 0 and is_first else rows_after(read, after)
        nearest = ExactSearch(rows.vectors, k, request.metric, limit=request.limit, after=after)
        excluded = pairs = 0
        for block in self.right.blocks(read):
            excluded += block.excluded
            pairs += len(block.rows) * len(rows)
            if after is not None:
                pairs -= int(np.searchsorted(block.positions, after).sum())
            nearest.add(block.rows, block.positions)
        return CellResult(rows.positions, nearest.neighbours(), excluded * is_first, pairs)


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """A chunk of the result, written but not committed, and its counts.

    `excluded` are right rows that cannot match, of the whole right side.
    """

    written: Written
    matched: int
    excluded: int
    pairs: int
    distances: CellCounts
    sampled: SampledResult | None = None


def written_chunk(
    materialize: Materializer, number: int, rows: Rows, result: CellResult
) -> WrittenChunk:
    """Write a chunk of the result from the neighbours of its rows."""
    order = np.argsort(result.positions)
    is_valid = np.zeros(len(rows), np.bool_)
    is_valid[result.positions - rows.start] = True
    probed = ProbedChunk(number, rows, is_valid, result.neighbours.some(order))
    chunk = materialize.completed(materialize.without_self(probed))
    matched = int((chunk.neighbours.positions >= 0).any(axis=1).sum())
    tally = DistanceTally(materialize.ranks)
    tally.add(chunk.neighbours)
    written = materialize.write(chunk)
    counts = tally.counts()
    return WrittenChunk(written, matched, result.excluded, result.pairs, counts, result.sampled)


@dataclass(frozen=True, slots=True)
class _Spilled:
    written: WrittenPairs
    found: int
    pairs: int
    excluded: int


@dataclass(frozen=True, slots=True)
class CellJob:
    """The job over the cells of a join, which is the work of two `stages`.

    Its methods write the result by chunks of the left side, commit nothing, and raise a
    WorkerError inside Spark's exception for what a worker raised, after Spark's own retries.
    """

    jobs: Jobs
    materialize: Materializer
    request: JoinRequest
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def nearest(
        self, search: CellSearch[CellT], cells: Sequence[CellT], grid: Grid
    ) -> list[WrittenChunk]:
        """Search the nearest k of each left row; return the chunks in their order.

        With a cell for each chunk there is no shuffle: a task searches, and writes what it found.
        Few neighbours are merged by the driver, sooner than tasks for that would start.
        """
        materialize, chunks, k = self.materialize, grid.chunks, self.request.searched
        probed, listen = self._probed(search), self._meter(cells, chunks).listen
        written = self._written(chunks)

        def probed_and_written(
            task_cells: Iterable[CellT],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            for result, steps in probed(task_cells):
                for chunk, more in written([result]):
                    yield chunk, [*steps, *more]

        merge_two = partial(CellResult.merged, k=k)
        if grid.merges_on_driver:
            results = self.jobs.run(probed, cells, listen)
            merged = reduce(merge_two, (result for _, result in results))
            return [written_chunk(materialize, 0, chunks[0], merged)]
        if grid.parts == 1:
            done = dict(self.jobs.run(probed_and_written, cells, listen))
        else:
            merging = Merging(len(chunks), merge_two, written)
            done = dict(self.jobs.run_merged(probed, merging, cells, listen))
        return [done[number] for number in range(len(chunks))]

    def within(
        self,
        search: CellSearch[CellT],
        cells: Sequence[CellT],
        chunks: Sequence[Rows],
        uri: str,
        storage_options: Mapping[str, str],
    ) -> list[WrittenChunk]:
        """Search all pairs within the limit; return the chunks in their order.

        Args:
            search: Of any cells.
            cells: All of them.
            chunks: Of the left side.
            uri: Where pairs are spilled to.
            storage_options: For the store there.
        """
        firsts = [0]
        starts: list[int] = []
        for chunk in chunks:
            starts += range(chunk.start, chunk.stop, _BIN_ROWS)
            firsts.append(len(starts))
        edges = np.array([*starts, chunks[-1].stop], np.int64)
        done = self._spilled(search, cells, edges, uri, storage_options)
        found, pairs = sum(part.found for part in done), sum(part.pairs for part in done)
        if self.request.is_exceeded_by(found):
            raise too_many(found, self.request)
        parts = [part.written for part in done if part.written.fragments]
        store = PairStore.commit(parts, edges, uri, storage_options) if parts else None
        excluded = max((part.excluded for part in done), default=0)
        stores = [
            None if store is None else store.of_bins(first, last)
            for first, last in pairwise(firsts)
        ]
        return [
            replace(chunk, excluded=excluded, pairs=pairs * (number == 0))
            for number, chunk in enumerate(self._written_pairs(chunks, stores))
        ]

    def _probed(
        self, search: CellSearch[CellT]
    ) -> Callable[[Iterable[CellT]], Iterator[tuple[tuple[int, CellResult], list[TaskProgress]]]]:
        k, threads, probing = self.request.searched, self.threads, self.stages[0]
        options = self.materialize.writer.storage_options

        def probed(
            task_cells: Iterable[CellT],
        ) -> Iterator[tuple[tuple[int, CellResult], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    started = time.perf_counter()
                    [rows] = search.left_rows(cell)
                    result = search.nearest(cell, rows, k, is_first=True)
                    seconds = time.perf_counter() - started
                    steps = [TaskProgress(probing, cell.left_count, result.pairs, seconds)]
                    for part in search.by_chunk(cell, result):
                        yield part, steps
                        steps = []

        return probed

    def _written(
        self, chunks: Sequence[Rows]
    ) -> Callable[
        [Iterable[tuple[int, CellResult]]],
        Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]],
    ]:
        materialize, threads, committing = self.materialize, self.threads, self.stages[1]

        def written(
            results: Iterable[tuple[int, CellResult]],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number, result in results:
                    rows = chunks[number]
                    chunk = written_chunk(materialize, number, rows, result)
                    yield (number, chunk), [TaskProgress(committing, len(rows))]

        return written

    def _spilled(
        self,
        search: CellSearch[CellT],
        cells: Sequence[CellT],
        edges: NDArray[np.int64],
        uri: str,
        storage_options: Mapping[str, str],
    ) -> list[_Spilled]:
        request, threads, probing = self.request, self.threads, self.stages[0]
        sides = (self.materialize.left, self.materialize.right)

        def spilled(task_cells: Iterable[CellT]) -> Iterator[tuple[_Spilled, list[TaskProgress]]]:
            with worker_task(threads, storage_options, SEARCHING):
                require_visible(uri)
                for cell in task_cells:
                    started = time.perf_counter()
                    collected = RadiusSearch(search, cell, request)
                    parts = collected.pairs_without_self(*sides)
                    written = write_pairs(parts, edges, uri, storage_options)
                    seconds = time.perf_counter() - started
                    pairs, excluded = collected.compared, collected.excluded
                    steps = [TaskProgress(probing, cell.left_count, pairs, seconds)]
                    yield _Spilled(written, collected.found, pairs, excluded), steps

        return self.jobs.run(spilled, cells, self._meter(cells, ()).listen) if cells else []

    def _written_pairs(
        self, chunks: Sequence[Rows], stores: Sequence[PairStore | None]
    ) -> list[WrittenChunk]:
        materialize, threads, committing = self.materialize, self.threads, self.stages[1]

        def written(numbers: Iterable[int]) -> Iterator[tuple[WrittenChunk, list[TaskProgress]]]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number in numbers:
                    rows = chunks[number]
                    parts = _Matched(_spilled_rows(rows, stores[number]), materialize.ranks)
                    done = materialize.write_parts(number, parts)
                    chunk = WrittenChunk(done, parts.matched, 0, 0, parts.distances.counts())
                    yield chunk, [TaskProgress(committing, len(rows))]

        return self.jobs.run(written, range(len(chunks)), self._meter((), chunks).listen)

    def _meter(self, cells: Sequence[Cell], chunks: Sequence[Rows]) -> ProgressMeter:
        probing, committing = self.stages
        rows: dict[JoinStage, int] = {
            probing: sum(cell.left_count for cell in cells),
            committing: sum(map(len, chunks)),
        }
        tasks = min(max(len(cells), len(chunks)), self.jobs.cores)
        return ProgressMeter(self.on_stage, rows, tasks)


def too_many(pairs: int, request: JoinRequest) -> TooManyPairs:
    return TooManyPairs(
        f"more than {request.max_pairs:,} pairs are within the distance {request.max_distance:g}: "
        f"{pairs:,} were found before the join stopped",
        hint="lower 'max_distance', give a number as 'k', or raise 'max_pairs'",
    )


class RadiusSearch(Generic[CellT]):
    """Collects all pairs of a cell within the limit, and ends where there are too many of them.

    `capacity` is the number of neighbours of each row at first: rows that have more are searched
    again. No more than `most` neighbours are held at once, unless a single row has more.
    """

    def __init__(
        self,
        search: CellSearch[CellT],
        cell: CellT,
        request: JoinRequest,
        *,
        capacity: int = RANGE_NEIGHBOURS,
        most: int = MOST_HELD,
    ) -> None:
        self._search = search
        self._cell = cell
        self._request = request
        self._capacity = capacity
        self._most = most
        self.found = self.compared = self.excluded = 0

    def neighbours(self) -> Iterator[tuple[LeftRows, Neighbours]]:
        """Yield left rows that can match, and their neighbours, as many as the widest row has."""
        is_first = True
        for rows in self._search.left_rows(self._cell):
            found = self._nearest(rows, self._capacity, is_first=is_first)
            is_first = False
            yield from self._all(rows, found)

    def pairs_without_self(self, left: Side, right: Side) -> Iterator[Pairs]:
        """Yield the pairs, those of a row with itself left out where the request says so."""
        for rows, found in self.neighbours():
            pairs = Pairs.of(rows.positions, found)
            if self._request.excludes_self:
                own, _ = row_places(left, right, rows.positions)
                counts = np.count_nonzero(found.positions >= 0, axis=1)
                pairs = pairs.some(pairs.right != np.repeat(own, counts))
            self.found += len(pairs)
            if self._request.is_exceeded_by(self.found):
                raise too_many(self.found, self._request)
            yield pairs

    def _nearest(self, rows: LeftRows, k: int, *, is_first: bool = False) -> Neighbours:
        result = self._search.nearest(self._cell, rows, k, is_first=is_first)
        self.compared += result.pairs
        self.excluded = max(self.excluded, result.excluded)
        return result.neighbours

    def _all(self, rows: LeftRows, found: Neighbours) -> Iterator[tuple[LeftRows, Neighbours]]:
        capacity = found.positions.shape[1]
        is_full = found.positions[:, -1] >= 0
        wider = capacity * _GROWTH
        if not is_full.any():
            yield rows, found
        elif len(rows) > 1 and len(rows) * wider > self._most:
            middle = len(rows) // 2
            for half in (slice(middle), slice(middle, None)):
                yield from self._all(rows.some(half), found.some(half))
        else:
            again = self._nearest(rows.some(is_full), wider)
            widened = nothing(len(rows), wider)
            widened.positions[:, :capacity] = found.positions
            widened.distances[:, :capacity] = found.distances
            widened.positions[is_full], widened.distances[is_full] = (
                again.positions,
                again.distances,
            )
            yield from self._all(rows, widened)


def _spilled_rows(rows: Rows, store: PairStore | None) -> Iterator[tuple[Rows, Neighbours]]:
    if store is None:
        for start in range(rows.start, rows.stop, _BIN_ROWS):
            some = Rows(start, min(start + _BIN_ROWS, rows.stop))
            yield some, nothing(len(some), 1)
        return
    yield from store.neighbours(pinned_dataset(store.pin, store.storage_options))


class _Matched:
    """Passes parts of a chunk on, and counts left rows that have neighbours, and distances."""

    def __init__(self, parts: Iterable[tuple[Rows, Neighbours]], ranks: Sequence[int]) -> None:
        self._parts = parts
        self.matched = 0
        self.distances = DistanceTally(ranks)

    def __iter__(self) -> Iterator[ProbedChunk]:
        for rows, neighbours in self._parts:
            self.matched += int(np.count_nonzero((neighbours.positions >= 0).any(axis=1)))
            self.distances.add(neighbours)
            yield ProbedChunk(0, rows, np.ones(len(rows), np.bool_), neighbours)


def count_valid(jobs: Jobs, reader: VectorReader, parts: Sequence[Rows]) -> list[int]:

    def counted(task_parts: Iterable[Rows]) -> Iterator[tuple[int, tuple[()]]]:
        with worker_task(1, reader.side.storage_options, f"counting the {reader.name} rows"):
            for rows in task_parts:
                yield reader.count(rows), ()

    return jobs.run(counted, parts)
