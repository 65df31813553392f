"""The search of all rows within a distance: room for neighbours grows where it does not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.neighbours import Neighbours, nothing
from lancestat.joins.search.request import RANGE_NEIGHBOURS
from lancestat.joins.search.vectors import Vectors
from lancestat.joins.search.work import Rows

_GROWTH = 8
# Neighbours that are held at once, unless a single row has more: 12 bytes each.
MOST_HELD = 4 << 20

# Searches for some left rows, of which it gets vectors and the numbers of those that can match.
Find = Callable[[Rows, Vectors, NDArray[np.int64], int], Neighbours]


@dataclass(frozen=True, slots=True)
class WideningSearch:
    """Finds every neighbour of left rows.

    `find` returns as many of the nearest as there is room for, and no row has more than `widest`.
    `width` is the room for neighbours of each row at first: rows that have more are searched again.
    `most` is the room for neighbours that are held at once.
    """

    find: Find
    widest: int
    width: int = RANGE_NEIGHBOURS
    most: int = MOST_HELD

    def search(
        self, rows: Rows, queries: Vectors
    ) -> Iterator[tuple[Rows, NDArray[np.bool_], Neighbours]]:
        """Yield consecutive rows, which of them can match, and the neighbours of these.

        The neighbours of all rows that are yielded together are as many as the widest row has.
        """
        found = self.find(rows, queries, np.flatnonzero(queries.valid), self.width)
        yield from self._resolved(rows, queries, found)

    def _resolved(
        self, rows: Rows, queries: Vectors, found: Neighbours
    ) -> Iterator[tuple[Rows, NDArray[np.bool_], Neighbours]]:
        width = found.positions.shape[1]
        is_full = found.positions[:, -1] >= 0
        wider = width * _GROWTH
        if not is_full.any() or width >= self.widest:
            yield rows, queries.valid, found
        elif len(rows) > 1 and len(found.positions) * wider > self.most:
            middle = len(rows) // 2
            split = int(np.count_nonzero(queries.valid[:middle]))
            for part, some, known in (
                (Rows(rows.start, rows.start + middle), slice(middle), slice(split)),
                (Rows(rows.start + middle, rows.stop), slice(middle, None), slice(split, None)),
            ):
                vectors = Vectors(queries.values[some], queries.valid[some])
                half = Neighbours(found.positions[known], found.distances[known])
                yield from self._resolved(part, vectors, half)
        else:
            full = np.flatnonzero(queries.valid)[is_full]
            again = self.find(rows, queries, full, wider)
            widened = nothing(len(found.positions), wider)
            widened.positions[:, :width], widened.distances[:, :width] = (
                found.positions, found.distances,
            )  # fmt: skip
            widened.positions[is_full], widened.distances[is_full] = (
                again.positions, again.distances,
            )  # fmt: skip
            yield from self._resolved(rows, queries, widened)
