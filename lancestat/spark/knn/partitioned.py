"""The approximate strategy: right rows laid out by centroid, left rows sent to the nearest ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pyspark import SparkContext

from lancestat.knn.centroids import Centroids, choose_nprobes, recall_curve, train
from lancestat.knn.gate import SAMPLE_ROWS, TRAIN_ROWS
from lancestat.knn.partitions import (
    LaidOut,
    Sampled,
    WrittenPart,
    commit,
    merge_sampled,
    search_lists,
    write_partition,
)
from lancestat.knn.request import JoinRequest
from lancestat.knn.side import Rows
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.knn.grid import cut
from lancestat.spark.knn.probe import Cell, Probed
from lancestat.spark.knn.reader import Block, VectorReader
from lancestat.spark.knn.worker import working

# Right vectors that a task lays out at once: longer lists in a file make for fewer, longer reads.
LAYOUT_BYTES = 128 << 20
# Rows by which the search judges how accurate its products are.
_LIKE_ROWS = 2048
# Rows to train on are taken so many in a row: by single rows it takes twenty times as long.
_TRAIN_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The right side by list, and how many lists a left row visits.

    `recall` is what a sample of left rows finds that had no part in choosing `nprobes`; None where
    there are no left rows to sample. `excluded` right rows cannot match.
    """

    laid_out: LaidOut
    centroids: Centroids
    nprobes: int
    recall: float | None
    excluded: int
    like: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Lays the right side out; its tasks travel to Spark's workers."""

    context: SparkContext
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    threads: int

    def lay_out(self, uri: str, lists: int) -> Layout | None:
        """Write the right side to scratch by list, and measure the recall on the way.

        The pass that writes holds every right row in memory once, and finds the true neighbours of
        some left rows among them. Half of these choose how many lists have to be visited, the
        others tell the recall.

        Returns:
            None when no right row was found that can match.
        """
        rows = self.right.sample(lists * TRAIN_ROWS, _TRAIN_TOGETHER)
        if not len(rows):
            return None
        centroids = train(rows, lists, self.request.metric)
        queries = self.left.sample(SAMPLE_ROWS)
        parts = self._written(uri, centroids, queries)
        options = self.right.side.storage_options
        laid_out = commit([part for part, _ in parts], uri, self.right.dimension, options)
        sampled = merge_sampled([part.sampled for part, _ in parts], self.request.k)
        nprobes, recall = self._nprobes(centroids, queries, sampled)
        excluded = sum(excluded for _, excluded in parts)
        return Layout(laid_out, centroids, nprobes, recall, excluded, rows[:_LIKE_ROWS])

    def _written(
        self, uri: str, centroids: Centroids, queries: NDArray[np.float32]
    ) -> list[tuple[WrittenPart, int]]:
        right, k, threads = self.right, self.request.k, self.threads

        def write(found: Iterable[Rows]) -> Iterator[tuple[WrittenPart, int]]:
            options = right.side.storage_options
            with working(threads, options, "laying out the right side"):
                for rows in found:
                    blocks = _Counted(right.blocks(rows, LAYOUT_BYTES))
                    part = write_partition(blocks, centroids, queries, k, uri, options)
                    yield part, blocks.excluded

        rows, cores = right.side.all_rows, self.context.defaultParallelism
        blocks = -(-4 * right.dimension * len(rows) // LAYOUT_BYTES)
        parts = cut(rows, max(1, min(len(rows), -(-blocks // cores) * cores)))
        return list(self.context.parallelize(parts, len(parts)).mapPartitions(write).collect())

    def _nprobes(
        self, centroids: Centroids, queries: NDArray[np.float32], sampled: Sampled
    ) -> tuple[int, float | None]:
        asked = self.request.nprobes
        if not len(queries):
            return asked or 1, None
        order = centroids.nearest_lists(queries, len(centroids))
        # Every other one: the sample is in row order, which may have a meaning.
        chosen = recall_curve(order[::2], sampled.lists[::2])
        nprobes = asked or choose_nprobes(chosen, self.request.recall or 1.0)
        nprobes = min(nprobes, len(centroids))
        told = recall_curve(order[1::2], sampled.lists[1::2]) if len(queries) > 1 else chosen
        return nprobes, float(told.recall[nprobes - 1])


@dataclass(frozen=True, slots=True)
class PartitionProbe:
    """Searches the lists that left rows visit; travels to Spark's workers."""

    left: VectorReader
    layout: Layout
    parts: tuple[range, ...]
    k: int

    def __call__(self, cell: Cell) -> Probed:
        """Search some of the lists for the neighbours of one chunk."""
        started = time.perf_counter()
        layout, laid_out = self.layout, self.layout.laid_out
        queries = self.left.read(cell.left)
        asked = queries.values[queries.valid]
        found = search_lists(
            pinned_dataset(laid_out.pin, laid_out.storage_options),
            laid_out,
            asked,
            layout.centroids.nearest_lists(asked, layout.nprobes),
            self.parts[cell.part],
            self.k,
            self.left.metric,
            like=layout.like,
        )
        # Every chunk is to be told of them once.
        excluded = layout.excluded if cell.part == 0 else 0
        seconds = time.perf_counter() - started
        return Probed(queries.valid, found.neighbours, excluded, found.pairs, seconds)


def split_lists(rows: NDArray[np.int64], parts: int) -> tuple[range, ...]:
    """Consecutive lists with about as many rows in each part."""
    ends = np.cumsum(rows)
    shares = [ends[-1] * number / parts for number in range(1, parts)]
    edges = [0, *np.searchsorted(ends, shares).tolist(), len(rows)]
    return tuple(range(start, stop) for start, stop in pairwise(edges))


class _Counted:
    """Blocks as the layout takes them; what cannot match is counted on the way."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = blocks
        self.excluded = 0

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        for block in self._blocks:
            self.excluded += block.excluded
            yield block.places, block.rows
