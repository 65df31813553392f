"""The job of a join: tasks search cells, collect neighbours, and write the result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import JobFailed, LancestatError, TooManyPairs
from lancestat.joins.action import JoinStage, Probe
from lancestat.joins.output.writer import Written
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.ivf import SampledResult
from lancestat.joins.search.neighbours import Neighbours, nothing, without
from lancestat.joins.search.scratch_tables import (
    MOST_HELD,
    Pairs,
    PairStore,
    WrittenBins,
    write_pairs,
)
from lancestat.joins.search.work import RANGE_NEIGHBOURS, JoinRequest, Rows
from lancestat.joins.spark.cells import (
    Cell,
    CellResult,
    CellSearch,
    CellT,
    ChunkCell,
    Grid,
    LeftRows,
    TaskProgress,
)
from lancestat.joins.spark.kept_pairs import NOT_SHOWN, KeptPairs, WrittenPairs
from lancestat.joins.spark.materialize import Materializer, ProbedChunk
from lancestat.joins.spark.reader import Side, VectorReader, row_places
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.redact import redact_line, secret_values
from lancestat.runs.actions import OnStage, StageProgress
from lancestat.spark.failure import MORE_MEMORY, WorkerError
from lancestat.spark.jobs import Jobs, Merging
from lancestat.spark.versions import prepare_worker

Item = TypeVar("Item")
Result = TypeVar("Result")


class ProgressMeter:
    """Sums the progress of tasks, so many of which run at once, and passes it on as they end.

    `totals` are the rows of each stage.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[JoinStage, int], tasks: int) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[JoinStage] = Counter()
        self._tasks = tasks
        self._pairs = 0
        self._seconds = 0.0

    def listen(self, steps: Sequence[TaskProgress]) -> None:
        for stage, rows, pairs, seconds in steps:
            self._rows[stage] += rows
            self._pairs += pairs
            self._seconds += seconds
        if self._on_stage is None:
            return
        try:
            for stage in dict.fromkeys(step[0] for step in steps):
                rate = None
                if isinstance(stage, Probe) and self._seconds:
                    rate = self._pairs * self._tasks / self._seconds
                done, total = self._rows[stage], self._totals.get(stage)
                self._on_stage(StageProgress(stage, done, total, rate))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None


# Descriptions of what tasks do, for errors.
SEARCHING = "searching for neighbours"
WRITING = "writing the result"


@contextmanager
def worker_task(threads: int, storage_options: Mapping[str, str], doing: str) -> Iterator[None]:
    """Prepare the worker for a task, and make errors of the block ones that reach the driver.

    `doing` describes the task in errors that are not LancestatErrors.
    """
    prepare_worker(threads, "lancestat.joins.spark.materialize")
    try:
        yield
    except WorkerError:
        # It comes from an earlier stage in the same task.
        raise
    except LancestatError as error:
        raise WorkerError.carrying(error) from None
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        reason = redact_line(f"{type(error).__name__}: {error}", secret_values(storage_options))
        hint = MORE_MEMORY if isinstance(error, MemoryError) else None
        failed = JobFailed(f"{doing} failed: {reason}", hint=hint)
        raise WorkerError.carrying(failed) from error


def run_each(
    jobs: Jobs,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    storage_options: Mapping[str, str],
    doing: str,
    threads: int = 1,
) -> list[Result]:
    """Return the results of a function that tasks call; other arguments as for `worker_task`."""

    def task(task_items: Iterable[Item]) -> Iterator[tuple[Result, tuple[()]]]:
        with worker_task(threads, storage_options, doing):
            for item in task_items:
                yield function(item), ()

    return jobs.run(task, items)


# Left rows that a radius search compares at a time: each time it streams the right side.
SLICE_ROWS = 16_384
# Left rows of a bin, by which spilled pairs are found again.
_BIN_ROWS = 1024
# Where a row has as many neighbours as fit, it is searched again with so many times the capacity.
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """A chunk of the result that is not committed; `excluded` are right rows that cannot match.

    Of an update, `removed` are lines of the last result, and the left rows have `shown` neighbours.
    """

    written: Written | None
    matched: int
    excluded: int
    pairs: int
    distances: CellCounts
    sampled: SampledResult | None = None
    kept: WrittenPairs | None = None
    removed: NDArray[np.int64] | None = None
    shown: int = 0


