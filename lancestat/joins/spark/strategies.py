"""The strategies of a join on Spark: exact, by partitions, by a vector index, and Spark's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from typing_extensions import assert_never

from lancestat.joins.action import CommitResult, Probe
from lancestat.joins.measures import UNMEASURED, Accuracy
from lancestat.joins.search.cost_model import SAMPLE_ROWS, Strategy
from lancestat.joins.search.groups import GroupCell
from lancestat.joins.search.index import IndexedSide, SearchParameters
from lancestat.joins.search.neighbours import Neighbours, merge, share_found, within
from lancestat.joins.search.request import JoinRequest, Mode
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import Rows, VectorSide
from lancestat.joins.spark.grid import Grid, cut, cut_by_pairs, list_grid
from lancestat.joins.spark.group_layout import Grouping, GroupLayout
from lancestat.joins.spark.group_search import CellSearch
from lancestat.joins.spark.grouped import GroupedJob
from lancestat.joins.spark.grouped_ranges import GroupRangeSearch
from lancestat.joins.spark.materialize import Materializer
from lancestat.joins.spark.nearest_by import NearestByJoin
from lancestat.joins.spark.partitioned import (
    Layout,
    Partitioning,
    PartitionProbe,
    UnmeasuredLayout,
    split_lists,
)
from lancestat.joins.spark.range_job import PairSearch, RangeJob, SearchItem
from lancestat.joins.spark.ranges import RangeSearch
from lancestat.joins.spark.reader import VectorReader
from lancestat.joins.spark.tasks import (
    Cell,
    ExactProbe,
    ProbeResult,
    SearchJob,
    WrittenChunk,
    worker_task,
)
from lancestat.runs.stages import OnStage
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs, jobs_of
from lancestat.spark.start import task_threads

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class IndexSearch:
    """The search parameters for an index, and the recall measured on a sample of left rows.

    `excluded` right rows cannot match.
    """

    parameters: SearchParameters
    recall: float | None
    excluded: int


@dataclass(frozen=True, slots=True)
class IndexTuning:
    """Measures which search parameters of the index reach the recall."""

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    threads: int

    def search(self) -> IndexSearch | None:
        """Measure on a sample of left rows, whose true neighbours one pass over the right finds.

        Returns:
            None when the index does not reach the recall, however far it is searched.
        """
        queries = self.left.sample(SAMPLE_ROWS)
        truth, excluded = self._true_neighbours(queries)
        side = indexed(self.right)
        if self.request.nprobes is not None:
            parameters = SearchParameters(self.request.nprobes)
            neighbours = side.search(queries, self.request.k, parameters)
            return IndexSearch(
                parameters, share_found(truth.positions, neighbours.positions), excluded
            )
        assert self.request.recall is not None
        if len(queries) < 2:
            return None
        measured = side.measure(queries, truth, self.request.recall)
        if measured.parameters is None:
            return None
        return IndexSearch(measured.parameters, measured.recall, excluded)

    def _true_neighbours(self, queries: NDArray[np.float32]) -> tuple[Neighbours, int]:
        right, k, threads = self.right, self.request.k, self.threads

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

        done = self.jobs.run(compare, cut(right.side.all_rows, self.jobs.cores))
        return merge([neighbours for neighbours, _ in done], k), sum(
            excluded for _, excluded in done
        )


@dataclass(frozen=True, slots=True)
class IndexProbe:
    """Searches the index for the neighbours of left rows; travels to Spark's workers."""

    left: VectorReader
    right: VectorReader
    search: IndexSearch
    request: JoinRequest

    def __call__(self, cell: Cell) -> ProbeResult:
        """Search for one chunk."""
        started = time.perf_counter()
        queries = self.left.read(cell.left)
        vectors = queries.values[queries.valid]
        k, parameters = self.request.k, self.search.parameters
        nearest = indexed(self.right).search(vectors, k, parameters)
        neighbours = within(nearest, self.request.limit)
        pairs = len(vectors) * k * parameters.proposals
        seconds = time.perf_counter() - started
        return ProbeResult(queries.valid, neighbours, self.search.excluded, pairs, seconds)


