"""The strategy that searches a vector index of Lance: its tuning, and its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.cost_model import SAMPLE_ROWS
from lancestat.joins.search.index import IndexedSide, SearchParameters
from lancestat.joins.search.neighbours import Neighbours, merge, share_found, within
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import Rows, VectorSide
from lancestat.joins.spark.job import CellResult, ChunkCell, ChunkSearch, LeftRows
from lancestat.joins.spark.reader import VectorReader
from lancestat.joins.spark.tasks import cut, worker_task
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs


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