def written_chunk(
    materialize: Materializer, number: int, rows: Rows, result: CellResult
) -> WrittenChunk:
    is_valid = np.zeros(len(rows), np.bool_)
    is_valid[result.positions - rows.start] = True
    probed = ProbedChunk(number, rows, is_valid, result.neighbours)
    found = materialize.without_self(probed)
    chunk, kept = materialize.shown_of(found), materialize.kept(found, 0)
    matched = int((chunk.neighbours.positions >= 0).any(axis=1).sum())
    tally = DistanceTally(materialize.ranks)
    tally.add(chunk.neighbours)
    written = materialize.write(number, [chunk])
    counts = tally.counts()
    return WrittenChunk(
        written,
        matched,
        result.excluded,
        result.pairs,
        counts,
        result.sampled,
        kept=materialize.keep([] if kept is None else [kept]),
    )


# Pairs that a task has spilled: how many it found and compared, and the right rows it excluded.
_Spilled = tuple[WrittenBins, int, int, int]


@dataclass(frozen=True, slots=True)
class CellJob:
    """The job over the cells of a join; its tasks make progress in two `stages`: probe and commit.

    Its methods write the result by chunks of the left side and commit nothing. What a worker raised
    is a WorkerError inside Spark's exception. `known_pairs` are those of the last result, which
    count for the limit where the new ones are put behind them.
    """

    jobs: Jobs
    materialize: Materializer
    request: JoinRequest
    threads: int
    stages: tuple[JoinStage, JoinStage]
    on_stage: OnStage
    known_pairs: int = 0

    def nearest(
        self, search: CellSearch[ChunkCell], cells: Sequence[ChunkCell], grid: Grid
    ) -> list[WrittenChunk]:
        """Search the nearest k of each left row; return the chunks in their order.

        With a cell for each chunk a task writes what it found, and few neighbours are merged by the
        driver, sooner than tasks for that would start.
        """
        materialize, chunks, k = self.materialize, grid.chunks, self.request.searched
        probed, listen = self._probed(search), self._meter(cells, chunks).listen
        written = self._written(chunks)

        def probed_and_written(
            task_cells: Iterable[ChunkCell],
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

    def spilled(
        self,
        search: CellSearch[CellT],
        cells: Sequence[CellT],
        chunks: Sequence[Rows],
        uri: str,
        storage_options: Mapping[str, str],
        excluded: int = 0,
    ) -> list[WrittenChunk]:
        """Search all pairs within the limit, or the nearest k in cells that are no chunks.

        Pairs are spilled to `uri`, which `storage_options` reach. `excluded` right rows, which no
        cell meets, cannot match. Returns the chunks in their order.
        """
        firsts = [0]
        starts: list[int] = []
        for chunk in chunks:
            starts += range(chunk.start, chunk.stop, _BIN_ROWS)
            firsts.append(len(starts))
        edges = np.array([*starts, chunks[-1].stop], np.int64)
        done = self._spilled(search, cells, edges, uri, storage_options)
        found = self.known_pairs + sum(part[1] for part in done)
        pairs = sum(part[2] for part in done)
        if self.request.is_exceeded_by(found):
            raise too_many(found, self.request)
        parts = [written for written, *_ in done if written.fragments]
        store = PairStore.of(parts, edges, uri, storage_options) if parts else None
        excluded = max([excluded, *(part[3] for part in done)])
        stores = [
            None if store is None else store.of_bins(first, last)
            for first, last in pairwise(firsts)
        ]
        return [
            replace(chunk, excluded=excluded, pairs=pairs * (number == 0))
            for number, chunk in enumerate(self._written_pairs(chunks, stores))
        ]

    def update(
        self, bring_up: Callable[[CellT], WrittenChunk], cells: Sequence[CellT]
    ) -> list[WrittenChunk]:
        """Bring cells of the last result up to date; return them in their order."""
        threads, (probing, committing) = self.threads, self.stages
        options = self.materialize.writer.storage_options

        def updated(
            task_cells: Iterable[CellT],
        ) -> Iterator[tuple[WrittenChunk, list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    started = time.perf_counter()
                    chunk = bring_up(cell)
                    seconds = time.perf_counter() - started
                    steps = [(probing, cell.left_count, chunk.pairs, seconds)]
                    yield chunk, [*steps, (committing, cell.left_count, 0, 0.0)]

        return self.jobs.run(updated, cells, self._meter(cells, ()).listen)

    def _probed(
        self, search: CellSearch[ChunkCell]
    ) -> Callable[
        [Iterable[ChunkCell]], Iterator[tuple[tuple[int, CellResult], list[TaskProgress]]]
    ]:
        k, threads, probing = self.request.searched, self.threads, self.stages[0]
        options = self.materialize.writer.storage_options

        def probed(
            task_cells: Iterable[ChunkCell],
        ) -> Iterator[tuple[tuple[int, CellResult], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    started = time.perf_counter()
                    [rows] = search.left_rows(cell)
                    result = search.nearest(cell, rows, k, is_first=True)
                    seconds = time.perf_counter() - started
                    steps = [(probing, cell.left_count, result.pairs, seconds)]
                    yield (cell.chunk, result), steps

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
                    yield (number, chunk), [(committing, len(rows), 0, 0.0)]

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

        collector = RadiusSearch if request.is_radius else NearestSearch

        def spilled(task_cells: Iterable[CellT]) -> Iterator[tuple[_Spilled, list[TaskProgress]]]:
            with worker_task(threads, storage_options, SEARCHING):
                require_visible(uri)
                for cell in task_cells:
                    started = time.perf_counter()
                    found = collector(search, cell, request)
                    pairs = found.counted_pairs(*sides)
                    written = write_pairs(pairs, edges, uri, storage_options)
                    seconds = time.perf_counter() - started
                    steps = [(probing, cell.left_count, found.compared, seconds)]
                    yield (written, found.found, found.compared, found.excluded), steps

        return self.jobs.run(spilled, cells, self._meter(cells, ()).listen) if cells else []

    def _written_pairs(
        self, chunks: Sequence[Rows], stores: Sequence[PairStore | None]
    ) -> list[WrittenChunk]:
        materialize, threads, committing = self.materialize, self.threads, self.stages[1]

        def written(numbers: Iterable[int]) -> Iterator[tuple[WrittenChunk, list[TaskProgress]]]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number in numbers:
                    rows = chunks[number]
                    chunk = _write_spilled(materialize, number, rows, stores[number])
                    yield chunk, [(committing, len(rows), 0, 0.0)]

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


class NearestSearch(Generic[CellT]):
    """Collects the nearest k of each left row of a cell."""

    def __init__(self, search: CellSearch[CellT], cell: CellT, request: JoinRequest) -> None:
        self._search = search
        self._cell = cell
        self._request = request
        self.found = self.compared = self.excluded = 0

    def counted_pairs(self, left: Side, right: Side) -> Iterator[Pairs]:
        """Yield the pairs, without those of a row and itself where they do not count."""
        request = self._request
        for number, rows in enumerate(self._search.left_rows(self._cell)):
            result = self._search.nearest(self._cell, rows, request.searched, is_first=not number)
            self.compared += result.pairs
            neighbours = result.neighbours
            if request.excludes_self:
                own, _ = row_places(left, right, rows.positions)
                neighbours = without(neighbours, own)
            pairs = Pairs.of(rows.positions, neighbours)
            self.found += len(pairs)
            yield pairs


class RadiusSearch(Generic[CellT]):
    """Collects all pairs of a cell within the limit, and ends where there are too many of them.

    Rows that have more than `capacity` neighbours are searched again. No more than `most`
    neighbours are held at once, unless a single row has more.
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

    def counted_pairs(self, left: Side, right: Side) -> Iterator[Pairs]:
        """Yield the pairs that count where both sides are the same rows, else all."""
        request = self._request
        for rows, found in self.neighbours():
            pairs = Pairs.of(rows.positions, found)
            if request.self_pairs is not None:
                own, after = row_places(left, right, rows.positions)
                counts = np.count_nonzero(found.positions >= 0, axis=1)
                places = np.repeat(after if request.pairs_once else own, counts)
                is_counted = pairs.right >= places if request.pairs_once else pairs.right != places
                pairs = pairs.some(is_counted)
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
    yield from store.neighbours()


def _write_spilled(
    materialize: Materializer, number: int, rows: Rows, store: PairStore | None
) -> WrittenChunk:
    """Write a chunk of the result from spilled pairs of its rows, None where there are none."""
    tally, matched, lines = DistanceTally(materialize.ranks), 0, 0
    kept: list[KeptPairs] = []

    def parts() -> Iterator[ProbedChunk]:
        nonlocal matched, lines
        for some, neighbours in _spilled_rows(rows, store):
            matched += int(np.count_nonzero((neighbours.positions >= 0).any(axis=1)))
            found = ProbedChunk(0, some, np.ones(len(some), np.bool_), neighbours)
            chunk, pairs = materialize.shown_of(found), materialize.kept(found, lines)
            tally.add(chunk.neighbours)
            if pairs is not None:
                lines += int(np.count_nonzero(pairs.lines != NOT_SHOWN))
                kept.append(pairs)
            yield chunk

    done = materialize.write(number, parts())
    return WrittenChunk(done, matched, 0, 0, tally.counts(), kept=materialize.keep(kept))


def count_valid(jobs: Jobs, reader: VectorReader, parts: Sequence[Rows]) -> list[int]:
    options, doing = reader.side.storage_options, f"counting the {reader.name} rows"
    return run_each(
        jobs, lambda rows: int(np.count_nonzero(reader.valid(rows))), parts, options, doing
    )
