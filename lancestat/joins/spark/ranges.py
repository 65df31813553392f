"""The search of all right rows within a distance, which streams the right side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.neighbours import Neighbours, nothing, without
from lancestat.joins.search.pair_store import Pairs
from lancestat.joins.search.request import RANGE_NEIGHBOURS, JoinRequest
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.vectors import Vectors
from lancestat.joins.search.widening import MOST_HELD, WideningSearch
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.grid import CHUNK_BYTES, NEIGHBOUR_BYTES, cut
from lancestat.joins.spark.reader import VectorReader, row_places, rows_behind

# Left rows that a task searches at once, within the memory of a task for them: each time it streams
# the right side.
SLICE_ROWS = 16_384


@dataclass(slots=True)
class RangeSearch:
    """Finds all right rows within the distance of some left rows, and counts what it compared.

    `width` is the room for neighbours of each row at first: rows that have more are searched again.
    `most` is the room for neighbours that are held at once. With `counts_excluded` all right rows
    are read once, and `excluded` of them cannot match.
    """

    left: VectorReader
    right: VectorReader
    request: JoinRequest
    width: int = RANGE_NEIGHBOURS
    most: int = MOST_HELD
    counts_excluded: bool = True
    pairs: int = 0
    excluded: int | None = None

    def __call__(self, rows: Rows) -> Iterator[Pairs]:
        """Yield the pairs of left rows, in the order of these."""
        self.counts_excluded = rows.start == self.left.side.all_rows.start
        for part, is_valid, found in self.search(rows):
            yield Pairs.of(part.start + np.flatnonzero(is_valid), found)

    def search(self, rows: Rows) -> Iterator[tuple[Rows, NDArray[np.bool_], Neighbours]]:
        """Yield consecutive rows, which of them can match, and the neighbours of these.

        The neighbours of all rows that are yielded together are as many as the widest row has.
        """
        row_bytes = 4 * self.left.dimension + NEIGHBOUR_BYTES * self.width
        most = max(1, min(SLICE_ROWS, CHUNK_BYTES // row_bytes))
        widest = len(self.right.side.all_rows)
        widening = WideningSearch(self._searched, widest, self.width, self.most)
        # Without left rows those of the right side are counted all the same.
        for part in cut(rows, max(1, -(-len(rows) // most))):
            for some, is_valid, found in widening.search(part, self.left.read(part)):
                yield some, is_valid, self._without_self(some, is_valid, found)

    def _searched(
        self, rows: Rows, queries: Vectors, which: NDArray[np.int64], width: int
    ) -> Neighbours:
        request, behind = self.request, None
        read = self.right.side.all_rows
        counts_all = self.counts_excluded and self.excluded is None
        if request.pairs_once:
            _, behind = row_places(self.left.side, self.right.side, rows.start + which)
            read = read if counts_all else rows_behind(read, behind)
        nearest = ExactSearch(
            queries.values[which], width, request.metric, limit=request.limit, behind=behind
        )
        excluded = 0
        for block in self.right.blocks(read):
            excluded += block.excluded
            self.pairs += len(block.rows) * len(which)
            if behind is not None:
                self.pairs -= int(np.searchsorted(block.positions, behind).sum())
            nearest.add(block.rows, block.positions)
        if counts_all:
            self.excluded = excluded
        return nearest.neighbours()

    def _without_self(
        self, rows: Rows, is_valid: NDArray[np.bool_], found: Neighbours
    ) -> Neighbours:
        if not self.request.excludes_self or self.request.pairs_once:
            return found
        positions = rows.start + np.flatnonzero(is_valid)
        own, _ = row_places(self.left.side, self.right.side, positions)
        # Without itself a row has at most one neighbour fewer than there is room for.
        padded = nothing(len(own), found.positions.shape[1] + 1)
        padded.positions[:, :-1], padded.distances[:, :-1] = found.positions, found.distances
        return without(padded, own)
