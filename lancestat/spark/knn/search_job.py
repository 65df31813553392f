"""The Spark job of a join: probe, merge and materialize, in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from lancestat.knn.neighbours import merge
from lancestat.knn.output import Written
from lancestat.knn.side import Rows
from lancestat.knn.stages import OnStage, Stage
from lancestat.spark.knn.materialize import Chunk, Materialize
from lancestat.spark.knn.meter import Meter, Step
from lancestat.spark.knn.probe import Cell, CountValid, Probed
from lancestat.spark.knn.worker import working

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


def search(
    context: SparkContext,
    cells: Sequence[Cell],
    probe: Prober,
    materialize: Materialize,
    *,
    k: int,
    threads: int,
    on_stage: OnStage,
) -> list[WrittenChunk]:
    """Search all cells, merge what belongs to one chunk, and write it; chunks in their order.

    Where every chunk has one cell there is no shuffle: a task does all three for its chunk.

    Raises:
        WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
    """
    chunks = {cell.chunk: cell.left for cell in cells}
    totals = {
        Stage.PROBE: sum(len(cell.left) for cell in cells),
        Stage.MATERIALIZE: sum(len(rows) for rows in chunks.values()),
    }
    steps = Meter(on_stage, totals, min(len(cells), context.defaultParallelism)).accumulator(
        context
    )

    def probed(found: Iterable[Cell]) -> Iterator[tuple[int, Probed]]:
        with working(threads, materialize.writer.storage_options):
            for cell in found:
                done = probe(cell)
                yield cell.chunk, done
                steps.add([Step(Stage.PROBE, len(cell.left), done.pairs, done.seconds)])

    def written(found: Iterable[tuple[int, Probed]]) -> Iterator[tuple[int, WrittenChunk]]:
        with working(threads, materialize.writer.storage_options):
            for number, done in found:
                yield number, written_chunk(materialize, number, chunks[number], done)
                steps.add([Step(Stage.MATERIALIZE, len(chunks[number]))])

    rdd = context.parallelize(cells, len(cells)).mapPartitions(probed)
    if len(chunks) < len(cells):
        rdd = rdd.reduceByKey(partial(_merged, k=k), len(chunks))
    return [done for _, done in sorted(rdd.mapPartitions(written).collect(), key=itemgetter(0))]


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


def count_valid(context: SparkContext, count: CountValid, chunks: Sequence[Rows]) -> list[int]:
    """How many rows of each chunk can match, in the order of the chunks."""

    def counted(found: Iterable[Rows]) -> Iterator[int]:
        with working(1, count.side.storage_options):
            yield from map(count, found)

    return list(context.parallelize(chunks, len(chunks)).mapPartitions(counted).collect())
