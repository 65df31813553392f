"""A pass over all rows of a layout, which finds the true neighbours of sampled queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.partitions import PartitionedDataset, live_rows, scanned
from lancestat.joins.search.sampled import SampledNeighbours, lists_of
from lancestat.joins.search.search import BLOCK_BYTES, ExactSearch

if TYPE_CHECKING:
    import lance


@dataclass(frozen=True, slots=True)
class LaidPiece:
    """Consecutive rows of the fragment of that number of a partitioned dataset."""

    number: int
    start: int
    stop: int


def laid_pieces(partitioned: PartitionedDataset, count: int) -> list[list[LaidPiece]]:
    """Split all rows into `count` shares of about as many rows each; none is without rows."""
    ends = np.cumsum(partitioned.offsets[:, -1])
    total = int(ends[-1]) if len(ends) else 0
    edges = [total * number // count for number in range(count + 1)]
    shares = []
    for first, last in pairwise(edges):
        share = []
        for number, end in enumerate(ends.tolist()):
            begin = end - int(partitioned.offsets[number, -1])
            start, stop = max(first, begin), min(last, end)
            if stop > start:
                share.append(LaidPiece(number, start - begin, stop - begin))
        if share:
            shares.append(share)
    return shares


def sample_lists(
    dataset: lance.LanceDataset,
    partitioned: PartitionedDataset,
    pieces: Iterable[LaidPiece],
    queries: NDArray[np.float32],
    k: int,
    metric: Metric,
    like: NDArray[np.float32] | None = None,
) -> SampledNeighbours:
    """Find the true neighbours of some queries among laid out rows, and the lists of these.

    Args:
        dataset: `partitioned` at its version.
        partitioned: The positions of the lists.
        pieces: The rows to compare.
        queries: (queries, dim).
        k: The number of neighbours of each query.
        metric: The distance.
        like: Rows like all of the right side, for the accuracy of products.
    """
    nearest = ExactSearch(queries, k, metric, like=like)
    known: NDArray[np.int32] = np.full((len(queries), k), -1, np.int32)
    step = max(1, BLOCK_BYTES // (4 * max(1, queries.shape[1])))
    for piece in pieces:
        number, offsets = piece.number, partitioned.offsets[piece.number]
        fragment_id = partitioned.fragment_ids[number]
        first = piece.start
        for start in range(piece.start, piece.stop, step):
            stop = min(start + step, piece.stop)
            before = nearest.neighbours().positions.copy()
            seen = []
            for places, rows in scanned(dataset, partitioned, fragment_id, start, stop):
                keys, which = live_rows(partitioned, places)
                nearest.add(rows[which], keys)
                lists = np.searchsorted(offsets, np.arange(first, first + len(rows)), "right") - 1
                seen.append((keys, lists[which].astype(np.int32)))
                first += len(rows)
            known = lists_of(
                nearest.neighbours().positions,
                (before, known),
                np.concatenate([keys for keys, _ in seen]),
                np.concatenate([lists for _, lists in seen]),
            )
    return SampledNeighbours(nearest.neighbours(), known)
