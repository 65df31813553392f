"""A join on Spark whose sides are prepared: its search by any strategy, and its commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from lancestat.errors import PartitionsLost, StaleBase
from lancestat.joins.action import BuildIndex, CommitResult, ExtendIndex, Probe, ReuseIndex
from lancestat.joins.output import result as output
from lancestat.joins.planner import JoinFacts
from lancestat.joins.record import UNMEASURED, Accuracy, JoinCounts, JoinDistances
from lancestat.joins.search.cost_model import SAMPLE_ROWS, Strategy
from lancestat.joins.search.distances import join_distances
from lancestat.joins.search.index import IndexedSide, SearchParameters
from lancestat.joins.search.neighbours import Neighbours, merge, nothing, share_found, within
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, Rows, Scope, VectorSide
from lancestat.joins.spark.groups import (
    GroupCells,
    Grouping,
    GroupLayout,
    count_lines,
    keyed_widths,
)
from lancestat.joins.spark.ivf import IndexKeeper, IvfCells, IvfIndex, IvfWriter, split_lists
from lancestat.joins.spark.job import (
    CHUNK_BYTES,
    NEIGHBOUR_BYTES,
    SLICE_ROWS,
    WRITING,
    CellJob,
    CellResult,
    ChunkCell,
    ChunkSearch,
    ExactCells,
    Grid,
    LeftRows,
    WrittenChunk,
    chunk_cells,
    count_valid,
    cut,
    cut_by_pairs,
    list_grid,
    worker_task,
    written_chunk,
)
from lancestat.joins.spark.materialize import Materializer, PreviousResult, SameWidths, Widths
from lancestat.joins.spark.reader import VectorReader
from lancestat.redact import secret_values
from lancestat.runs.actions import OnStage, StageProgress
from lancestat.spark.failure import job_error
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs, jobs_of
from lancestat.spark.session import task_threads
from lancestat.spark.versions import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class IndexCells(ChunkSearch):
    """Searches the index for the neighbours of left rows.

    `recall` was measured on a sample of left rows, and `excluded` right rows cannot match.
    """

    right: VectorReader = field(kw_only=True)
    parameters: SearchParameters = field(kw_only=True)
    recall: float | None = field(kw_only=True)
    excluded: int = field(kw_only=True)

    def nearest(self, cell: ChunkCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        nearest = _indexed(self.right).search(rows.vectors, k, self.parameters)
        neighbours = within(nearest, self.request.limit)
        pairs = len(rows) * k * self.parameters.proposals
        return CellResult(rows.positions, neighbours, self.excluded, pairs)


def tuned_index(
    jobs: Jobs, left: VectorReader, right: VectorReader, request: JoinRequest, threads: int
) -> IndexCells | None:
    """Find how far the index has to be searched, on a sample of left rows.

    One pass over the right side finds their true neighbours.

    Returns:
        None when the index does not reach the recall, however far it is searched.
    """
    queries = left.sample(SAMPLE_ROWS)
    truth, excluded = _true_neighbours(jobs, right, queries, request.k, threads)
    side = _indexed(right)
    recall: float | None
    if request.nprobes is not None:
        parameters = SearchParameters(request.nprobes)
        found = side.search(queries, request.k, parameters)
        recall = share_found(truth.positions, found.positions)
    else:
        assert request.recall is not None
        measured = side.measure(queries, truth, request.recall) if len(queries) > 1 else None
        if measured is None:
            return None
        parameters, recall = measured
    return IndexCells(
        left, request, right=right, parameters=parameters, recall=recall, excluded=excluded
    )


def _true_neighbours(
    jobs: Jobs, right: VectorReader, queries: NDArray[np.float32], k: int, threads: int
) -> tuple[Neighbours, int]:
    def compare(
        task_parts: Iterable[Rows],
    ) -> Iterator[tuple[tuple[Neighbours, int], tuple[()]]]:
        with worker_task(threads, right.side.storage_options, "sampling the recall"):
            for rows in task_parts:
                nearest, excluded = ExactSearch(queries, k, right.metric), 0
                for block in right.blocks(rows):
                    nearest.add(block.rows, block.positions)
                    excluded += block.excluded
                yield (nearest.neighbours(), excluded), ()

    done = jobs.run(compare, cut(right.side.all_rows, jobs.cores))
    neighbours = merge([neighbours for neighbours, _ in done], k)
    return neighbours, sum(excluded for _, excluded in done)


def _indexed(right: VectorReader) -> IndexedSide:
    side = right.side
    assert isinstance(side, VectorSide)
    dataset = pinned_dataset(side.pin, side.storage_options)
    return IndexedSide(dataset, side, right.metric)


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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The neighbours that a strategy found, written but not committed.

    `groups` is the number of keys that rows of both sides have, None where keys are not compared.
    """

    strategy: Strategy
    chunks: list[WrittenChunk]
    accuracy: Accuracy = UNMEASURED
    groups: int | None = None


