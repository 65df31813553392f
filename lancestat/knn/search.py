"""Exact nearest neighbours of queries among rows that come block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.knn.frame import Asked, Frame, Offered, far_longer
from lancestat.knn.metric import Metric, distances
from lancestat.knn.neighbours import Neighbours, merge, nothing
from lancestat.knn.products import best

BLOCK_BYTES = 64 << 20
# Rows beyond those expected that a product of matrices is asked for.
_SPARE = 16
# Bytes that a proposed row takes while it is judged.
_PROPOSED_BYTES = 48
# Rows that are compared with all of a query's at a time, when few proposals do not settle it.
_TILE_ROWS = 4096
# Elements of vectors that are compared in float64 at a time; they fit a core's cache.
_WIDE_ELEMENTS = 1 << 17

_Places = NDArray[np.int64]


def search(
    queries: NDArray[np.float32],
    rows: NDArray[np.float32],
    k: int,
    metric: Metric,
    places: _Places | None = None,
) -> Neighbours:
    """The k nearest rows of every query, as `Nearest` finds them.

    Args:
        queries: (n, dim), finite, not zero under cosine.
        rows: (m, dim), likewise.
        k: At least 1.
        metric: Which distance.
        places: (m,) of the rows, each once; None for their positions.
    """
    nearest = Nearest(queries, k, metric)
    nearest.add(rows, np.arange(len(rows)) if places is None else places)
    return nearest.neighbours()


class Nearest:
    """The k nearest of all rows that were added so far, for each query.

    A blocked product of matrices in float32 proposes a few more rows than needed; distances of
    those that may be among the nearest are computed anew in float64. A bound on what the product
    rounds proves that no other row belongs to them. Queries for which it does not are compared with
    all rows of the block that the bound leaves in doubt.

    Neighbours are ranked by (distance in float32, place), and depend neither on how rows are split
    into blocks nor on the order of blocks.

    Attributes:
        compared: How many pairs were compared in float64.
        doubted: For how many queries, over all blocks, proposals did not settle the matter.
    """

    def __init__(
        self,
        queries: NDArray[np.float32],
        k: int,
        metric: Metric,
        *,
        block_bytes: int = BLOCK_BYTES,
        like: NDArray[np.float32] | None = None,
    ) -> None:
        """Nothing is found yet.

        Args:
            queries: (n, dim), finite, not zero under cosine.
            k: At least 1.
            metric: Which distance.
            block_bytes: How much memory a block of rows, its copy and its proposals may each take.
            like: Rows that are like all that will come, where the first ones are not.
        """
        self.compared = 0
        self.doubted = 0
        self._queries = np.ascontiguousarray(queries, np.float32)
        self._metric = metric
        self._found = nothing(len(queries), k)
        self._k = k
        self._block_bytes = block_bytes
        self._seen = np.zeros(len(queries), np.int64)
        self._like = like
        self._is_long = far_longer(self._queries)
        self._placed: dict[bool, tuple[Frame, Asked]] = {}

    def neighbours(self) -> Neighbours:
        """What is nearest so far."""
        return self._found

    def add(self, rows: NDArray[np.float32], places: _Places, which: _Places | None = None) -> None:
        """Search more rows.

        Args:
            rows: (m, dim), finite, not zero under cosine.
            places: (m,) of the rows, none of which was there before.
            which: The queries to search for, by their numbers, each once; None for all.
        """
        if which is None:
            which = np.arange(len(self._queries))
        step = max(1, self._block_bytes // (4 * max(1, rows.shape[1])))
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            for is_long in (False, True):
                some = which[self._is_long[which] == is_long]
                if not len(some):
                    continue
                if is_long not in self._placed:
                    like = rows[block] if self._like is None else self._like
                    self._placed[is_long] = self._framed(like, some)
                self._add(rows[block], places[block], some, *self._placed[is_long])
            self._seen[which] += len(rows[block])

    def _add(
        self,
        rows: NDArray[np.float32],
        places: _Places,
        which: _Places,
        frame: Frame,
        asked: Asked,
    ) -> None:
        if not len(rows):
            return
        offered = frame.offer(rows)
        if offered.odd is not None:
            usual, odd = ~offered.odd, offered.odd
            self._add(rows[usual], places[usual], which, frame, asked)
            self._add(rows[odd], places[odd], which, *self._framed(rows[odd], which))
            return
        block = _Block(rows, places, offered, frame)
        proposals = self._proposals(len(rows), which)
        step = max(32, self._block_bytes // (_PROPOSED_BYTES * (proposals + self._k)))
        for start in range(0, len(which), step):
            part = which[start : start + step]
            here = asked.some(part) if len(part) < len(self._queries) else asked
            if 2 * proposals < len(rows):
                doubts = self._propose(block, part, here, proposals)
                self.doubted += len(doubts.queries)
                self._compare_all(block, part[doubts.queries], here.some(doubts.queries), doubts)
            else:
                self._compare_all(block, part, here, _Doubts.all(len(part)))

    def _framed(self, rows: NDArray[np.float32], which: _Places) -> tuple[Frame, Asked]:
        frame = Frame.around(self._queries[which], rows, self._metric)
        return frame, frame.ask(self._queries)

    def _proposals(self, rows: int, which: _Places) -> int:
        """How many rows of a block to ask for: twice as many as probably belong to the nearest."""
        expected = 2 * self._k * rows // (int(self._seen[which].min()) + rows)
        return min(self._k, expected) + _SPARE

    def _propose(self, block: _Block, part: _Places, asked: Asked, proposals: int) -> _Doubts:
        """Search for queries by the best of the products; which of them that does not settle."""
        error = block.frame.error(asked, block.offered)
        scores, proposed = best(asked.values, block.offered.values, proposals, self._metric)
        least = block.frame.least(scores, asked, error)
        reach = self._found.distances[part, -1]
        if proposals >= self._k:
            reach = np.minimum(reach, _narrow(least[:, self._k - 1] + 2 * error))
        query, place = np.nonzero((_narrow(least) <= reach[:, None]) & (proposed >= 0))
        touched, better = self._merged(block, part, query, proposed[query, place])
        furthest, unseen = better.distances[:, -1], _narrow(least[:, -1])[touched]
        is_settled = (unseen > furthest) | (
            (unseen == furthest) & (block.first_place > better.places[:, -1])
        )
        # Without a proposal within reach there is nothing unseen within it either.
        self._keep(part[touched[is_settled]], better, is_settled)
        left = ~is_settled
        return _Doubts(touched[left], furthest[left], better.places[left, -1])

    def _compare_all(self, block: _Block, part: _Places, asked: Asked, doubts: _Doubts) -> None:
        """Search for queries by comparing all rows that products do not rule out."""
        step = max(32, self._block_bytes // (_PROPOSED_BYTES * _TILE_ROWS))
        for start in range(0, len(part), step):
            some = slice(start, start + step)
            here = asked.some(some)
            error = block.frame.error(here, block.offered)
            for first in range(0, len(block.rows), _TILE_ROWS):
                tile = slice(first, first + _TILE_ROWS)
                least = block.frame.least(block.products(here, tile), here, error)
                found = self._contend(block, part[some], least, error, first, doubts.some(some))
                touched, better = self._merged(block, part[some], *found)
                self._keep(part[some][touched], better)

    def _contend(
        self,
        block: _Block,
        part: _Places,
        least: NDArray[np.float64],
        error: NDArray[np.float64],
        first: int,
        doubts: _Doubts,
    ) -> tuple[_Places, _Places]:
        """Pairs of queries and rows that may be among the nearest."""
        limit, last = self._found.distances[part, -1], self._found.places[part, -1]
        is_known = (doubts.distances < limit) | (
            (doubts.distances == limit) & ((doubts.places < last) | (last < 0))
        )
        limit = np.where(is_known, doubts.distances, limit)
        last = np.where(is_known, doubts.places, last)
        if np.isinf(limit).any() and least.shape[1] >= self._k:
            kth = np.partition(least, self._k - 1, axis=1)[:, self._k - 1]
            reach = _narrow(kth + 2 * error)
            last = np.where(reach < limit, _LAST, last)
            limit = np.minimum(reach, limit)
        last = np.where(last < 0, _LAST, last)
        narrow = _narrow(least)
        places = block.places[first : first + least.shape[1]]
        contends = narrow <= limit[:, None]
        contends &= (narrow < limit[:, None]) | (places <= last[:, None])
        query, row = np.nonzero(contends)
        return query, row + first

    def _merged(
        self, block: _Block, part: _Places, query: _Places, row: _Places
    ) -> tuple[_Places, Neighbours]:
        """The nearest that queries have when some pairs are added, and which queries those are."""
        self.compared += len(query)
        exact = np.empty(len(query), np.float32)
        step = max(1, _WIDE_ELEMENTS // max(1, block.rows.shape[1]))
        asked = part[query]
        with np.errstate(over="ignore"):
            for start in range(0, len(query), step):
                some = slice(start, start + step)
                exact[some] = distances(
                    self._queries[asked[some]], block.rows[row[some]], self._metric
                )
        touched, added = _by_query(query, exact, block.places[row], self._k)
        before = Neighbours(self._found.places[part[touched]], self._found.distances[part[touched]])
        return touched, merge([before, added], self._k)

    def _keep(
        self, queries: _Places, better: Neighbours, which: NDArray[np.bool_] | None = None
    ) -> None:
        chosen = slice(None) if which is None else which
        self._found.places[queries] = better.places[chosen]
        self._found.distances[queries] = better.distances[chosen]


_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Doubts:
    """Queries that are not settled, and the (distance, place) that their k-th cannot be beyond."""

    queries: _Places
    distances: NDArray[np.float32]
    places: _Places

    @classmethod
    def all(cls, queries: int) -> _Doubts:
        return cls(
            np.arange(queries),
            np.full(queries, np.inf, np.float32),
            np.full(queries, _LAST),
        )

    def some(self, which: slice) -> _Doubts:
        return _Doubts(self.queries[which], self.distances[which], self.places[which])


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows as they are and as products take them."""

    rows: NDArray[np.float32]
    places: _Places
    offered: Offered
    frame: Frame

    @property
    def first_place(self) -> int:
        return int(self.places.min())

    def products(self, asked: Asked, tile: slice) -> NDArray[np.float32]:
        """The scores of all rows of a tile, as `best` has them."""
        rows = self.offered.values[tile]
        products: NDArray[np.float32] = asked.values @ rows.T
        if self.frame.metric is Metric.L2:
            products *= -2
            products += np.einsum("nd,nd->n", asked.values, asked.values)[:, None]
            products += np.einsum("nd,nd->n", rows, rows)
        return products


def _narrow(wide: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)


def _by_query(
    query: _Places, found: NDArray[np.float32], places: _Places, k: int
) -> tuple[_Places, Neighbours]:
    """The k nearest of pairs, for each query that has some, and those queries."""
    order = np.lexsort((places, found, query))
    query, found, places = query[order], found[order], places[order]
    touched, first, counts = np.unique(query, return_index=True, return_counts=True)
    number = np.repeat(np.arange(len(touched)), counts)
    rank = np.arange(len(query)) - first[number]
    kept = rank < k
    added = nothing(len(touched), min(k, int(counts.max(initial=0))))
    added.places[number[kept], rank[kept]] = places[kept]
    added.distances[number[kept], rank[kept]] = found[kept]
    return touched, added
