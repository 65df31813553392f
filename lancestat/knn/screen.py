"""Pairs that products of matrices do not rule out, found block by block within a core's cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.knn.frame import Frame, PreparedQueries, PreparedRows, narrow

# Pairs whose products are held at once: about what a core's cache holds. Fewer rows at a time than
# this, whatever the number of queries, make poor use of a product of matrices.
_HELD_PAIRS, _HELD_ROWS = 1 << 20, 512
# A nearness of at least zero is within the threshold.
_ZERO = np.float32(0)
LAST = np.iinfo(np.int64).max

_Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What neighbours of queries (n,) cannot be beyond, by (distance, position), nor before.

    `behind` are the least positions of neighbours; None for any position.
    """

    distances: NDArray[np.float32]
    positions: _Positions
    behind: _Positions | None

    def some(self, which: _Positions) -> Bounds:
        """Return the bounds of some queries."""
        behind = None if self.behind is None else self.behind[which]
        return Bounds(self.distances[which], self.positions[which], behind)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as they are, and prepared for products."""

    rows: NDArray[np.float32]
    positions: _Positions
    prepared: PreparedRows
    frame: Frame

    @property
    def first_position(self) -> int:
        """The least position."""
        return int(np.min(self.positions))

    def candidates(
        self, tile: slice, queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[_Positions, _Positions]:
        """Return pairs of queries and rows of a tile that may be within bounds, by products.

        What is added to the nearness of the queries is lost.
        """
        if bounds.behind is not None:
            reached = np.flatnonzero(bounds.behind <= int(np.max(self.positions[tile])))
            if not len(reached):
                return reached, reached
            if len(reached) < len(bounds.behind):
                part = queries.some(reached), bounds.some(reached)
                query, row = self._candidates(tile, *part, k)
                return reached[query], row
        return self._candidates(tile, queries, bounds, k)

    def _candidates(
        self, tile: slice, queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[_Positions, _Positions]:
        error = self.frame.error(queries, self.prepared)
        limit, last = self._limits(tile, queries, bounds, k, error)
        thresholds = self.frame.thresholds(limit, queries, self.prepared, error)
        queries.values[:, -1] = thresholds.added
        query, row, sums = self._not_too_far(tile, queries, bounds.behind)
        nearness = sums.astype(np.float64) - thresholds.added[query]
        least = narrow(
            self.frame.lower_bounds(nearness, queries.nearest[query], thresholds.error[query])
        )
        is_within = least < limit[query]
        is_within |= (least == limit[query]) & (self.positions[row] <= last[query])
        return query[is_within], row[is_within]

    def _limits(
        self,
        tile: slice,
        queries: PreparedQueries,
        bounds: Bounds,
        k: int,
        error: NDArray[np.float64],
    ) -> tuple[NDArray[np.float32], _Positions]:
        """Return bounds that k rows of the tile are within, where there were none."""
        open_ended = np.flatnonzero(np.isinf(bounds.distances))
        rows = self.prepared.values[tile]
        if not len(open_ended) or len(rows) < k:
            return bounds.distances, bounds.positions
        queries.values[open_ended, -1] = 0.0
        nearness = np.empty((len(open_ended), len(rows)), np.float32)
        multiply(queries.values[open_ended], rows, nearness)
        if bounds.behind is not None:
            nearness[self.positions[tile] < bounds.behind[open_ended, None]] = -np.inf
        kth = np.partition(nearness, len(rows) - k, axis=1)[:, len(rows) - k].astype(np.float64)
        reach = self.frame.lower_bounds(kth, queries.nearest[open_ended], error[open_ended])
        reach += 2 * error[open_ended]
        limit, last = bounds.distances.copy(), bounds.positions.copy()
        limit[open_ended] = np.minimum(limit[open_ended], narrow(reach))
        last[open_ended] = LAST
        return limit, last

    def _not_too_far(
        self, tile: slice, queries: PreparedQueries, behind: _Positions | None
    ) -> tuple[_Positions, _Positions, NDArray[np.float32]]:
        """Return queries and rows whose sums are not negative, and these sums."""
        count = len(queries.values)
        step = max(_HELD_ROWS, _HELD_PAIRS // max(1, count))
        held = np.empty(count * step, np.float32)
        is_near = np.empty(count * step, np.bool_)
        pairs, sums = [np.empty((2, 0), np.int64)], [np.empty(0, np.float32)]
        for start in range(tile.start, min(tile.stop, len(self.rows)), step):
            rows = self.prepared.values[start : min(start + step, tile.stop)]
            size = count * len(rows)
            products, near = held[:size], is_near[:size]
            multiply(queries.values, rows, products.reshape(count, len(rows)))
            np.greater_equal(products, _ZERO, out=near)
            positions = self.positions[start : start + len(rows)]
            if behind is not None and int(np.max(behind)) > int(np.min(positions)):
                near &= (positions >= behind[:, None]).ravel()
            found = np.flatnonzero(near)
            if len(found):
                query, row = np.divmod(found, len(rows))
                pairs.append(np.stack([query, row + start]))
                sums.append(products[found])
        (query, row), nearness = np.concatenate(pairs, axis=1), np.concatenate(sums)
        return query, row, nearness


def multiply(
    queries: NDArray[np.float32], rows: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Write the products of queries (n, dim) and rows (m, dim) to `out` (n, m)."""
    np.matmul(queries, rows.T, out=out)
