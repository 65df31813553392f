"""Pairs that products of matrices do not rule out, found block by block within a core's cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.frame import Frame, PreparedQueries, PreparedRows, narrow

# Pairs whose products are held at once: about what a core's cache holds. Fewer rows at a time than
# this, whatever the number of queries, make poor use of a product of matrices.
HELD_PAIRS, _HELD_ROWS = 1 << 20, 512
# Rows whose products are taken with one bound.
TILE_ROWS = 4096
# Bounds that leave more than k of so many rows to each query are of little use.
_RULED_OUT_ROWS = 1024
# Products of a query are folded about so many times, to at least so many times k places. The k-th
# of the greatest products at these places is reached by few more than k rows.
_FOLDS, _SPREAD = 16, 4
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


@dataclass(frozen=True, slots=True)
class Visit:
    """Consecutive queries that are compared with consecutive rows of a block."""

    queries: slice
    rows: slice


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as they are, and prepared for products."""

    rows: NDArray[np.float32]
    positions: _Positions
    prepared: PreparedRows
    frame: Frame

    def within(
        self, tile: slice, queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[_Positions, _Positions] | None:
        """Return pairs of queries and rows of a tile that may be within bounds, by products.

        None where these are far more than k for each query. Bounds are finite. What is added to the
        nearness of the queries is lost.
        """
        error = self.frame.error(queries, self.prepared)
        thresholds = self.frame.thresholds(bounds.distances, queries, self.prepared, error)
        queries.values[:, -1] = thresholds.added
        found = self._not_too_far(tile, queries, bounds.behind, k)
        if found is None:
            return None
        query, row, sums = found
        nearness = sums.astype(np.float64) - thresholds.added[query]
        return self._not_beyond(query, row, nearness, queries, thresholds.error, bounds)

    def nearest(
        self, visits: Sequence[Visit], queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[_Positions, _Positions]:
        """Return pairs of visits that may be among the k nearest of them, and within bounds.

        The k nearest rows are at least as near as the k-th greatest of the products of k different
        ones. These are the greatest of every so many products, which are soon found.

        Args:
            visits: Of all queries in their order; their products are held together.
            queries: With nothing added to their nearness.
            bounds: Infinite where there are none.
            k: At least 1.
        """
        held = _HeldProducts.of(visits, k)
        for visit, products in zip(visits, held.products(), strict=True):
            rows = self.prepared.values[visit.rows]
            multiply(queries.values[visit.queries], rows, products[:, : len(rows)])
            if bounds.behind is not None:
                behind = bounds.behind[visit.queries, None]
                products[:, : len(rows)][self.positions[visit.rows] < behind] = -np.inf
        greatest = held.greatest()
        error = self.frame.error(queries, self.prepared)
        reach = narrow(
            self.frame.lower_bounds(_kth(greatest, k), queries.nearest, error) + 2 * error
        )
        is_nearer = reach < bounds.distances
        limits = Bounds(
            np.where(is_nearer, reach, bounds.distances),
            np.where(is_nearer, LAST, bounds.positions),
            bounds.behind,
        )
        thresholds = self.frame.thresholds(limits.distances, queries, self.prepared, error)
        query, row, nearness = held.at_least(-thresholds.added)
        return self._not_beyond(query, row, nearness.astype(np.float64), queries, error, limits)

    def _not_beyond(
        self,
        query: _Positions,
        row: _Positions,
        nearness: NDArray[np.float64],
        queries: PreparedQueries,
        error: NDArray[np.float64],
        bounds: Bounds,
    ) -> tuple[_Positions, _Positions]:
        """Return the pairs (n,) of that nearness that may be within bounds."""
        least = narrow(self.frame.lower_bounds(nearness, queries.nearest[query], error[query]))
        limit = bounds.distances[query]
        is_within = least < limit
        is_within |= (least == limit) & (self.positions[row] <= bounds.positions[query])
        return query[is_within], row[is_within]

    def _not_too_far(
        self, tile: slice, queries: PreparedQueries, behind: _Positions | None, k: int
    ) -> tuple[_Positions, _Positions, NDArray[np.float32]] | None:
        """Return queries and rows whose sums are not negative, and these sums."""
        count = len(queries.values)
        step = max(_HELD_ROWS, HELD_PAIRS // max(1, count))
        held = np.empty(count * step, np.float32)
        is_near = np.empty(count * step, np.bool_)
        pairs, sums = [np.empty((2, 0), np.int64)], [np.empty(0, np.float32)]
        for start in range(tile.start, tile.stop, step):
            rows = self.prepared.values[start : min(start + step, tile.stop)]
            size = count * len(rows)
            products, near = held[:size], is_near[:size]
            multiply(queries.values, rows, products.reshape(count, len(rows)))
            np.greater_equal(products, _ZERO, out=near)
            positions = self.positions[start : start + len(rows)]
            if behind is not None and int(np.max(behind)) > int(np.min(positions)):
                near &= (positions >= behind[:, None]).ravel()
            found = np.flatnonzero(near)
            if len(found) * _RULED_OUT_ROWS > k * size:
                return None
            if len(found):
                query, row = np.divmod(found, len(rows))
                pairs.append(np.stack([query, row + start]))
                sums.append(products[found])
        (query, row), nearness = np.concatenate(pairs, axis=1), np.concatenate(sums)
        return query, row, nearness


@dataclass(frozen=True, slots=True)
class _HeldProducts:
    """Products of visits: of each query some folds of `width`, one after the other in `held`.

    Behind those of its rows each query has some that are less than any. `starts` are the places
    (queries,) where the products of queries start.
    """

    visits: Sequence[Visit]
    width: int
    starts: NDArray[np.int64]
    held: NDArray[np.float32]

    @classmethod
    def of(cls, visits: Sequence[Visit], k: int) -> _HeldProducts:
        """Make room for the products of visits, with what is less than any product behind them."""
        rows = np.array([visit.rows.stop - visit.rows.start for visit in visits])
        width = _fold_width(int(rows.max()), k)
        queries = [visit.queries.stop - visit.queries.start for visit in visits]
        lengths = np.repeat(-(-rows // width) * width, queries)
        ends = np.cumsum(lengths)
        held = cls(visits, width, ends - lengths, np.empty(int(ends[-1]), np.float32))
        for products, count in zip(held.products(), rows.tolist(), strict=True):
            products[:, count:] = -np.inf
        return held

    def products(self) -> list[NDArray[np.float32]]:
        """Return the products of each visit (queries, folds * width)."""
        starts = [int(self.starts[visit.queries.start]) for visit in self.visits]
        return [
            self.held[start:stop].reshape(visit.queries.stop - visit.queries.start, -1)
            for visit, (start, stop) in zip(
                self.visits, pairwise([*starts, len(self.held)]), strict=True
            )
        ]

    def greatest(self) -> NDArray[np.float32]:
        """Return the greatest products at each place of folds (queries, width)."""
        greatest = np.empty((len(self.starts), self.width), np.float32)
        for visit, products in zip(self.visits, self.products(), strict=True):
            folded = products.reshape(len(products), -1, self.width)
            np.max(folded, axis=1, out=greatest[visit.queries])
        return greatest

    def at_least(
        self, least: NDArray[np.float32]
    ) -> tuple[_Positions, _Positions, NDArray[np.float32]]:
        """Return queries and rows of products that are not less than `least` (queries,)."""
        is_near = np.empty(len(self.held), np.bool_)
        start = 0
        for visit, products in zip(self.visits, self.products(), strict=True):
            near = is_near[start : start + products.size].reshape(products.shape)
            np.greater_equal(products, least[visit.queries, None], out=near)
            start += products.size
        found = np.flatnonzero(is_near)
        query = np.searchsorted(self.starts, found, side="right") - 1
        queries = [visit.queries.stop - visit.queries.start for visit in self.visits]
        firsts = np.repeat([visit.rows.start for visit in self.visits], queries)
        return query, found - self.starts[query] + firsts[query], self.held[found]


def _fold_width(rows: int, k: int) -> int:
    """Return how many products are a fold. It is odd, since what rows repeat may have a period."""
    return min(max(_SPREAD * k, -(-rows // _FOLDS)), rows) | 1


def held_products(rows: int, k: int) -> int:
    """Return at most how many products are held of each query that visits so many rows.

    Those that are held with them visit at most `TILE_ROWS`.
    """
    return rows + _fold_width(max(rows, TILE_ROWS), k)


def _kth(values: NDArray[np.float32], k: int) -> NDArray[np.float64]:
    """Return the k-th greatest of each line, less than any number where there are fewer."""
    lines, width = values.shape
    if width < k:
        return np.full(lines, -np.inf)
    return np.partition(values, width - k, axis=1)[:, width - k].astype(np.float64)


def multiply(
    queries: NDArray[np.float32], rows: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Write the products of queries (n, dim) and rows (m, dim) to `out` (n, m)."""
    np.matmul(queries, rows.T, out=out)