def indexed(right: VectorReader) -> IndexedSide:
    """Return the right side with its index."""
    side = right.side
    assert isinstance(side, VectorSide)
    dataset = pinned_dataset(side.pin, side.storage_options)
    return IndexedSide(dataset, side, right.metric)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The neighbours that a strategy found, written but not committed.

    `groups` is the number of keys that rows of both sides have, None where keys are not compared.
    """

    strategy: Strategy
    chunks: list[WrittenChunk]
    accuracy: Accuracy = UNMEASURED
    groups: int | None = None


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
    shares: Grid
    materialize: Materializer
    on_stage: OnStage
    place: Callable[[str], str]
    scratch_options: Mapping[str, str] = field(repr=False)
    key_types: tuple[pa.DataType, ...] = ()

    def group_rows(self, *, counts_all: bool) -> GroupLayout:
        """Lay both sides out by their keys; `counts_all` asks for all rows that cannot match."""
        grouping = Grouping(
            self.jobs, self.left, self.right, self.key_types, counts_all, self.scratch_options
        )
        return grouping.lay_out(self.place)

    def lay_out(self, uri: str, lists: int) -> Layout | None:
        """Lay the right side out at a URI; None where no right row was found that can match."""
        laid = self.partitioning.lay_out(uri, lists)
        return None if laid is None else laid.layout

    @property
    def partitioning(self) -> Partitioning:
        """Lays the right side out."""
        return Partitioning(self.jobs, self.left, self.right, self.request, self._threads)

    def measure_index(self) -> IndexSearch | None:
        """Find how far the index has to be searched; None where no effort reaches the recall."""
        indexing = IndexTuning(self.jobs, self.left, self.right, self.request, self._threads)
        return indexing.search()

    def search(
        self,
        probe: Probe,
        commit: CommitResult,
        method: Layout | UnmeasuredLayout | IndexSearch | GroupLayout | None,
    ) -> SearchResult:
        """Search neighbours, and write the rows of the result.

        Args:
            probe: The stage of the search; Spark's own join is taken where it says so.
            commit: The stage that commits what is written here.
            method: What `lay_out`, `measure_index` or `group_rows` returned; every pair is
                compared without it.
        """
        stages = (probe, commit)
        match method:
            case Layout():
                return self._partitioned(method, stages)
            case UnmeasuredLayout():
                return self._partitioned_and_measured(method, stages)
            case IndexSearch():
                return self._indexed(method, stages)
            case GroupLayout():
                return self._grouped(method, stages)
            case None if self.request.is_range:
                return self._within_distance(stages)
            case None if probe.strategy is Strategy.SPARK:
                return self._by_spark()
            case None:
                return self._exact(stages)
            case _:
                assert_never(method)

    def _exact(self, stages: tuple[Probe, CommitResult]) -> SearchResult:
        parts = tuple(cut(self.right.side.all_rows, self.shares.parts))
        probe = ExactProbe(self.left, self.right, parts, self.request)
        recall = 1.0 if self.request.mode is Mode.APPROX else None
        return SearchResult(Strategy.EXACT, self._job(stages).run(probe), Accuracy(recall))

    def _within_distance(self, stages: tuple[Probe, CommitResult]) -> SearchResult:
        search = partial(RangeSearch, self.left, self.right, self.request)
        job = self._range_job(search, stages)
        chunks = job.chunks
        if self.request.pairs_once:
            rows = Rows(chunks[0].start, chunks[-1].stop)
            chunks = tuple(cut_by_pairs(rows, len(chunks)))
        items = [SearchItem(chunk, len(chunk)) for chunk in chunks]
        return SearchResult(Strategy.EXACT, job.run(items, 0))

    def _grouped(self, layout: GroupLayout, stages: tuple[Probe, CommitResult]) -> SearchResult:
        sides = (self.left.side, self.right.side)
        search = CellSearch.of(layout, self.request, self.left.dimension, sides)
        if self.request.is_range:
            return self._grouped_within_distance(search, layout, stages)
        job = GroupedJob(
            self.jobs,
            self.shares.without_parts(self.jobs.cores).chunks,
            self.materialize,
            self.request,
            self._threads,
            stages,
            self.on_stage,
        )
        recall = 1.0 if self.request.mode is Mode.APPROX else None
        chunks = job.run(search, layout.excluded)
        return SearchResult(Strategy.EXACT, chunks, Accuracy(recall), layout.groups)

    def _grouped_within_distance(
        self, search: CellSearch | None, layout: GroupLayout, stages: tuple[Probe, CommitResult]
    ) -> SearchResult:
        items: list[SearchItem[GroupCell]] = []
        if search is not None:
            cells = search.cells(self.jobs.cores)
            items = [SearchItem(cell, search.left_rows_of(cell)) for cell in cells]
        job = self._range_job(partial(GroupRangeSearch, search), stages)
        chunks = job.run(items, layout.excluded)
        return SearchResult(Strategy.EXACT, chunks, groups=layout.groups)

    def _range_job(
        self, new_search: Callable[[], PairSearch[Item]], stages: tuple[Probe, CommitResult]
    ) -> RangeJob[Item]:
        return RangeJob(
            self.jobs,
            new_search,
            self.shares.without_parts(self.jobs.cores).chunks,
            self.materialize,
            self.request,
            self._threads,
            stages,
            self.on_stage,
            self.place("pairs"),
            self.scratch_options,
        )

    def _by_spark(self) -> SearchResult:
        request, threads = self.request, self._threads
        sides = (self.left, self.right)
        nearest = NearestByJoin(self.spark, *sides, self.materialize, request, threads)
        parts = cut(self.right.side.all_rows, self.shares.parts)
        return SearchResult(Strategy.SPARK, nearest.search(self.shares.chunks, parts))

    def _partitioned(
        self,
        layout: Layout,
        stages: tuple[Probe, CommitResult],
        sample: NDArray[np.float32] | None = None,
    ) -> SearchResult:
        shares = self._list_shares(layout)
        parts = split_lists(layout.partitioned.list_rows, shares.parts)
        probe = PartitionProbe(self.left, layout, parts, self.request, sample)
        chunks = replace(self._job(stages), shares=shares).run(probe)
        sampled = chunks[0].sampled
        recall = layout.recall if sampled is None else sampled.recall()
        accuracy = Accuracy(recall, layout.nprobes)
        return SearchResult(Strategy.PARTITIONED, chunks, accuracy)

    def _partitioned_and_measured(
        self, method: UnmeasuredLayout, stages: tuple[Probe, CommitResult]
    ) -> SearchResult:
        """Search the lists, and measure the recall on the way where that spares a pass over them.

        Of many left rows the search takes so much longer than the pass that it would be a pity to
        learn only afterwards that too few lists were visited.
        """
        if (
            len(self._list_shares(method.layout).chunks) > 1
            or self.request.max_distance is not None
        ):
            return self._partitioned(method.measure(method.layout.nprobes), stages)
        result = self._partitioned(method.layout, stages, method.sample)
        if self.request.reached_by(result.accuracy.recall):
            return result
        # What was written is not committed, like that of a repeated attempt.
        return self._partitioned(method.measure(None), stages)

    def _list_shares(self, layout: Layout) -> Grid:
        return list_grid(
            self.left.side.all_rows,
            int(layout.partitioned.list_rows.sum()),
            self.shares,
            dimension=self.left.dimension,
            k=self.request.searched,
            cores=self.jobs.cores,
        )

    def _indexed(self, search: IndexSearch, stages: tuple[Probe, CommitResult]) -> SearchResult:
        shares = self.shares.without_parts(self.jobs.cores)
        probe = IndexProbe(self.left, self.right, search, self.request)
        chunks = replace(self._job(stages), shares=shares).run(probe)
        accuracy = Accuracy(search.recall, search.parameters.nprobes)
        return SearchResult(Strategy.INDEX, chunks, accuracy)

    def _job(self, stages: tuple[Probe, CommitResult]) -> SearchJob:
        return SearchJob(
            self.jobs,
            self.shares,
            self.materialize,
            self.request.searched,
            self._threads,
            stages,
            self.on_stage,
        )

    @property
    def jobs(self) -> Jobs:
        """The jobs of the session."""
        return jobs_of(self.spark)

    @property
    def _threads(self) -> int:
        return task_threads(self.spark)
