"""Tasks that search neighbours, and the Spark job that runs them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import JobFailed, LancestatError
from lancestat.joins.action import CommitResult, JoinStage, Probe
from lancestat.joins.output.writer import Written
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.list_search import SampledResult
from lancestat.joins.search.neighbours import Neighbours, merge
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.grid import Grid
from lancestat.joins.spark.materialize import Materializer, ProbedChunk
from lancestat.joins.spark.reader import VectorReader, row_places, rows_behind
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.redact import redact_line, secret_values
from lancestat.runs.stages import OnStage, StageProgress
from lancestat.spark.failure import MORE_MEMORY, WorkerError
from lancestat.spark.jobs import Jobs, Merging
from lancestat.spark.python import prepare_worker


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Rows and pairs that a task has processed, and the seconds that its pairs took."""

    stage: JoinStage
    rows: int
    pairs: int = 0
    seconds: float = 0.0


class ProgressMeter:
    """Sums the progress of tasks, and passes it on.

    Args:
        on_stage: Called each time that a task ends.
        totals: The number of rows of each stage.
        tasks: The number of tasks that run at once.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[JoinStage, int], tasks: int) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[JoinStage] = Counter()
        self._tasks = tasks
        self._pairs = 0
        self._seconds = 0.0

    def listen(self, steps: Sequence[TaskProgress]) -> None:
        """Add the progress of tasks."""
        for step in steps:
            self._rows[step.stage] += step.rows
            self._pairs += step.pairs
            self._seconds += step.seconds
        if self._on_stage is None:
            return
        try:
            for stage in dict.fromkeys(step.stage for step in steps):
                self._on_stage(self._progress(stage))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None

    def _progress(self, stage: JoinStage) -> StageProgress:
        rate = None
        if isinstance(stage, Probe) and self._seconds:
            rate = self._pairs * self._tasks / self._seconds
        return StageProgress(stage, self._rows[stage], self._totals.get(stage), rate)


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


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk of left rows against one part of the right side."""

    chunk: int
    left: Rows
    part: int


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The neighbours of one chunk of left rows in one part of the right side.

    `neighbours` are those of the left rows that can match, in order; `is_valid` tells which of the
    chunk's rows these are. `excluded` right rows of the part cannot match; `pairs` were compared,
    in `seconds`. `sampled` are the queries that measure the recall, if there are any.
    """

    is_valid: NDArray[np.bool_]
    neighbours: Neighbours
    excluded: int
    pairs: int
    seconds: float = 0.0
    sampled: SampledResult | None = None


@dataclass(frozen=True, slots=True)
class ExactProbe:
    """Compares every pair, streaming the rows of one of `parts`; travels to Spark's workers."""

    left: VectorReader
    right: VectorReader
    parts: tuple[Rows, ...]
    request: JoinRequest

    def __call__(self, cell: Cell) -> ProbeResult:
        """Search one part of the right side for the neighbours of one chunk."""
        started = time.perf_counter()
        queries = self.left.read(cell.left)
        vectors = queries.values[queries.valid]
        request = self.request
        rows, behind = self.parts[cell.part], None
        if request.pairs_once:
            positions = cell.left.start + np.flatnonzero(queries.valid)
            _, behind = row_places(self.left.side, self.right.side, positions)
            # The first chunk also counts the rows that cannot match.
            rows = rows if cell.chunk == 0 else rows_behind(rows, behind)
        nearest = ExactSearch(
            vectors, request.searched, request.metric, limit=request.limit, behind=behind
        )
        excluded = pairs = 0
        for block in self.right.blocks(rows):
            excluded += block.excluded
            pairs += len(block.rows) * len(vectors)
            if behind is not None:
                pairs -= int(np.searchsorted(block.positions, behind).sum())
            nearest.add(block.rows, block.positions)
        seconds = time.perf_counter() - started
        return ProbeResult(queries.valid, nearest.neighbours(), excluded, pairs, seconds)


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


