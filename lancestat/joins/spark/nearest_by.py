"""The strategy for small joins: Spark's own `nearestByJoin`, ranked as every strategy ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lancestat.joins.search.neighbours import nothing, within
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.job import CellResult, WrittenChunk, count_valid, written_chunk
from lancestat.joins.spark.materialize import Materializer
from lancestat.joins.spark.reader import VectorReader
from lancestat.joins.spark.tasks import WRITING, worker_task
from lancestat.spark.jobs import jobs_of
from lancestat.spark.versions import map_in_arrow

_WRITTEN = pa.schema([pa.field("chunk", pa.int32()), pa.field("done", pa.binary())])

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class NearestByJoin:
    """Joins by `DataFrame.nearestByJoin(mode="exact")`.

    Spark computes distances in double and breaks ties as it likes, so what it ranks is the distance
    rounded to float together with the position of the right row.
    """

    spark: SparkSession
    left: VectorReader
    right: VectorReader
    materialize: Materializer
    request: JoinRequest
    threads: int

    def search(self, chunks: Sequence[Rows], right: Sequence[Rows]) -> list[WrittenChunk]:
        """Join all chunks with all parts of the right side, and write them in their order."""
        left_rows = self._frame(self.left, chunks)
        right_rows = self._frame(self.right, right)
        neighbours = _ranked(left_rows, right_rows, self.request)
        valid = sum(count_valid(jobs_of(self.spark), self.right, right))
        excluded = sum(map(len, right)) - valid
        written = self._written(neighbours, chunks, excluded, valid)
        return [written[number] for number in range(len(chunks))]

    def _frame(self, reader: VectorReader, parts: Sequence[Rows]) -> DataFrame:
        """Return `chunk`, `place` and `vector` of rows that can match, a partition per part.

        `place` is the position of the row.
        """
        threads = self.threads

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with worker_task(
                threads, reader.side.storage_options, f"reading the {reader.name} side"
            ):
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        rows = parts[number]
                        read_vectors = reader.read(rows)
                        yield _batch(number, rows, read_vectors.values, read_vectors.valid)

        numbers = self.spark.range(0, len(parts), 1, len(parts))
        return map_in_arrow(numbers, read, "chunk int, place long, vector array<float>")

    def _written(
        self, neighbours: DataFrame, chunks: Sequence[Rows], excluded: int, valid: int
    ) -> dict[int, WrittenChunk]:
        materialize, request, threads = self.materialize, self.request, self.threads

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number, table in _by_chunk(batches):
                    found = _result(table, request, excluded, valid)
                    done = written_chunk(materialize, number, chunks[number], found)
                    yield pa.RecordBatch.from_pylist(
                        [{"chunk": number, "done": pickle.dumps(done)}], _WRITTEN
                    )

        # Spark's join returns nothing of chunks in which no row matches anything.
        numbers = self.spark.range(len(chunks)).selectExpr("cast(id as int) as chunk")
        neighbours = neighbours.unionByName(numbers, allowMissingColumns=True)
        # Rows of a chunk come to one task, one chunk after the other.
        parts = neighbours.repartition(len(chunks), "chunk").sortWithinPartitions("chunk")
        rows = map_in_arrow(parts, write, "chunk int, done binary").collect()
        return {row.chunk: pickle.loads(bytes(row.done)) for row in rows}  # noqa: S301


def _by_chunk(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows that are sorted by `chunk`, chunk by chunk."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        numbers = batch.column("chunk").to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
        for start, stop in pairwise(map(int, edges)):
            part = batch.slice(start, stop - start)
            if held and part.num_rows and _number(held[0]) != _number(part):
                yield _number(held[0]), pa.Table.from_batches(held)
                held = []
            if part.num_rows:
                held.append(part)
    if held:
        yield _number(held[0]), pa.Table.from_batches(held)


def _number(batch: pa.RecordBatch) -> int:
    return int(batch.column("chunk")[0].as_py())


def _ranked(left: DataFrame, right: DataFrame, request: JoinRequest) -> DataFrame:
    from pyspark.sql.functions import col, struct

    queries = left.select("chunk", col("place").alias("query"), col("vector").alias("left_vector"))
    candidates = right.select("place", col("vector").alias("right_vector"))
    distance = request.metric.spark_distance(col("left_vector"), col("right_vector"))
    rank = struct(distance, col("place"))
    joined = queries.nearestByJoin(
        candidates, rank, request.k, "exact", "distance", joinType="inner"
    )
    return joined.select("chunk", "query", "place", distance.alias("distance"))


def _batch(
    number: int,
    rows: Rows,
    values: NDArray[np.float32],
    valid: NDArray[np.bool_],
) -> pa.RecordBatch:
    valid_values = values[valid]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(valid_values.reshape(-1)), values.shape[1])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(valid_values), number, np.int32)),
            pa.array(np.arange(rows.start, rows.stop)[valid]),
            vectors.cast(pa.list_(pa.float32())),
        ],
        names=["chunk", "place", "vector"],
    )


def _result(table: pa.Table, request: JoinRequest, excluded: int, compared: int) -> CellResult:
    """Convert the rows of Spark's join for one chunk, in any order, to neighbours."""
    queries, positions, distances = (
        table.column(name).drop_null().to_numpy() for name in ("query", "place", "distance")
    )
    order = np.lexsort((positions, distances, queries))
    matched, firsts, counts = np.unique(queries[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(firsts, counts)
    neighbours = nothing(len(matched), request.k)
    line = np.repeat(np.arange(len(matched)), counts)
    neighbours.positions[line, rank] = positions[order]
    neighbours.distances[line, rank] = distances[order]
    pairs = len(matched) * compared
    return CellResult(matched, within(neighbours, request.limit), excluded, pairs)
