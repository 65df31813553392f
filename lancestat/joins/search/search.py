"""Exact search: products in float32 rule rows out by proven bounds; float64 ranks the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import (
    Floats,
    Ints,
    Mask,
    Neighbours,
    merge,
    nearest_pairs,
    nothing,
    within,
)
from lancestat.joins.search.prefilter import (
    HELD_PAIRS,
    LAST,
    TILE_ROWS,
    Block,
    Bounds,
    PreparedQueries,
    Scaling,
    held_products,
    outlier_queries,
)

UNLIMITED = np.float32(np.inf)
BLOCK_BYTES = 64 << 20
# Queries whose products are taken at a time.
_TILE_QUERIES = 2048
# Elements of vectors that are compared in float64 at a time; they fit a core's cache.
_WIDE_ELEMENTS = 1 << 17


@dataclass(frozen=True, slots=True)
class RowList:
    """Consecutive rows, and the queries that are compared with them, by their numbers."""

    rows: slice
    queries: Ints

    @property
    def count(self) -> int:
        return int(self.rows.stop - self.rows.start)


class ExactSearch:
    """Finds the k nearest of all rows that are added within a limit, for each query.

    GEMM in float32 rules out rows that are farther than k others: bounds on what it rounds prove
    it. Distances of all other rows, the `compared` pairs, are computed in float64.

    Neighbours are ranked by (distance in float32, position), and depend neither on how rows are
    split into blocks nor on the order of blocks.
    """

    def __init__(
        self,
        queries: Floats,
        k: int,
        metric: Metric,
        *,
        limit: np.float32 = UNLIMITED,
        after: Ints | None = None,
        block_bytes: int = BLOCK_BYTES,
        like: Floats | None = None,
    ) -> None:
        """Start without neighbours of queries (n, dim), finite, not zero under cosine.

        `limit` is the largest distance of a neighbour, `after` (n,) the least position of one. A
        block of rows and its copy may each take `block_bytes`. `like` are rows like all that will
        come, where the first ones are not.
        """
        self.compared = 0
        self._queries = np.ascontiguousarray(queries, np.float32)
        self._metric = metric
        self._neighbours = nothing(len(queries), k)
        self._k = k
        self._limit = limit
        self._behind = after
        self._block_bytes = block_bytes
        self._like = like
        self._is_long = outlier_queries(self._queries)
        self._prepared: dict[bool, tuple[Scaling, PreparedQueries]] = {}

    def neighbours(self) -> Neighbours:
        return self._neighbours

    def go_on_from(self, nearest: Neighbours) -> None:
        """Start from neighbours of all queries that were found before, at positions less than new
        ones.
        """
        self._neighbours.put(slice(None), nearest)

    def add(self, rows: Floats, positions: Ints) -> None:
        """Search more rows (m, dim), finite, not zero under cosine, at new positions (m,)."""
        everything = RowList(slice(0, len(rows)), np.arange(len(self._queries)))
        self.add_lists(rows, positions, [everything])

    def add_lists(self, rows: Floats, positions: Ints, lists: Sequence[RowList]) -> None:
        """Search more rows, each list of them for some queries; lists are in order."""
        most = max(1, self._block_bytes // (4 * max(1, rows.shape[1])))
        for is_long in (False, True) if self._is_long.any() else (False,):
            some = self._reached(lists, positions, is_long=is_long)
            for part in _blocks(some, most, self._room):
                span = slice(part[0].rows.start, part[-1].rows.stop)
                if is_long not in self._prepared:
                    like = rows[span] if self._like is None else self._like
                    self._prepared[is_long] = self._scaled(like, is_long=is_long)
                shifted = [
                    RowList(slice(o.rows.start - span.start, o.rows.stop - span.start), o.queries)
                    for o in part
                ]
                self._add(rows[span], positions[span], shifted, *self._prepared[is_long])

    def _reached(
        self, lists: Sequence[RowList], positions: Ints, *, is_long: bool
    ) -> Iterator[RowList]:
        """Yield lists of rows that may be neighbours of queries, with these queries."""
        for item in lists:
            queries = item.queries
            if self._is_long.any():
                queries = queries[self._is_long[queries] == is_long]
            if self._behind is not None and item.count:
                queries = queries[self._behind[queries] <= int(np.max(positions[item.rows]))]
            if item.count and len(queries):
                yield RowList(item.rows, queries)

    def _add(
        self,
        rows: Floats,
        positions: Ints,
        lists: Sequence[RowList],
        scaling: Scaling,
        prepared: PreparedQueries,
    ) -> None:
        values, longest, outliers = scaling.prepare_rows(rows)
        if outliers is not None:
            for item in lists:
                self._add_apart(rows, positions, item, outliers, scaling, prepared)
            return
        block = Block(rows, positions, values, longest, scaling)
        if len(lists) == 1 and self._room(lists[0]) > HELD_PAIRS:
            self._prefiltered(block, lists[0].queries, prepared)
        else:
            self._search(block, lists, prepared)

    def _add_apart(
        self,
        rows: Floats,
        positions: Ints,
        item: RowList,
        is_outlier: Mask,
        scaling: Scaling,
        prepared: PreparedQueries,
    ) -> None:
        """Search the usual rows of a list, and those that are none in a scaling of their own."""
        for is_usual in (True, False):
            chosen = item.rows.start + np.flatnonzero(is_outlier[item.rows] != is_usual)
            if not len(chosen):
                continue
            some = [RowList(slice(0, len(chosen)), item.queries)]
            among = rows[chosen]
            if not is_usual:
                is_long = bool(self._is_long[item.queries[0]])
                scaling, prepared = self._scaled(among, is_long=is_long)
            self._add(among, positions[chosen], some, scaling, prepared)

    def _scaled(self, rows: Floats, *, is_long: bool) -> tuple[Scaling, PreparedQueries]:
        """Choose a scaling for these rows and all the queries that are too long or all others."""
        scaling = Scaling.around(self._queries[self._is_long == is_long], rows, self._metric)
        return scaling, scaling.prepare_queries(self._queries)

    def _room(self, item: RowList) -> int:
        """Return the most products that are held of a list at once."""
        return len(item.queries) * held_products(item.count, self._k)

    def _prefiltered(self, block: Block, which: Ints, prepared: PreparedQueries) -> None:
        """Search rows tile by tile; each narrows the bounds of the next ones."""
        # To merge more neighbours than a tile has rows takes longer than to find them.
        rows = max(TILE_ROWS, self._k)
        for start in range(0, len(which), _TILE_QUERIES):
            part = which[start : start + _TILE_QUERIES]
            for first in range(0, len(block.rows), rows):
                tile = slice(first, min(first + rows, len(block.rows)))
                is_bounded = np.isfinite(self._bounds(part).distances)
                rest = part[~is_bounded]
                if not self._within(block, tile, part[is_bounded], prepared):
                    rest = part
                step = max(1, HELD_PAIRS // held_products(tile.stop - tile.start, self._k))
                for begin in range(0, len(rest), step):
                    some = RowList(tile, rest[begin : begin + step])
                    self._search(block, [some], prepared)

    def _within(self, block: Block, tile: slice, part: Ints, prepared: PreparedQueries) -> bool:
        """Search a tile for queries that have bounds; return whether these are of use."""
        if self._behind is not None:
            part = part[self._behind[part] <= int(np.max(block.positions[tile]))]
        if len(part):
            found = block.within(tile, prepared.some(part), self._bounds(part), self._k)
            if found is None:
                return False
            self._merge(block, part[found[0]], found[1])
        return True

    def _search(self, block: Block, lists: Sequence[RowList], prepared: PreparedQueries) -> None:
        which = np.concatenate([item.queries for item in lists])
        ends = np.cumsum([len(item.queries) for item in lists]).tolist()
        visits = [
            (slice(end - len(item.queries), end), item.rows)
            for item, end in zip(lists, ends, strict=True)
        ]
        query, row = block.nearest(visits, prepared.some(which), self._bounds(which), self._k)
        self._merge(block, which[query], row)

    def _bounds(self, part: Ints) -> Bounds:
        """Return the distance and position of the k-th neighbours so far, or the limit's."""
        distances = self._neighbours.distances[part, -1]
        positions = self._neighbours.positions[part, -1]
        # Of rows at the limit itself any may be among the neighbours.
        is_open = (distances > self._limit) | (positions < 0)
        after = None if self._behind is None else self._behind[part]
        return Bounds(
            np.where(is_open, np.minimum(distances, self._limit), distances),
            np.where(is_open, LAST, positions),
            after,
        )

    def _merge(self, block: Block, queries: Ints, row: Ints) -> None:
        """Compare pairs in float64, and merge them into the neighbours."""
        if not len(queries):
            return
        self.compared += len(queries)
        exact = np.empty(len(queries), np.float32)
        step = max(1, _WIDE_ELEMENTS // max(1, block.rows.shape[1]))
        with np.errstate(over="ignore"):
            for start in range(0, len(queries), step):
                some = slice(start, start + step)
                exact[some] = self._metric.distances(
                    self._queries[queries[some]], block.rows[row[some]]
                )
        touched, added = nearest_pairs(queries, exact, block.positions[row], self._k)
        added = within(added, self._limit)
        before = self._neighbours.some(touched)
        if (before.positions[:, 0] >= 0).any():
            added = merge([before, added], self._k)
        self._neighbours.put(touched, added)


def _blocks(
    lists: Iterable[RowList], most: int, room: Callable[[RowList], int]
) -> Iterator[list[RowList]]:
    """Put short lists together whose products are held at once, and cut those that are too long."""
    block: list[RowList] = []
    rows = held = 0
    for item in lists:
        needed = room(item)
        is_short = needed <= HELD_PAIRS and item.count <= min(TILE_ROWS, most)
        is_next = bool(block) and is_short and item.rows.start == block[-1].rows.stop
        if block and not (is_next and held + needed <= HELD_PAIRS and rows + item.count <= most):
            yield block
            block, rows, held = [], 0, 0
        if is_short:
            block.append(item)
            rows, held = rows + item.count, held + needed
            continue
        for start in range(item.rows.start, item.rows.stop, most):
            yield [RowList(slice(start, min(start + most, item.rows.stop)), item.queries)]
    if block:
        yield block