class Prober(Protocol):
    """A strategy inside Spark's workers. It is pickled."""

    def __call__(self, cell: Cell) -> ProbeResult:
        """Return the neighbours of the chunk in that part of the right side."""
        ...


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The job over every chunk and part of a grid, which is the work of two `stages`.

    Where there is one part there is no shuffle: a task does all three stages for its chunk. Few
    neighbours are merged by the driver, sooner than tasks for that would start.
    """

    jobs: Jobs
    shares: Grid
    materialize: Materializer
    k: int
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def run(self, probe: Prober) -> list[WrittenChunk]:
        """Search all cells, merge what belongs to one chunk, and write it; chunks in their order.

        Raises:
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        shares, materialize, threads = self.shares, self.materialize, self.threads
        options, (probing, committing) = materialize.writer.storage_options, self.stages
        cells = [
            Cell(number, chunk, part)
            for number, chunk in enumerate(shares.chunks)
            for part in range(shares.parts)
        ]
        listener = self._meter(cells).listen

        def probed(
            task_cells: Iterable[Cell],
        ) -> Iterator[tuple[tuple[int, ProbeResult], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    done = probe(cell)
                    steps = [TaskProgress(probing, len(cell.left), done.pairs, done.seconds)]
                    yield (cell.chunk, done), steps

        def written(
            task_results: Iterable[tuple[int, ProbeResult]],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            with worker_task(threads, options, WRITING):
                for number, done in task_results:
                    rows = shares.chunks[number]
                    chunk = written_chunk(materialize, number, rows, done)
                    yield (number, chunk), [TaskProgress(committing, len(rows))]

        def probed_and_written(
            task_cells: Iterable[Cell],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            for result, steps in probed(task_cells):
                for chunk, more in written([result]):
                    yield chunk, [*steps, *more]

        merge_two = partial(_merged, k=self.k)
        if shares.merges_on_driver:
            results = self.jobs.run(probed, cells, listener)
            merged = reduce(merge_two, (result for _, result in results))
            return [written_chunk(materialize, 0, shares.chunks[0], merged)]
        if shares.parts > 1:
            merging = Merging(len(shares.chunks), merge_two, written)
            done = dict(self.jobs.run_merged(probed, merging, cells, listener))
        else:
            done = dict(self.jobs.run(probed_and_written, cells, listener))
        return [done[number] for number in range(len(shares.chunks))]

    def _meter(self, cells: Sequence[Cell]) -> ProgressMeter:
        probing, committing = self.stages
        totals: dict[JoinStage, int] = {
            probing: sum(len(cell.left) for cell in cells),
            committing: sum(map(len, self.shares.chunks)),
        }
        return ProgressMeter(self.on_stage, totals, min(len(cells), self.jobs.cores))


def _merged(left: ProbeResult, right: ProbeResult, k: int) -> ProbeResult:
    return replace(
        left,
        neighbours=merge([left.neighbours, right.neighbours], k),
        excluded=left.excluded + right.excluded,
        pairs=left.pairs + right.pairs,
        sampled=_merged_samples(left.sampled, right.sampled, k),
    )


def _merged_samples(
    left: SampledResult | None, right: SampledResult | None, k: int
) -> SampledResult | None:
    if left is None or right is None:
        return left or right
    return SampledResult(merge([left.found, right.found], k), merge([left.true, right.true], k))


def written_chunk(
    materialize: Materializer, number: int, rows: Rows, done: ProbeResult
) -> WrittenChunk:
    """Write a chunk of the result from the neighbours in `done`."""
    probed = ProbedChunk(number, rows, done.is_valid, done.neighbours)
    chunk = materialize.completed(materialize.without_self(probed))
    matched = int((chunk.neighbours.positions >= 0).any(axis=1).sum())
    tally = DistanceTally(materialize.ranks)
    tally.add(chunk.neighbours)
    written = materialize.write(chunk)
    counts = tally.counts()
    return WrittenChunk(written, matched, done.excluded, done.pairs, counts, done.sampled)


def count_valid(jobs: Jobs, reader: VectorReader, parts: Sequence[Rows]) -> list[int]:
    """Return the number of rows of each part that can match, in the order of the parts."""

    def counted(task_parts: Iterable[Rows]) -> Iterator[tuple[int, tuple[()]]]:
        with worker_task(1, reader.side.storage_options, f"counting the {reader.name} rows"):
            for rows in task_parts:
                yield reader.count(rows), ()

    return jobs.run(counted, parts)