Stages = tuple[Probe, CommitResult]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches a grid of left and right rows by any strategy.

    `place` makes a place in scratch of that name, which `scratch_options` reach. Every method
    raises a WorkerError inside Spark's exception for what a worker raised, after Spark's own
    retries.
    """

    spark: SparkSession
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    grid: Grid
    materialize: Materializer
    on_stage: OnStage
    place: Callable[[str], str]
    scratch_options: Mapping[str, str] = field(repr=False)
    key_types: tuple[pa.DataType, ...] = ()

    @property
    def jobs(self) -> Jobs:
        return jobs_of(self.spark)

    @property
    def ivf_writer(self) -> IvfWriter:
        return IvfWriter(self.jobs, self.left, self.right, self.request, self.threads)

    @property
    def threads(self) -> int:
        return task_threads(self.spark)

    def exact(self, stages: Stages) -> SearchResult:
        if self.request.is_radius:
            return self._within_distance(stages)
        parts = tuple(cut(self.right.side.all_rows, self.grid.parts))
        search = ExactCells(self.left, self.request, right=self.right, parts=parts)
        chunks = self._job(stages).nearest(search, chunk_cells(self.grid), self.grid)
        return SearchResult(Strategy.EXACT, chunks, self._exact_accuracy)

    def by_spark(self) -> SearchResult:
        sides = (self.left, self.right)
        nearest = NearestByJoin(self.spark, *sides, self.materialize, self.request, self.threads)
        parts = cut(self.right.side.all_rows, self.grid.parts)
        return SearchResult(Strategy.SPARK, nearest.search(self.grid.chunks, parts))

    def grouped(self, layout: GroupLayout, stages: Stages) -> SearchResult:
        grid = replace(self.grid.without_parts(self.jobs.cores), parts=2)
        sides = (self.left.side, self.right.side)
        search = GroupCells(layout, self.request, self.left.dimension, sides, grid.chunks)
        cells, job = search.cells(self.jobs.cores), self._job(stages)
        if self.request.is_radius:
            place = self.place("pairs")
            chunks = job.within(search, cells, grid.chunks, place, self.scratch_options)
        else:
            chunks = job.nearest(search, cells, grid)
        return SearchResult(Strategy.EXACT, chunks, self._exact_accuracy, layout.groups)

    def by_index(self, search: IndexCells, stages: Stages) -> SearchResult:
        grid = self.grid.without_parts(self.jobs.cores)
        chunks = self._job(stages).nearest(search, chunk_cells(grid), grid)
        accuracy = Accuracy(search.recall, search.parameters.nprobes)
        return SearchResult(Strategy.INDEX, chunks, accuracy)

    def in_lists(self, index: IvfIndex, stages: Stages) -> SearchResult:
        """Search the lists, and measure the recall on the way where that spares a pass over them.

        Of many left rows the search takes so much longer than the pass that it would be a pity to
        learn only afterwards that too few lists were visited.
        """
        if index.measure is None:
            return self._in_lists(index, stages)
        if len(self._list_grid(index).chunks) > 1 or self.request.max_distance is not None:
            return self._in_lists(index.measure(index.nprobes), stages)
        result = self._in_lists(index, stages)
        if self.request.reached_by(result.accuracy.recall):
            return result
        # What was written is not committed, like that of a repeated attempt.
        return self._in_lists(index.measure(None), stages)

    def _within_distance(self, stages: Stages) -> SearchResult:
        chunks = self.grid.without_parts(self.jobs.cores).chunks
        left = chunks
        if self.request.pairs_once:
            rows = Rows(chunks[0].start, chunks[-1].stop)
            left = tuple(cut_by_pairs(rows, len(chunks)))
        row_bytes = 4 * self.left.dimension + NEIGHBOUR_BYTES * self.request.k
        search = ExactCells(
            self.left,
            self.request,
            max(1, min(SLICE_ROWS, CHUNK_BYTES // row_bytes)),
            right=self.right,
            parts=(self.right.side.all_rows,),
        )
        cells = chunk_cells(Grid(left, 1))
        place = self.place("pairs")
        written = self._job(stages).within(search, cells, chunks, place, self.scratch_options)
        return SearchResult(Strategy.EXACT, written)

    def _in_lists(self, index: IvfIndex, stages: Stages) -> SearchResult:
        grid = self._list_grid(index)
        parts = split_lists(index.lists.list_rows, grid.parts)
        searched = replace(index, measure=None)
        search = IvfCells(self.left, self.request, index=searched, parts=parts)
        chunks = self._job(stages).nearest(search, chunk_cells(grid), grid)
        sampled = chunks[0].sampled
        recall = index.recall if sampled is None else sampled.recall()
        return SearchResult(Strategy.IVF, chunks, Accuracy(recall, index.nprobes))

    def _list_grid(self, index: IvfIndex) -> Grid:
        return list_grid(
            self.left.side.all_rows,
            int(index.lists.list_rows.sum()),
            self.grid,
            dimension=self.left.dimension,
            k=self.request.searched,
            cores=self.jobs.cores,
        )

    def _job(self, stages: Stages) -> CellJob:
        options = (self.threads, stages, self.on_stage)
        return CellJob(self.jobs, self.materialize, self.request, *options)

    @property
    def _exact_accuracy(self) -> Accuracy:
        is_approximate = self.request.is_approximate and not self.request.is_radius
        return Accuracy(1.0 if is_approximate else None)


Search = Callable[[Searcher, Stages], SearchResult]


@dataclass(frozen=True, slots=True)
class PreparedJoin:
    """A join as `runs.evaluator.PreparedJoin` has it, on Spark.

    Args:
        work: The rows to compare, and the place of the result.
        facts: The facts about the sides.
        searcher: Searches both sides.
        excluded: The right rows that were left out when that side was written.
        unproven: As in `JoinOutcome`.
        rollback: Removes what was written, when it is closed.
        probing: The stage that searches.
        search: How to search, None for what that stage says.
        keeper: The kept indexes of the right side, where it may have any.
        known_right: Under keys, the right rows of the last result, where new ones are merged.
    """

    work: JoinWork
    facts: JoinFacts
    searcher: Searcher
    excluded: int
    unproven: Mapping[str, tuple[str, ...]]
    rollback: ExitStack
    probing: Probe
    search: Search | None = None
    keeper: IndexKeeper | None = None
    known_right: VectorReader | None = None

    def build_index(self, stage: BuildIndex) -> PreparedJoin | None:
        writer, keeper = self.searcher.ivf_writer, self.keeper
        with self._task_errors():
            if keeper is not None:
                return self._in_lists(keeper.build(writer, stage.lists))
            built = writer.build(self.searcher.place("lists"), stage.lists)
            return self._in_lists(None if built is None else built[0])

    def reuse_index(self, stage: ReuseIndex) -> PreparedJoin | None:
        assert self.keeper is not None, "an index was found"
        with self._task_errors():
            return self._in_lists(self.keeper.reuse(self.searcher.ivf_writer))

    def extend_index(self, stage: ExtendIndex) -> PreparedJoin | None:
        assert self.keeper is not None, "an index was found"
        with self._task_errors():
            return self._in_lists(self.keeper.extend(self.searcher.ivf_writer))

    def _in_lists(self, index: IvfIndex | None) -> PreparedJoin | None:
        if index is None:
            return None
        return replace(self, search=lambda searcher, stages: searcher.in_lists(index, stages))

    def group_rows(self) -> PreparedJoin:
        searcher, counts_all = self.searcher, self.work.scope is not Scope.NEW_LEFT
        with self._task_errors():
            layout = Grouping(
                searcher.jobs,
                searcher.left,
                searcher.right,
                searcher.key_types,
                counts_all,
                searcher.scratch_options,
            ).lay_out(searcher.place)
        return replace(self, search=lambda searcher, stages: searcher.grouped(layout, stages))

    def measure_index(self) -> PreparedJoin | None:
        searcher = self.searcher
        sides, threads = (searcher.left, searcher.right), searcher.threads
        with self._task_errors():
            index = tuned_index(searcher.jobs, *sides, searcher.request, threads)
        if index is None:
            return None
        return replace(self, search=lambda searcher, stages: searcher.by_index(index, stages))

    def probe(self, stage: Probe) -> PreparedJoin:
        return replace(self, probing=stage)

    def merge_neighbours(self) -> PreparedJoin:
        increment = self.work.increment
        assert increment is not None, "there is a result to go on from"
        state = increment.previous
        with self._task_errors():
            searcher, widths, lines = self._known_lines(increment.known)
        if sum(lines) != state.rows:
            raise StaleBase(
                f"{state.uri} has {state.rows} rows, but {sum(lines)} follow from its sides",
            )
        previous = PreviousResult(state, widths, tuple(accumulate(lines[:-1], initial=0)))
        merging = replace(searcher.materialize, previous=previous)
        return replace(self, searcher=replace(searcher, materialize=merging))

    def _known_lines(self, known: JoinCounts[int]) -> tuple[Searcher, Widths, list[int]]:
        searcher, k = self.searcher, self.work.request.k
        if self.known_right is not None:
            # A search by keys divides the left rows alone.
            whole = searcher.grid.without_parts(searcher.jobs.cores)
            keyed = keyed_widths(
                searcher.jobs, searcher.left, self.known_right, searcher.key_types, k,
                all_match=not known.excluded_right_rows,
            )  # fmt: skip
            lines = count_lines(searcher.jobs, searcher.materialize, whole.chunks, keyed)
            return replace(searcher, grid=whole), keyed, lines
        width = min(k, known.right_rows - known.excluded_right_rows)
        chunks, materialize = searcher.grid.chunks, searcher.materialize
        valid = count_valid(searcher.jobs, searcher.left, chunks)
        lines = [
            materialize.line_count(matching, len(rows) - matching, width)
            for matching, rows in zip(valid, chunks, strict=True)
        ]
        return searcher, SameWidths(width), lines

    def commit(self, stage: CommitResult) -> JoinOutcome:
        with self._task_errors():
            result = self._searched((self.probing, stage))
        self.searcher.on_stage(StageProgress(stage))
        materialize, increment = self.searcher.materialize, self.work.increment
        written = [chunk.written for chunk in result.chunks]
        # From here on the writer commits or discards.
        self.rollback.pop_all()
        try:
            if stage.appends:
                assert increment is not None, "there is a result to go on from"
                previous = increment.previous
                state = output.append(materialize.writer, materialize.schema, previous, written)
            else:
                state = output.replace(materialize.writer, materialize.schema, written)
        except BaseException:
            output.discard(materialize.writer, written)
            raise
        return JoinOutcome(
            result.strategy.value,
            self._counts(result.chunks),
            state,
            sum(chunk.pairs for chunk in result.chunks),
            result.accuracy,
            self.unproven,
            self._distances(result.chunks),
            result.groups,
        )

    def _searched(self, stages: Stages) -> SearchResult:
        if self.search is not None:
            return self.search(self.searcher, stages)
        if self.probing.strategy is Strategy.SPARK:
            return self.searcher.by_spark()
        return self.searcher.exact(stages)

    def _distances(self, chunks: Sequence[WrittenChunk]) -> JoinDistances | None:
        return join_distances(
            (chunk.distances for chunk in chunks),
            self.searcher.materialize.ranks,
            len(self.searcher.left.side.all_rows),
            # Bits that differ are whole numbers.
            least_width=1.0 if self.work.request.metric.has_bits else 0.0,
        )

    @contextmanager
    def _task_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            secrets = secret_values(self.searcher.materialize.writer.storage_options)
            failure = job_error(error, f"joining '{self.work.node}'", secrets)
            if isinstance(failure, PartitionsLost) and self.keeper is not None:
                self.keeper.withdraw()
            raise failure from None

    def _counts(self, chunks: Sequence[WrittenChunk]) -> JoinCounts[int]:
        left_rows = len(self.searcher.left.side.all_rows)
        counts = JoinCounts(
            left_rows,
            len(self.searcher.right.side.all_rows) + self.excluded,
            left_rows - sum(chunk.matched for chunk in chunks),
            # Every chunk has met the whole right side.
            self.excluded + chunks[0].excluded,
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
        return replace(
            counts,
            right_rows=known.right_rows + counts.right_rows,
            excluded_right_rows=known.excluded_right_rows + counts.excluded_right_rows,
        )
