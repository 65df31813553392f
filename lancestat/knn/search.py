"""Exact search: products in float32 propose neighbours, and proven bounds confirm them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from lancestat.knn.request import Metric, distances
from lancestat.knn.vectors import Asked, Frame, Offered, far_longer


def best(
    queries: NDArray[np.float32], rows: NDArray[np.float32], count: int, metric: Metric
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The rows of each query with the best scores, best first.

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
        scores, found = faiss.knn(queries, rows, count, metric=kind)
    return scores, found


@contextmanager
def _blocked() -> Iterator[None]:
    # With fewer than a thousand queries faiss would take them one by one, at a seventh of the rate.
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest rows of each query, nearest first, equally near ones in row order.

    Both are (queries, k): `places` int64, -1 where there are fewer than k; `distances` float32,
    infinite there. Neighbours are ranked by the distance as the output shows it, in float32, so
    that what is equal there is in row order, and parts merge to what one search finds.
    """

    places: NDArray[np.int64]
    distances: NDArray[np.float32]


def nothing(queries: int, k: int) -> Neighbours:
    """No neighbour for any query."""
    return Neighbours(
        np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)
    )


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of what searches of the same queries found in disjoint rows.

    It is associative and commutative.
    """
    places = np.concatenate([part.places for part in parts], axis=1)
    distances = np.concatenate([part.distances for part in parts], axis=1)
    # Places that hold nothing come last, whatever is infinitely far.
    last = np.where(places < 0, np.iinfo(np.int64).max, places)
    order = np.lexsort((last, distances), axis=1)[:, :k]
    found = Neighbours(
        np.take_along_axis(places, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )
    return found if order.shape[1] == k else _padded(found, k)


def _padded(found: Neighbours, k: int) -> Neighbours:
    padded = nothing(len(found.places), k)
    width = found.places.shape[1]
    padded.places[:, :width] = found.places
    padded.distances[:, :width] = found.distances
    return padded


BLOCK_BYTES = 64 << 20
# Rows beyond those expected that a product of matrices is asked for.
_SPARE = 16
# Bytes that a proposed row takes while it is judged.
_PROPOSED_BYTES = 48
# Rows and queries whose products are screened at a time.
_TILE_ROWS, _TILE_QUERIES = 2048, 1024
# So many rows are looked at first, to learn what is near. Then those among up to so many times as
# many may be screened: few of them are nearer.
_FIRST_ROWS, _GROWTH = 8192, 8
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
        most = max(1, self._block_bytes // (4 * max(1, rows.shape[1])))
        start = 0
        while start < len(rows) and len(which):
            size = min(most, max(_FIRST_ROWS, _GROWTH * int(self._seen[which].min())))
            block = slice(start, start + size)
            for is_long in (False, True):
                some = which[self._is_long[which] == is_long]
                if not len(some):
                    continue
                if is_long not in self._placed:
                    like = rows[block] if self._like is None else self._like
                    self._placed[is_long] = self._framed(like, some)
                self._add(rows[block], places[block], some, *self._placed[is_long])
            self._seen[which] += len(rows[block])
            start += size

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
        is_known = self._found.places[which, -1] >= 0
        # Where rows come in some order, those before tell little of how many are nearer.
        is_known &= (self._like is None) & (len(rows) <= _GROWTH * self._seen[which])
        proposals = min(self._k + _SPARE, len(rows))
        if 2 * proposals > len(rows):
            is_known[:] = True
        self._screen(block, which[is_known], asked, None)
        new = which[~is_known]
        step = max(32, self._block_bytes // (_PROPOSED_BYTES * (proposals + self._k)))
        for start in range(0, len(new), step):
            part = new[start : start + step]
            doubts = self._propose(block, part, asked, proposals)
            self.doubted += len(doubts.queries)
            self._screen(block, doubts.queries, asked, doubts)

    def _framed(self, rows: NDArray[np.float32], which: _Places) -> tuple[Frame, Asked]:
        frame = Frame.around(self._queries[which], rows, self._metric)
        return frame, frame.ask(self._queries)

    def _propose(self, block: _Block, part: _Places, asked: Asked, proposals: int) -> _Doubts:
        """Search for queries by the best of the products; which of them that does not settle."""
        here = asked.some(part)
        error = block.frame.error(here, block.offered)
        scores, proposed = best(here.values, block.offered.values, proposals, self._metric)
        least = block.frame.least(scores, here, error)
        reach = np.minimum(
            self._found.distances[part, -1], _narrow(least[:, self._k - 1] + 2 * error)
        )
        query, turn = np.nonzero((_narrow(least) <= reach[:, None]) & (proposed >= 0))
        touched, better = self._merged(block, part, query, proposed[query, turn])
        furthest, unseen = better.distances[:, -1], _narrow(least[:, -1])[touched]
        is_settled = (unseen > furthest) | (
            (unseen == furthest) & (block.first_place > better.places[:, -1])
        )
        # Without a proposal within reach there is nothing unseen within it either.
        self._keep(part[touched[is_settled]], better, is_settled)
        left = ~is_settled
        return _Doubts(part[touched[left]], furthest[left], better.places[left, -1])

    def _screen(self, block: _Block, which: _Places, asked: Asked, doubts: _Doubts | None) -> None:
        """Search for queries by comparing all rows that products do not rule out."""
        for start in range(0, len(which), _TILE_QUERIES):
            some = slice(start, start + _TILE_QUERIES)
            part = which[some]
            here = asked.some(part)
            error = block.frame.error(here, block.offered)
            for first in range(0, len(block.rows), _TILE_ROWS):
                tile = slice(first, first + _TILE_ROWS)
                limit, last = self._limits(part, doubts and doubts.some(some))
                query, row = block.contenders(tile, here, error, limit, last, self._k)
                if len(query):
                    touched, better = self._merged(block, part, query, row)
                    self._keep(part[touched], better)

    def _limits(self, part: _Places, doubts: _Doubts | None) -> tuple[NDArray[np.float32], _Places]:
        """The (distance, place) that the k-th neighbours cannot be beyond."""
        limit, last = self._found.distances[part, -1], self._found.places[part, -1]
        last = np.where(last < 0, _LAST, last)
        if doubts is None:
            return limit, last
        is_nearer = doubts.distances < limit
        is_nearer |= (doubts.distances == limit) & (doubts.places < last)
        return np.where(is_nearer, doubts.distances, limit), np.where(
            is_nearer, doubts.places, last
        )

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

    def contenders(
        self,
        tile: slice,
        asked: Asked,
        error: NDArray[np.float64],
        limit: NDArray[np.float32],
        last: _Places,
        k: int,
    ) -> tuple[_Places, _Places]:
        """Pairs of queries and rows of a tile that products leave within a limit."""
        near = self.frame.nearness(asked, self.offered, tile)
        rows = near.shape[1]
        open_ended = np.flatnonzero(np.isinf(limit))
        if len(open_ended) and rows >= k:
            kth = np.partition(near[open_ended], rows - k, axis=1)[:, rows - k]
            reach = self.frame.least_by(kth, open_ended, asked, error) + 2 * error[open_ended]
            limit = limit.copy()
            limit[open_ended] = np.minimum(limit[open_ended], _narrow(reach))
            last = last.copy()
            last[open_ended] = _LAST
        bar = self.frame.bar(limit, asked, error)
        query, row = np.divmod(np.flatnonzero(near >= bar[:, None]), rows)
        least = _narrow(self.frame.least_by(near[query, row], query, asked, error))
        row += tile.start
        kept = least < limit[query]
        kept |= (least == limit[query]) & (self.places[row] <= last[query])
        return query[kept], row[kept]


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
