"""A join on Spark whose sides are prepared: its search by any strategy, and its commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from lancestat.errors import ListsLost
from lancestat.joins.action import BuildIndex, CommitResult, JoinStage, Probe
from lancestat.joins.output.result import output_of
from lancestat.joins.record import UNMEASURED, Accuracy, JoinCounts, OutputState
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.distances import join_distances
from lancestat.joins.search.neighbours import nearest_pairs, within
from lancestat.joins.search.scratch_tables import MOST_HELD
from lancestat.joins.search.work import (
    JoinKind,
    JoinOutcome,
    JoinRequest,
    JoinWork,
    Rows,
    Scope,
)
from lancestat.joins.spark.cells import (
    CHUNK_BYTES,
    NEIGHBOUR_BYTES,
    CellResult,
    ExactCells,
    Grid,
    chunk_cells,
    cut,
    cut_by_pairs,
    list_grid,
)
from lancestat.joins.spark.groups import GroupCells, GroupedRows, write_grouped
from lancestat.joins.spark.index import IndexCells, tuned_index
from lancestat.joins.spark.ivf import IndexKeeper, IvfCells, IvfIndex, IvfWriter, split_lists
from lancestat.joins.spark.job import (
    SLICE_ROWS,
    WRITING,
    CellJob,
    WrittenChunk,
    count_valid,
    too_many,
    worker_task,
    written_chunk,
)
from lancestat.joins.spark.materialize import Materializer
from lancestat.joins.spark.reader import ParquetSide, VectorReader
from lancestat.joins.spark.updates import Keeping
from lancestat.redact import secret_values
from lancestat.runs.actions import OnStage
from lancestat.spark.failure import job_error
from lancestat.spark.jobs import Jobs, jobs_of
from lancestat.spark.session import task_threads
from lancestat.spark.versions import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WRITTEN = pa.schema([pa.field("chunk", pa.int32()), pa.field("done", pa.binary())])


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
    for number, parts in groupby(_cut(batches), lambda part: part.column("chunk")[0].as_py()):
        yield number, pa.Table.from_batches(parts)


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches cut where another chunk begins."""
    for batch in batches:
        starts = np.flatnonzero(np.diff(batch.column("chunk").to_numpy(), prepend=-1)).tolist()
        for start, stop in pairwise([*starts, batch.num_rows]):
            yield batch.slice(start, stop - start)


