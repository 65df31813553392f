"""The search of some lists of a right side that was written by list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lancestat.knn.neighbours import Neighbours
from lancestat.knn.partitions import PartitionedDataset, read_lists
from lancestat.knn.request import Metric
from lancestat.knn.search import BLOCK_BYTES, UNLIMITED, ExactSearch, RowList

if TYPE_CHECKING:
    import lance

# To read so many bytes of vectors that nobody asks for takes less time than to begin a new read.
_SKIPPED_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ListSearchResult:
    """The neighbours from a search of lists, and the number of pairs that it compared."""

    neighbours: Neighbours
    pairs: int


def search_lists(
    dataset: lance.LanceDataset,
    partitioned: PartitionedDataset,
    queries: NDArray[np.float32],
    visits: NDArray[np.int32],
    lists: range,
    k: int,
    metric: Metric,
    *,
    limit: np.float32 = UNLIMITED,
    behind: NDArray[np.int64] | None = None,
    like: NDArray[np.float32] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> ListSearchResult:
    """Find the nearest rows of each query in the lists that it visits.

    Each list is read once, and only if some query visits it.

    Args:
        dataset: `partitioned` at its version.
        partitioned: The positions of the lists.
        queries: (n, dim).
        visits: (n, nprobes): the lists of each query, as `Centroids.nearest_lists` gives them.
        lists: Those to search here; other tasks search the others.
        k: The number of neighbours.
        metric: The distance.
        limit: The largest distance of a neighbour.
        behind: (n,) the least position of a neighbour of each query; None for any position.
        like: Rows like all of the right side, for the accuracy of products.
        block_bytes: Bytes of vectors to read at once; a single list may be longer.
    """
    nearest = ExactSearch(
        queries, k, metric, limit=limit, behind=behind, block_bytes=block_bytes, like=like
    )
    pairs = 0
    visitors = _visitors(visits, lists)
    rows = partitioned.list_rows
    numbers = [number for number in visitors if rows[number]]
    most = max(1, block_bytes // (4 * max(1, queries.shape[1])))
    between = _SKIPPED_BYTES // (4 * max(1, queries.shape[1]))
    for run in _runs(numbers, rows, most, between):
        for read in read_lists(dataset, partitioned, run, queries.shape[1], most):
            visited = [
                RowList(span, visitors[number]) for number, span in read.spans if number in visitors
            ]
            nearest.add_lists(read.rows, read.positions, visited)
            for item in visited:
                pairs += item.count * len(item.queries)
                if behind is not None:
                    positions = read.positions[item.rows]
                    pairs -= int(np.searchsorted(positions, behind[item.queries]).sum())
    return ListSearchResult(nearest.neighbours(), pairs)


def _visitors(visits: NDArray[np.int32], lists: range) -> dict[int, NDArray[np.int64]]:
    """Return the queries that visit each of the lists, in the order of lists."""
    query, turn = np.nonzero((visits >= lists.start) & (visits < lists.stop))
    chosen = visits[query, turn]
    order = np.argsort(chosen, kind="stable")
    numbers, starts = np.unique(chosen[order], return_index=True)
    groups = np.split(query[order], starts[1:]) if len(numbers) else []
    return {int(number): group for number, group in zip(numbers, groups, strict=True)}


def _runs(
    numbers: Sequence[int], rows: NDArray[np.int64], most: int, between: int
) -> Iterator[range]:
    """Yield runs of lists that are together not longer than `most`, unless one list is.

    At most `between` rows of lists that are not visited are read from one that is to the next.
    """
    ends = np.cumsum(rows)
    start = stop = -1
    for number in numbers:
        if start >= 0:
            unvisited = int(ends[number] - rows[number] - ends[stop - 1])
            together = int(ends[number] - ends[start] + rows[start])
            if unvisited > between or together > most:
                yield range(start, stop)
                start = -1
        if start < 0:
            start = number
        stop = number + 1
    if start >= 0:
        yield range(start, stop)
