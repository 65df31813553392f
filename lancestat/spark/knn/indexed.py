"""The strategy of a vector index: a Lance table on the right that has one of the metric."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark import SparkContext

from lancestat.knn.gate import SAMPLE_ROWS
from lancestat.knn.index import Effort, IndexedSide
from lancestat.knn.neighbours import Neighbours, merge
from lancestat.knn.request import JoinRequest
from lancestat.knn.search import Nearest
from lancestat.knn.side import Rows, VectorSide
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.knn.grid import cut
from lancestat.spark.knn.probe import Cell, Probed
from lancestat.spark.knn.reader import VectorReader
from lancestat.spark.knn.worker import working


@dataclass(frozen=True, slots=True)
class Search:
    """How far to search the index, and the recall measured on a sample of left rows.

    `excluded` right rows cannot match.
    """

    effort: Effort
    recall: float | None
    excluded: int


@dataclass(frozen=True, slots=True)
class Indexing:
    """Finds out how far the index has to be searched."""

    context: SparkContext
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    threads: int

    def search(self) -> Search | None:
        """Measure on a sample of left rows, whose true neighbours one pass over the right finds.

        Returns:
            None when the index does not reach the recall, however far it is searched.
        """
        queries = self.left.sample(SAMPLE_ROWS)
        truth, excluded = self._true_neighbours(queries)
        side = indexed(self.right)
        if self.request.nprobes is not None:
            effort = Effort(self.request.nprobes)
            found = side.search(queries, self.request.k, effort)
            return Search(effort, _recall(found, truth), excluded)
        assert self.request.recall is not None
        if len(queries) < 2:
            return None
        measured = side.measure(queries, truth, self.request.recall)
        if measured.effort is None:
            return None
        return Search(measured.effort, measured.recall, excluded)

    def _true_neighbours(self, queries: NDArray[np.float32]) -> tuple[Neighbours, int]:
        right, k, threads = self.right, self.request.k, self.threads

        def compare(found: Iterable[Rows]) -> Iterator[tuple[Neighbours, int]]:
            with working(threads, right.side.storage_options, "sampling the recall"):
                for rows in found:
                    nearest, excluded = Nearest(queries, k, right.metric), 0
                    for block in right.blocks(rows):
                        nearest.add(block.rows, block.places)
                        excluded += block.excluded
                    yield nearest.neighbours(), excluded

        parts = cut(right.side.all_rows, self.context.defaultParallelism)
        done = self.context.parallelize(parts, len(parts)).mapPartitions(compare).collect()
        return merge([found for found, _ in done], k), sum(excluded for _, excluded in done)


@dataclass(frozen=True, slots=True)
class IndexProbe:
    """Searches the index for the neighbours of left rows; travels to Spark's workers."""

    left: VectorReader
    right: VectorReader
    search: Search
    k: int

    def __call__(self, cell: Cell) -> Probed:
        """Search for one chunk."""
        started = time.perf_counter()
        queries = self.left.read(cell.left)
        asked = queries.values[queries.valid]
        found = indexed(self.right).search(asked, self.k, self.search.effort)
        pairs = len(asked) * self.k * self.search.effort.proposals
        seconds = time.perf_counter() - started
        return Probed(queries.valid, found, self.search.excluded, pairs, seconds)


def indexed(right: VectorReader) -> IndexedSide:
    """The right side as the index sees it."""
    side = right.side
    assert isinstance(side, VectorSide)
    dataset = pinned_dataset(side.pin, side.storage_options)
    return IndexedSide(dataset, side, right.metric)


def _recall(found: Neighbours, truth: Neighbours) -> float | None:
    wanted = truth.places >= 0
    if not wanted.any():
        return None
    hits = [np.isin(true, mine) for true, mine in zip(truth.places, found.places, strict=True)]
    return float(np.array(hits)[wanted].mean())
