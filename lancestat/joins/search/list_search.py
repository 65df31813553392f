"""The search of some lists of a right side that was written by list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Neighbours, share_found
from lancestat.joins.search.partitions import PartitionedDataset, read_lists
from lancestat.joins.search.search import BLOCK_BYTES, UNLIMITED, ExactSearch, RowList

if TYPE_CHECKING:
    import lance

# To read so many bytes of vectors that nobody asks for takes less time than to begin a new read.
_SKIPPED_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class SampledQueries:
    """Queries that measure the recall: vectors (m, dim), and the lists they visit (m, most)."""

    values: NDArray[np.float32]
    visits: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SampledResult:
    """The neighbours of sampled queries in the lists that they visit, and in all lists."""

    found: Neighbours
    true: Neighbours

    def recall(self) -> float | None:
        """Return the share of true neighbours that were found; None where there are none."""
        return share_found(self.true.positions, self.found.positions)


@dataclass(frozen=True, slots=True)
class ListSearchResult:
    """The neighbours from a search of lists, and the number of pairs that it compared.

    What was compared for `sampled` queries does not count.
    """

    neighbours: Neighbours
    pairs: int
    sampled: SampledResult | None = None


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
    sample: SampledQueries | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> ListSearchResult:
    """Find the nearest rows of each query in the lists that it visits.

    Each list is read once, and without a sample only if some query visits it.

    Args:
        dataset: `partitioned` at its version.
        partitioned: The positions of the lists.
        queries: (n, dim).
        visits: (n, most): the lists of each query, as `Centroids.visited_lists` gives them.
        lists: Those to search here; other tasks search the others.
        k: The number of neighbours.
        metric: The distance.
        limit: The largest distance of a neighbour.
        behind: (n,) the least position of a neighbour of each query; None for any position.
        like: Rows like all of the right side, for the accuracy of products.
        sample: Queries to search for in all lists as well. They have no least positions.
        block_bytes: Bytes of vectors to read at once; a single list may be longer.
    """
    assert sample is None or behind is None
    count, everywhere = len(queries), np.empty(0, np.int64)
    if sample is not None:
        queries = np.concatenate([queries, sample.values, sample.values])
        visits = _stacked(visits, sample.visits)
        everywhere = np.arange(len(visits), len(queries))
    nearest = ExactSearch(
        queries, k, metric, limit=limit, behind=behind, block_bytes=block_bytes, like=like
    )
    pairs = 0
    visitors = _visitors(visits, lists)
    if len(everywhere):
        none = np.empty(0, np.int64)
        visitors = {
            number: np.concatenate([visitors.get(number, none), everywhere]) for number in lists
        }
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
                pairs += item.count * int(np.searchsorted(item.queries, count))
                if behind is not None:
                    positions = read.positions[item.rows]
                    pairs -= int(np.searchsorted(positions, behind[item.queries]).sum())
    found = nearest.neighbours()
    sampled = None
    if sample is not None:
        sampled = SampledResult(found.some(slice(count, len(visits))), found.some(everywhere))
    return ListSearchResult(found.some(slice(count)), pairs, sampled)


def _stacked(first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the lists of all queries."""
    visits = np.full((len(first) + len(second), max(first.shape[1], second.shape[1])), -1, np.int32)
    visits[: len(first), : first.shape[1]] = first
    visits[len(first) :, : second.shape[1]] = second
    return visits


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
