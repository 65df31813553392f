"""The Spark job of a join: probe, merge and materialize, in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol

from lancestat.knn.neighbours import merge
from lancestat.knn.output import Written
from lancestat.knn.side import Rows
from lancestat.knn.stages import OnStage, Stage
from lancestat.spark.knn.grid import Grid
from lancestat.spark.knn.materialize import Chunk, Materialize
from lancestat.spark.knn.meter import Meter, Step
from lancestat.spark.knn.probe import Cell, Probed
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.knn.worker import SEARCHING, WRITING, working

if TYPE_CHECKING:
    from pyspark import SparkContext


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