def _ranked(left: DataFrame, right: DataFrame, request: JoinRequest) -> DataFrame:
    from pyspark.sql.functions import col, struct

    queries = left.select("chunk", col("place").alias("query"), col("vector").alias("left_vector"))
    candidates = right.select("place", col("vector").alias("right_vector"))
    distance = request.metric.spark_distance(col("left_vector"), col("right_vector"))
    rank = struct(distance, col("place"))
    joined = queries.nearestByJoin(
        candidates, rank, request.ranked, "exact", "distance", joinType="inner"
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
    matched, nearest = nearest_pairs(queries, distances, positions, request.ranked)
    pairs = len(matched) * compared
    return CellResult(matched, within(nearest, request.limit), excluded, pairs)


@dataclass(slots=True, kw_only=True)
class PreparedJoin:
    """A join on Spark whose sides are prepared; the other stages of its plan are its methods.

    `size` has the sizes of the rows to compare, and `keeping` keeps neighbours. `unproven` is as in
    `JoinOutcome`. `place` makes a place in scratch of a name, which `scratch_options` reach.
    `rollback` removes what was written, when it is closed. Of a worker's error every method raises
    what the worker raised, after Spark's own retries.
    """

    work: JoinWork
    spark: SparkSession
    left: VectorReader
    right: VectorReader
    size: JoinSize
    grid: Grid
    materialize: Materializer
    on_stage: OnStage
    place: Callable[[str], str]
    scratch_options: Mapping[str, str] = field(repr=False)
    unproven: Mapping[str, tuple[str, ...]]
    rollback: ExitStack
    key_types: tuple[pa.DataType, ...] = ()
    keeper: IndexKeeper | None = None
    keeping: Keeping | None = None
    _search: Callable[[CellJob], list[WrittenChunk]] | None = None
    _accuracy: Accuracy = UNMEASURED
    _groups: int | None = None
    _probed: Probe | None = None
    _chunks: Sequence[WrittenChunk] = ()
    _output: OutputState | None = None
    _kept: tuple[str, ...] = ()
    _recounted: bool = False

    @property
    def jobs(self) -> Jobs:
        return jobs_of(self.spark)

    @property
    def cores(self) -> int:
        return self.jobs.cores

    @property
    def in_place(self) -> tuple[str, ...]:
        """The sides that are read in place, though they are no tables."""
        readers = (self.left, self.right)
        return tuple(reader.name for reader in readers if isinstance(reader.side, ParquetSide))

    @property
    def request(self) -> JoinRequest:
        return self.work.request

    @property
    def threads(self) -> int:
        return task_threads(self.spark)

    def build_index(self, stage: BuildIndex) -> bool:
        """Write the right side in lists; return whether any of its rows can match."""
        with self._task_errors():
            if self.keeper is not None:
                index = self.keeper.build(self._ivf_writer, stage.lists)
            else:
                built = self._ivf_writer.build(self.place("lists"), stage.lists)
                index = None if built is None else built[0]
        if index is not None:
            self._search = partial(self._in_lists, index)
        return index is not None

    def use_index(self) -> None:
        """Search the kept index, once the rows that it lacks are put into its lists."""
        assert self.keeper is not None, "an index was found"
        with self._task_errors():
            index = self.keeper.use(self._ivf_writer)
            if index is None:
                raise ListsLost("the kept index has gone")
        self._search = partial(self._in_lists, index)

    def group_rows(self) -> None:
        readers, counts_all = (self.left, self.right), self.work.scope is not Scope.NEW_LEFT
        with self._task_errors():
            grouped = write_grouped(
                self.jobs, readers, self.key_types, counts_all, self.place, self.scratch_options
            )
        self._search, self._groups = partial(self._grouped, grouped), grouped.groups

    def measure_index(self) -> bool:
        """Tune the search of the right side's index; return whether it reaches the recall."""
        with self._task_errors():
            index = tuned_index(self.jobs, self.left, self.right, self.request, self.threads)
        if index is not None:
            self._search = partial(self._by_index, index)
        return index is not None

    def probe(self, stage: Probe, commit: JoinStage) -> None:
        """Search neighbours, and write the rows of the result, which is progress of `commit`."""
        search = self._search
        if search is None:
            search = self._by_spark if stage.strategy is Strategy.SPARK else self._exact
        if self.work.scope.is_update:
            search = self._updated
        with self._task_errors():
            options = (self.threads, (stage, commit), self.on_stage, self._known_pairs)
            self._chunks = search(CellJob(self.jobs, self.materialize, self.request, *options))
        self._probed = stage

    def commit(self, stage: CommitResult) -> None:
        written = [chunk.written for chunk in self._chunks if chunk.written is not None]
        writer, schema = self.materialize.writer, self.materialize.schema
        output = output_of(writer)
        increment, removed = self.work.increment, self._removed
        before = 0 if increment is None else increment.previous.rows - len(removed)
        if self.keeping is not None:
            rows = [0 if chunk.written is None else chunk.written.rows for chunk in self._chunks]
            starts = list(accumulate(rows[:-1], initial=before))
            self._kept = self.keeping.finish(
                [chunk.kept for chunk in self._chunks], starts, removed
            )
        # From here on the writer commits or discards.
        self.rollback.pop_all()
        try:
            if increment is None:
                self._output = output.replace(writer, schema, written)
            else:
                previous = increment.previous
                self._output = output.update(writer, schema, previous, removed, written)
        except BaseException:
            output.discard(writer)
            raise

    @property
    def _removed(self) -> NDArray[np.int64]:
        """The lines of the last result that are no more, ascending."""
        parts = (chunk.removed for chunk in self._chunks if chunk.removed is not None)
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    @property
    def _known_pairs(self) -> int:
        """How many pairs the last result has; its other lines are left rows without neighbours."""
        increment = self.work.increment
        if increment is None:
            return 0
        is_outer = self.request.kind is JoinKind.LEFT_OUTER
        return increment.previous.rows - increment.known.unmatched_left_rows * is_outer

    @property
    def outcome(self) -> JoinOutcome:
        assert self._probed is not None and self._output is not None, "the result is committed"
        distances = join_distances(
            (chunk.distances for chunk in self._chunks),
            self.materialize.ranks,
            len(self.left.side.all_rows),
            # Bits that differ are whole numbers.
            least_width=1.0 if self.request.metric.has_bits else 0.0,
        )
        return JoinOutcome(
            self._probed.strategy.value,
            self._counts(),
            self._output,
            sum(chunk.pairs for chunk in self._chunks),
            self._accuracy,
            self.unproven,
            distances,
            self._groups,
            self._kept,
        )

    @property
    def _ivf_writer(self) -> IvfWriter:
        return IvfWriter(self.jobs, self.left, self.right, self.request, self.threads)

    def _exact(self, job: CellJob) -> list[WrittenChunk]:
        self._accuracy = self._exact_accuracy
        if self.request.is_radius:
            return self._within_distance(job)
        parts = tuple(cut(self.right.side.all_rows, self.grid.parts))
        search = ExactCells(self.left, self.request, right=self.right, parts=parts)
        return job.nearest(search, chunk_cells(self.grid), self.grid)

    def _within_distance(self, job: CellJob) -> list[WrittenChunk]:
        chunks = self.grid.without_parts(self.cores).chunks
        left = chunks
        if self.request.pairs_once:
            rows = Rows(chunks[0].start, chunks[-1].stop)
            left = tuple(cut_by_pairs(rows, len(chunks)))
        whole = (self.right.side.all_rows,)
        search = ExactCells(
            self.left, self.request, self._slice_rows, right=self.right, parts=whole
        )
        cells = chunk_cells(Grid(left, 1))
        return job.spilled(search, cells, chunks, self.place("pairs"), self.scratch_options)

    @property
    def _slice_rows(self) -> int:
        """How many left rows a radius search compares at a time."""
        row_bytes = 4 * self.left.dimension + NEIGHBOUR_BYTES * self.request.k
        return max(1, min(SLICE_ROWS, CHUNK_BYTES // row_bytes))

    def _by_spark(self, job: CellJob) -> list[WrittenChunk]:
        sides = (self.left, self.right)
        nearest = NearestByJoin(self.spark, *sides, self.materialize, self.request, self.threads)
        return nearest.search(self.grid.chunks, cut(self.right.side.all_rows, self.grid.parts))

    def _grouped(self, grouped: GroupedRows, job: CellJob) -> list[WrittenChunk]:
        self._accuracy = self._exact_accuracy
        chunks = self.grid.without_parts(self.cores).chunks
        sides = (self.left.side, self.right.side)
        search = GroupCells(grouped, self.request, self.left.dimension, sides)
        place, options = self.place("pairs"), self.scratch_options
        cells = search.cells(self.cores)
        return job.spilled(search, cells, chunks, place, options, grouped.excluded)

    def _by_index(self, search: IndexCells, job: CellJob) -> list[WrittenChunk]:
        self._accuracy = Accuracy(search.recall, search.parameters.nprobes)
        grid = self.grid.without_parts(self.cores)
        return job.nearest(search, chunk_cells(grid), grid)

    def _in_lists(self, index: IvfIndex, job: CellJob) -> list[WrittenChunk]:
        """Search the lists, and measure the recall on the way where that spares a pass over them.

        Of many left rows the search takes so much longer than the pass that it would be a pity to
        learn only afterwards that too few lists were visited.
        """
        grid = list_grid(
            self.left.side.all_rows,
            int(index.lists.list_rows.sum()),
            self.grid,
            dimension=self.left.dimension,
            k=self.request.searched,
            cores=self.cores,
        )
        is_long = len(grid.chunks) > 1 or self.request.max_distance is not None
        if index.measure is not None and is_long:
            index = index.measure(index.nprobes)
        parts = split_lists(index.lists.list_rows, grid.parts)
        searched, cells = replace(index, measure=None), chunk_cells(grid)
        if self.request.is_radius:
            self._accuracy = Accuracy(index.recall, index.nprobes)
            sliced = IvfCells(
                self.left, self.request, self._slice_rows, index=searched, parts=parts
            )
            place = self.place("pairs")
            return job.spilled(sliced, cells, grid.chunks, place, self.scratch_options)
        search = IvfCells(self.left, self.request, index=searched, parts=parts)
        chunks = job.nearest(search, cells, grid)
        sampled = chunks[0].sampled
        recall = index.recall if sampled is None else sampled.recall()
        if index.measure is not None and not self.request.reached_by(recall):
            # What was written is not committed, like that of a repeated attempt.
            return self._in_lists(index.measure(None), job)
        self._accuracy = Accuracy(recall, index.nprobes)
        return chunks

    @property
    def _exact_accuracy(self) -> Accuracy:
        return Accuracy(1.0 if self.request.is_approximate else None)

    def _updated(self, job: CellJob) -> list[WrittenChunk]:
        """Bring the last result up to date."""
        assert self.keeping is not None and self.work.increment is not None, "there is a result"
        self._accuracy = self._exact_accuracy
        row_bytes = 4 * self.left.dimension + NEIGHBOUR_BYTES * self.request.searched
        largest = max(1, CHUNK_BYTES // row_bytes)
        if self.request.is_radius:
            pairs = max(1, self.work.increment.previous.rows)
            largest = max(1, min(largest, len(self.left.side.all_rows) * MOST_HELD // pairs))
        readers = (self.left, self.right)
        update = self.keeping.update(readers, self.request, self.key_types, self.materialize)
        recounts = bool(self.work.increment.known.excluded_right_rows) and self.keeping.lost_right
        chunks = job.update(update.run, update.cells(self.cores, largest, recounts=recounts))
        pairs = sum(chunk.shown for chunk in chunks)
        if self.request.is_exceeded_by(pairs):
            raise too_many(pairs, self.request)
        self._recounted = recounts
        return chunks

    @contextmanager
    def _task_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            secrets = secret_values(self.materialize.writer.storage_options)
            failure = job_error(error, f"joining '{self.work.node}'", secrets)
            if isinstance(failure, ListsLost) and self.keeper is not None:
                self.keeper.withdraw()
            raise failure from None

    def _counts(self) -> JoinCounts[int]:
        left_rows, right = len(self.left.side.all_rows), self.right.side
        counts = JoinCounts(
            left_rows,
            len(right.all_rows) + right.excluded,
            left_rows - sum(chunk.matched for chunk in self._chunks),
            # Every chunk has met the whole right side.
            right.excluded + self._chunks[0].excluded,
        )
        if self.work.increment is None:
            return counts
        known = self.work.increment.known
        if self.work.scope is Scope.NEW_LEFT:
            return replace(
                known,
                left_rows=known.left_rows + counts.left_rows,
                unmatched_left_rows=known.unmatched_left_rows + counts.unmatched_left_rows,
            )
        excluded = sum(chunk.excluded for chunk in self._chunks)
        excluded += 0 if self._recounted else known.excluded_right_rows
        return replace(counts, excluded_right_rows=excluded)
