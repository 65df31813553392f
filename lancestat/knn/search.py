"""Exact search: products in float32 propose neighbours, and proven bounds confirm them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from lancestat.knn.frame import Frame, PreparedQueries, narrow, outlier_queries
from lancestat.knn.neighbours import Neighbours, merge, nothing, within
from lancestat.knn.request import Metric, distances
from lancestat.knn.screen import LAST, Block, Bounds


def best(
    queries: NDArray[np.float32], rows: NDArray[np.float32], count: int, metric: Metric
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find the rows of each query with the best scores, best first.

    Args:
        queries: (n, dim), contiguous.
        rows: (m, dim), contiguous.
        count: Up to m.
        metric: Under `l2` a score is the squared distance, else the product.

    Returns:
        Scores and row numbers, both (n, count).
    """
    kind = faiss.METRIC_L2 if metric is Metric.L2 else faiss.METRIC_INNER_PRODUCT
    with _blocked():
        scores, numbers = faiss.knn(queries, rows, count, metric=kind)
    return scores, numbers


@contextmanager
def _blocked() -> Iterator[None]:
    # With fewer than a thousand queries faiss would take them one by one, at a seventh of the rate.
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


UNLIMITED = np.float32(np.inf)


BLOCK_BYTES = 64 << 20
# Rows beyond k that a product of matrices proposes.
_SPARE = 16
# Bytes that a proposed row takes while it is compared.
_PROPOSED_BYTES = 48
# Rows and queries that are screened at a time: then bounds are narrowed by what was found.
_TILE_ROWS, _TILE_QUERIES = 4096, 2048
# The first block has so many rows; each later one has up to so many times the rows before it, of
# which few are nearer.
_FIRST_ROWS, _GROWTH = 8192, 8
# Elements of vectors that are compared in float64 at a time; they fit a core's cache.
_WIDE_ELEMENTS = 1 << 17

_Positions = NDArray[np.int64]


def search(
    queries: NDArray[np.float32],
    rows: NDArray[np.float32],
    k: int,
    metric: Metric,
    positions: _Positions | None = None,
) -> Neighbours:
    """Find the k nearest rows of every query, as `ExactSearch` does.

    Args:
        queries: (n, dim), finite, not zero under cosine.
        rows: (m, dim), likewise.
        k: At least 1.
        metric: The distance.
        positions: (m,) of the rows, each once; None where they count from 0.
    """
    nearest = ExactSearch(queries, k, metric)
    nearest.add(rows, np.arange(len(rows)) if positions is None else positions)
    return nearest.neighbours()


