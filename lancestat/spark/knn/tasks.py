"""Tasks that search neighbours, and the Spark job that runs them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import JoinFailed, LancestatError
from lancestat.knn.request import OnStage, Stage, StageProgress
from lancestat.knn.search import Nearest, Neighbours, merge
from lancestat.knn.work import Rows
from lancestat.lake.open import is_failure
from lancestat.output.writer import Written
from lancestat.redact import clean, secret_values
from lancestat.spark.knn.grid import Grid
from lancestat.spark.knn.materialize import Chunk, Materialize
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.session.failure import MORE_MEMORY, WorkerError
from lancestat.spark.session.jobs import Done
from lancestat.spark.session.worker import prepare_worker

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext


@dataclass(frozen=True, slots=True)
class Step:
    """Rows and pairs that a task got through, and the seconds that its pairs took."""

    stage: Stage
    rows: int
    pairs: int = 0
    seconds: float = 0.0


class Meter:
    """Adds up what tasks got through, and passes it on.

    Args:
        on_stage: Told each time that a task ends.
        totals: How many rows each stage has to get through.
        tasks: How many run at once.
    """

    def __init__(self, on_stage: OnStage, totals: Mapping[Stage, int], tasks: int) -> None:
        self._on_stage: OnStage | None = on_stage
        self._totals = totals
        self._rows: Counter[Stage] = Counter()
        self._tasks = tasks
        self._pairs = 0
        self._seconds = 0.0

    def accumulator(self, context: SparkContext) -> Accumulator[list[Step]]:
        """What tasks add their steps to."""
        return context.accumulator([], Done(self._listen))

    def _listen(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._rows[step.stage] += step.rows
            self._pairs += step.pairs
            self._seconds += step.seconds
        if self._on_stage is None:
            return
        try:
            for stage in {step.stage for step in steps}:
                self._on_stage(self._progress(stage))
        except Exception:
            # Spark's scheduler waits for this thread: a broken display must not stop the run.
            self._on_stage = None

    def _progress(self, stage: Stage) -> StageProgress:
        rate = None
        if stage is Stage.PROBE and self._seconds:
            rate = self._pairs * self._tasks / self._seconds
        return StageProgress(stage, self._rows[stage], self._totals.get(stage), rate)


# What tasks do, as errors call it.
SEARCHING = "searching for neighbours"
WRITING = "writing the result"


@contextmanager
def working(threads: int, storage_options: Mapping[str, str], doing: str) -> Iterator[None]:
    """Around what a task does: a worker made ready, and errors that cross to the driver.

    `doing` is what fails when something fails that has no error of its own.
    """
    prepare_worker(threads, "lancestat.spark.knn.materialize")
    try:
        yield
    except WorkerError:
        # Of an earlier stage in the same task.
        raise
    except LancestatError as error:
        raise WorkerError.carrying(error) from None
    except BaseException as error:
        if not is_failure(error):
            raise
        reason = clean(f"{type(error).__name__}: {error}", secret_values(storage_options))
        hint = MORE_MEMORY if isinstance(error, MemoryError) else None
        failed = JoinFailed(f"{doing} failed: {reason}", hint=hint)
        raise WorkerError.carrying(failed) from error


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

    left: VectorReader
    right: VectorReader
    parts: tuple[Rows, ...]
    k: int

    def __call__(self, cell: Cell) -> Probed:
        """Search one part of the right side for the neighbours of one chunk."""
        started = time.perf_counter()
        queries = self.left.read(cell.left)
        asked = queries.values[queries.valid]
        nearest = Nearest(asked, self.k, self.left.metric)
        excluded = compared = 0
        for block in self.right.blocks(self.parts[cell.part]):
            excluded += block.excluded
            compared += len(block.rows)
            nearest.add(block.rows, block.places)
        pairs, seconds = compared * len(asked), time.perf_counter() - started
        return Probed(queries.valid, nearest.neighbours(), excluded, pairs, seconds)


@dataclass(frozen=True, slots=True)
class WrittenChunk:
    """A chunk of the result, written but not committed, and what was counted on the way.

    `excluded` are right rows that cannot match, of the whole right side.
    """

    written: Written
    matched: int
    excluded: int
    pairs: int


class Prober(Protocol):
    """A strategy inside Spark's workers. It is pickled."""

    def __call__(self, cell: Cell) -> Probed:
        """Neighbours of the chunk in that part of the right side."""
        ...


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The job over every chunk and part of a grid.

    Where there is one part there is no shuffle: a task does all three stages for its chunk. Few
    neighbours are merged by the driver, sooner than tasks for that would start.
    """

    context: SparkContext
    shares: Grid
    materialize: Materialize
    k: int
    threads: int
    on_stage: OnStage

    def run(self, probe: Prober) -> list[WrittenChunk]:
        """Search all cells, merge what belongs to one chunk, and write it; chunks in their order.

        Raises:
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        shares, materialize, threads = self.shares, self.materialize, self.threads
        options = materialize.writer.storage_options
        cells = [
            Cell(number, chunk, part)
            for number, chunk in enumerate(shares.chunks)
            for part in range(shares.parts)
        ]
        steps = self._meter(cells).accumulator(self.context)

        def probed(found: Iterable[Cell]) -> Iterator[tuple[int, Probed]]:
            with working(threads, options, SEARCHING):
                for cell in found:
                    done = probe(cell)
                    yield cell.chunk, done
                    steps.add([Step(Stage.PROBE, len(cell.left), done.pairs, done.seconds)])

        def written(found: Iterable[tuple[int, Probed]]) -> Iterator[tuple[int, WrittenChunk]]:
            with working(threads, options, WRITING):
                for number, done in found:
                    rows = shares.chunks[number]
                    yield number, written_chunk(materialize, number, rows, done)
                    steps.add([Step(Stage.MATERIALIZE, len(rows))])

        rdd = self.context.parallelize(cells, len(cells)).mapPartitions(probed)
        if shares.merges_on_driver:
            found = reduce(partial(_merged, k=self.k), (each for _, each in rdd.collect()))
            return [written_chunk(materialize, 0, shares.chunks[0], found)]
        if shares.parts > 1:
            rdd = rdd.reduceByKey(partial(_merged, k=self.k), len(shares.chunks))
        done = dict(rdd.mapPartitions(written).collect())
        return [done[number] for number in range(len(shares.chunks))]

    def _meter(self, cells: Sequence[Cell]) -> Meter:
        totals = {
            Stage.PROBE: sum(len(cell.left) for cell in cells),
            Stage.MATERIALIZE: sum(map(len, self.shares.chunks)),
        }
        return Meter(self.on_stage, totals, min(len(cells), self.context.defaultParallelism))


def _merged(left: Probed, right: Probed, k: int) -> Probed:
    return replace(
        left,
        neighbours=merge([left.neighbours, right.neighbours], k),
        excluded=left.excluded + right.excluded,
        pairs=left.pairs + right.pairs,
    )


def written_chunk(materialize: Materialize, number: int, rows: Rows, done: Probed) -> WrittenChunk:
    """Write a chunk of which `done` is known."""
    chunk = materialize.completed(Chunk(number, rows, done.is_valid, done.neighbours))
    matched = int((chunk.neighbours.places >= 0).any(axis=1).sum())
    return WrittenChunk(materialize.write(chunk), matched, done.excluded, done.pairs)


def count_valid(context: SparkContext, reader: VectorReader, parts: Sequence[Rows]) -> list[int]:
    """How many rows of each part can match, in the order of the parts."""

    def counted(found: Iterable[Rows]) -> Iterator[int]:
        with working(1, reader.side.storage_options, f"counting the {reader.name} rows"):
            yield from map(reader.count, found)

    return list(context.parallelize(parts, len(parts)).mapPartitions(counted).collect())
