"""Runs the strategy that the gate decided on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lancestat.knn.gate import Decision, Strategy
from lancestat.knn.request import JoinRequest, Mode
from lancestat.knn.stages import OnStage, Stage, StageProgress
from lancestat.spark.knn.grid import Grid, cut
from lancestat.spark.knn.indexed import Indexing, IndexProbe
from lancestat.spark.knn.materialize import Materialize
from lancestat.spark.knn.nearest_by import NearestBy
from lancestat.spark.knn.partitioned import Partitioning, PartitionProbe, split_lists
from lancestat.spark.knn.probe import ExactProbe
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.knn.search_job import SearchJob, WrittenChunk
from lancestat.spark.session import task_threads

# Where to write what is called so in the join's scratch folder.
Place = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Found:
    """What a strategy found, written but not committed.

    `strategy` is the one that did it: an approximate one that cannot reach the recall leaves the
    join to the exact one.
    """

    strategy: Strategy
    chunks: list[WrittenChunk]
    recall: float | None = None
    nprobes: int | None = None


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches a grid of left and right rows by any strategy."""

    spark: SparkSession
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    shares: Grid
    materialize: Materialize
    place: Place
    on_stage: OnStage

    def find(self, decision: Decision) -> Found:
        """Search as decided.

        Raises:
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        found = None
        if decision.strategy is Strategy.SPARK:
            found = self._by_spark()
        elif decision.strategy is Strategy.PARTITIONED and decision.lists:
            found = self._partitioned(decision.lists)
        elif decision.strategy is Strategy.INDEX:
            found = self._indexed()
        return found or self._exact()

    def _exact(self) -> Found:
        parts = tuple(cut(self.right.side.all_rows, self.shares.parts))
        chunks = self._job.run(ExactProbe(self.left, self.right, parts, self.request.k))
        recall = 1.0 if self.request.mode is Mode.APPROX else None
        return Found(Strategy.EXACT, chunks, recall)

    def _by_spark(self) -> Found:
        k, threads = self.request.k, self._threads
        self._tell(Stage.PROBE, "Spark's nearestByJoin")
        nearest = NearestBy(self.spark, self.left, self.right, self.materialize, k, threads)
        parts = cut(self.right.side.all_rows, self.shares.parts)
        return Found(Strategy.SPARK, nearest.search(self.shares.chunks, parts))

    def _partitioned(self, lists: int) -> Found | None:
        partitioning = Partitioning(
            self._context, self.left, self.right, self.request, self._threads
        )
        self._tell(Stage.SCRATCH, f"laying the right side out in {lists:,} lists")
        layout = partitioning.lay_out(self.place("partitions"), lists)
        if layout is None:
            return None
        parts = split_lists(layout.laid_out.list_rows, self.shares.parts)
        chunks = self._job.run(PartitionProbe(self.left, layout, parts, self.request.k))
        return Found(Strategy.PARTITIONED, chunks, layout.recall, layout.nprobes)

    def _indexed(self) -> Found | None:
        indexing = Indexing(self._context, self.left, self.right, self.request, self._threads)
        self._tell(Stage.PROBE, "measuring the recall of the index")
        search = indexing.search()
        if search is None:
            return None
        shares = self.shares.without_parts(self._context.defaultParallelism)
        probe = IndexProbe(self.left, self.right, search, self.request.k)
        chunks = replace(self._job, shares=shares).run(probe)
        return Found(Strategy.INDEX, chunks, search.recall, search.effort.nprobes)

    def _tell(self, stage: Stage, note: str) -> None:
        self.on_stage(StageProgress(stage, note=note))

    @property
    def _job(self) -> SearchJob:
        return SearchJob(
            self._context,
            self.shares,
            self.materialize,
            self.request.k,
            self._threads,
            self.on_stage,
        )

    @property
    def _context(self) -> SparkContext:
        return self.spark.sparkContext

    @property
    def _threads(self) -> int:
        return task_threads(self.spark)