class ExactSearch:
    """Finds the k nearest of all rows that are added within a limit, for each query.

    A blocked product of matrices in float32 proposes a few more rows than needed; distances of
    those that may be among the nearest are computed anew in float64. A bound on what the product
    rounds proves that no other row belongs to them. Queries for which it does not are compared with
    all rows of the block that the bound leaves in doubt.

    Neighbours are ranked by (distance in float32, position), and depend neither on how rows are
    split into blocks nor on the order of blocks.

    Attributes:
        compared: The number of pairs that were compared in float64.
        doubted: The number of queries, over all blocks, that proposals did not settle.
    """

    def __init__(
        self,
        queries: NDArray[np.float32],
        k: int,
        metric: Metric,
        *,
        limit: np.float32 = UNLIMITED,
        behind: _Positions | None = None,
        block_bytes: int = BLOCK_BYTES,
        like: NDArray[np.float32] | None = None,
    ) -> None:
        """Start without neighbours.

        Args:
            queries: (n, dim), finite, not zero under cosine.
            k: At least 1.
            metric: The distance.
            limit: The largest distance of a neighbour.
            behind: (n,) the least position of a neighbour of each query; None for any position.
            block_bytes: Memory that a block of rows, its copy and its proposals may each take.
            like: Rows that are like all that will come, where the first ones are not.
        """
        self.compared = 0
        self.doubted = 0
        self._queries = np.ascontiguousarray(queries, np.float32)
        self._metric = metric
        self._neighbours = nothing(len(queries), k)
        self._k = k
        self._limit = limit
        self._behind = behind
        self._block_bytes = block_bytes
        self._seen = np.zeros(len(queries), np.int64)
        self._like = like
        self._is_long = outlier_queries(self._queries)
        self._prepared: dict[bool, tuple[Frame, PreparedQueries]] = {}

    def neighbours(self) -> Neighbours:
        """Return the nearest rows so far."""
        return self._neighbours

    def add(
        self, rows: NDArray[np.float32], positions: _Positions, which: _Positions | None = None
    ) -> None:
        """Search more rows.

        Args:
            rows: (m, dim), finite, not zero under cosine.
            positions: (m,) of the rows, none of which was there before.
            which: The queries to search for, by their numbers, each once; None for all.
        """
        if which is None:
            which = np.arange(len(self._queries))
        most = max(1, self._block_bytes // (4 * max(1, rows.shape[1])))
        start = 0
        while start < len(rows) and len(which):
            size = min(most, max(_FIRST_ROWS, _GROWTH * int(np.min(self._seen[which]))))
            block = slice(start, start + size)
            for is_long in (False, True):
                some = which[self._is_long[which] == is_long]
                if not len(some):
                    continue
                if is_long not in self._prepared:
                    like = rows[block] if self._like is None else self._like
                    self._prepared[is_long] = self._framed(like, some)
                self._add(rows[block], positions[block], some, *self._prepared[is_long])
            self._seen[which] += len(rows[block])
            start += size

    def _add(
        self,
        rows: NDArray[np.float32],
        positions: _Positions,
        which: _Positions,
        frame: Frame,
        prepared: PreparedQueries,
    ) -> None:
        if self._behind is not None and len(rows):
            which = which[self._behind[which] <= int(np.max(positions))]
        if not len(rows) or not len(which):
            return
        prepared_rows = frame.prepare_rows(rows)
        if prepared_rows.outliers is not None:
            usual, outliers = ~prepared_rows.outliers, prepared_rows.outliers
            self._add(rows[usual], positions[usual], which, frame, prepared)
            self._add(
                rows[outliers], positions[outliers], which, *self._framed(rows[outliers], which)
            )
            return
        block = Block(rows, positions, prepared_rows, frame)
        # Fewer than k rows so far are within the limit, or the k-th is known.
        is_known = (self._neighbours.positions[which, -1] >= 0) | bool(self._limit < UNLIMITED)
        # Rows may come in some order: then earlier ones predict little of how many are nearer.
        is_known &= (self._like is None) & (len(rows) <= _GROWTH * self._seen[which])
        proposals = min(self._k + _SPARE, len(rows))
        if 2 * proposals > len(rows):
            is_known[:] = True
        if self._behind is not None:
            # Products propose rows at any position.
            is_known |= self._behind[which] > block.first_position
        self._screen(block, which[is_known], prepared, None)
        new = which[~is_known]
        step = max(32, self._block_bytes // (_PROPOSED_BYTES * (proposals + self._k)))
        for start in range(0, len(new), step):
            part = new[start : start + step]
            unsettled = self._propose(block, part, prepared, proposals)
            self.doubted += len(unsettled.queries)
            self._screen(block, unsettled.queries, prepared, unsettled)

    def _framed(
        self, rows: NDArray[np.float32], which: _Positions
    ) -> tuple[Frame, PreparedQueries]:
        frame = Frame.around(self._queries[which], rows, self._metric)
        return frame, frame.prepare_queries(self._queries)

    def _propose(
        self, block: Block, part: _Positions, prepared: PreparedQueries, proposals: int
    ) -> _UnsettledQueries:
        """Search by the best of the products, and return the queries that it does not settle."""
        here = prepared.some(part)
        error = block.frame.error(here, block.prepared)[:, None]
        # The nearest are those of the greatest products, whatever the metric is.
        nearness, proposed = best(here.values, block.prepared.values, proposals, Metric.DOT)
        least = block.frame.lower_bounds(nearness.astype(np.float64), here.nearest[:, None], error)
        reach = np.minimum(self._furthest(part)[0], narrow(least[:, self._k - 1] + 2 * error[:, 0]))
        query, turn = np.nonzero((narrow(least) <= reach[:, None]) & (proposed >= 0))
        touched, better = self._merged(block, part, query, proposed[query, turn])
        furthest, last = self._limited(better.distances[:, -1], better.positions[:, -1])
        unseen = narrow(least[:, -1])[touched]
        is_settled = (unseen > furthest) | ((unseen == furthest) & (block.first_position > last))
        # Without a proposal within reach there is nothing unseen within it either.
        self._update(part[touched[is_settled]], better, is_settled)
        left = ~is_settled
        return _UnsettledQueries(part[touched[left]], furthest[left], last[left])

    def _screen(
        self,
        block: Block,
        which: _Positions,
        prepared: PreparedQueries,
        unsettled: _UnsettledQueries | None,
    ) -> None:
        """Search by comparing all rows that products do not rule out."""
        for start in range(0, len(which), _TILE_QUERIES):
            some = slice(start, start + _TILE_QUERIES)
            part = which[some]
            here = prepared.some(part)
            behind = None if self._behind is None else self._behind[part]
            for first in range(0, len(block.rows), _TILE_ROWS):
                tile = slice(first, first + _TILE_ROWS)
                limit, last = self._limits(part, unsettled and unsettled.some(some))
                query, row = block.candidates(tile, here, Bounds(limit, last, behind), self._k)
                if len(query):
                    touched, better = self._merged(block, part, query, row)
                    self._update(part[touched], better)

    def _limits(
        self, part: _Positions, unsettled: _UnsettledQueries | None
    ) -> tuple[NDArray[np.float32], _Positions]:
        """Return the (distance, position) that the k-th neighbours cannot be beyond."""
        limit, last = self._furthest(part)
        last = np.where(last < 0, LAST, last)
        if unsettled is None:
            return limit, last
        is_nearer = unsettled.distances < limit
        is_nearer |= (unsettled.distances == limit) & (unsettled.positions < last)
        return np.where(is_nearer, unsettled.distances, limit), np.where(
            is_nearer, unsettled.positions, last
        )

    def _furthest(self, part: _Positions) -> tuple[NDArray[np.float32], _Positions]:
        """Return the distance and position of the k-th neighbour so far, or the limit's."""
        return self._limited(
            self._neighbours.distances[part, -1], self._neighbours.positions[part, -1]
        )

    def _limited(
        self, distances: NDArray[np.float32], positions: _Positions
    ) -> tuple[NDArray[np.float32], _Positions]:
        # Of rows at the limit itself any may be among the neighbours.
        is_beyond = distances > self._limit
        if not is_beyond.any():
            return distances, positions
        return np.where(is_beyond, self._limit, distances), np.where(is_beyond, LAST, positions)

    def _merged(
        self, block: Block, part: _Positions, query: _Positions, row: _Positions
    ) -> tuple[_Positions, Neighbours]:
        """Merge pairs into neighbours; return the queries that have some, and their neighbours."""
        self.compared += len(query)
        exact = np.empty(len(query), np.float32)
        step = max(1, _WIDE_ELEMENTS // max(1, block.rows.shape[1]))
        numbers = part[query]
        with np.errstate(over="ignore"):
            for start in range(0, len(query), step):
                some = slice(start, start + step)
                exact[some] = distances(
                    self._queries[numbers[some]], block.rows[row[some]], self._metric
                )
        touched, added = _by_query(query, exact, block.positions[row], self._k)
        added = within(added, self._limit)
        before = Neighbours(
            self._neighbours.positions[part[touched]], self._neighbours.distances[part[touched]]
        )
        return touched, merge([before, added], self._k)

    def _update(
        self, queries: _Positions, better: Neighbours, which: NDArray[np.bool_] | None = None
    ) -> None:
        chosen = slice(None) if which is None else which
        self._neighbours.positions[queries] = better.positions[chosen]
        self._neighbours.distances[queries] = better.distances[chosen]


@dataclass(frozen=True, slots=True)
class _UnsettledQueries:
    """Unsettled queries, and the (distance, position) that their k-th cannot be beyond."""

    queries: _Positions
    distances: NDArray[np.float32]
    positions: _Positions

    def some(self, which: slice) -> _UnsettledQueries:
        return _UnsettledQueries(self.queries[which], self.distances[which], self.positions[which])


def _by_query(
    query: _Positions, exact: NDArray[np.float32], positions: _Positions, k: int
) -> tuple[_Positions, Neighbours]:
    """Return the queries that have pairs, and the k nearest of these for each."""
    order = np.lexsort((positions, exact, query))
    query, exact, positions = query[order], exact[order], positions[order]
    touched, first, counts = np.unique(query, return_index=True, return_counts=True)
    number = np.repeat(np.arange(len(touched)), counts)
    rank = np.arange(len(query)) - first[number]
    within = rank < k
    added = nothing(len(touched), min(k, int(np.max(counts, initial=0))))
    added.positions[number[within], rank[within]] = positions[within]
    added.distances[number[within], rank[within]] = exact[within]
    return touched, added
