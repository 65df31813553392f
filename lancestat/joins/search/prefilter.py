"""The prefilter: GEMM in float32 rules pairs out by proven bounds on what it rounds.

Vectors are scaled first, so that float32 resolves what is compared; blocks of pairs stay within a
core's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lancestat.joins.search.metrics import U32, Metric, rounding
from lancestat.joins.search.neighbours import Floats, Ints, Mask, Parallel, Reals

# Rows that a centre is taken from, and that are prepared at once.
_SAMPLE = 4096
# Rows are moved to another centre when that takes so much off their mean square length.
_WORTH_CENTRING = 0.25
# Lengths within these need no scaling: their squares neither overflow nor vanish.
_SHORT, _LONG = 2.0**-30, 2.0**30
# Rows so much longer than the middle one would spoil the bound for all others.
_OUTLIER = 8.0
# Columns after the elements of prepared vectors: of a row, what its length takes off its nearness,
# and 1; of a query, 1, and what is added to its nearness.
_ADDED = 2


@dataclass(frozen=True, slots=True)
class PreparedQueries(Parallel):
    """Queries in a scaling: `values` (n, dim + 2), `lengths`, and the nearness of distance zero.

    The last column of `values` is added to the nearness of every row.
    """

    values: Floats
    lengths: Reals
    nearest: Reals


@dataclass(frozen=True, slots=True)
class Scaling:
    """The coordinates in which products are taken.

    The *nearness* of a query and a row is the product of their prepared values, the larger the
    nearer: under l2 qy - |y|^2 / 2, so that the distance is |q|^2 less twice that, else qy.

    Distances do not change with the origin, and products only by what depends on the query alone,
    so vectors that lie far from the origin are moved to it, where float32 resolves them better.
    `scale` is a power of two, which rounds nothing. Under cosine vectors have length 1 first.
    """

    metric: Metric
    centre: Floats | None
    scale: float

    @classmethod
    def around(cls, queries: Floats, rows: Floats, metric: Metric) -> Scaling:
        """Choose a scaling that suits these queries and rows like these."""
        sample = rows[:: max(1, len(rows) // _SAMPLE)].astype(np.float64)
        if metric.normalizes:
            sample = _unit(sample)
        squares = np.einsum("nd,nd->n", sample, sample)
        usual = squares <= _OUTLIER**2 * np.median(squares)
        centre, square = sample[usual].mean(axis=0), float(squares[usual].mean())
        is_far = centre @ centre > _WORTH_CENTRING * square
        longest = max(float(np.max(_lengths(queries), initial=0.0)), float(np.sqrt(square)))
        scale = 1.0
        if not metric.normalizes and longest and not _SHORT < longest < _LONG:
            scale = 2.0 ** int(np.clip(-np.floor(np.log2(longest)), -120, 100))
        return cls(metric, centre.astype(np.float32) if is_far else None, scale)

    def prepare_queries(self, queries: Floats) -> PreparedQueries:
        """Convert queries to this scaling, with nothing added to their nearness."""
        translates = self.metric.translates
        values, squares = self._prepared(queries, moved=translates)
        values[:, -2], values[:, -1] = 1.0, 0.0
        offsets = np.zeros(len(queries))
        if self.centre is not None and not translates:
            centre = self.centre.astype(np.float64)
            for start in range(0, len(queries), _SAMPLE):
                some = slice(start, start + _SAMPLE)
                wide = queries[some].astype(np.float64)
                offsets[some] = (_unit(wide) if self.metric.normalizes else wide) @ centre
        nearest = self.metric.zero_nearness(squares, offsets, self._slope)
        return PreparedQueries(values, np.sqrt(squares), nearest)

    def prepare_rows(self, rows: Floats) -> tuple[Floats, float, Mask | None]:
        """Return prepared values (m, dim + 2), a length that none exceeds, and outliers.

        Those are far longer than most, or too long for the scaling; None where there are none.
        """
        values, squares = self._prepared(rows, moved=True)
        with np.errstate(over="ignore"):
            values[:, -2] = self.metric.row_term(squares)
        values[:, -1] = 1.0
        longest, outliers = float(squares.max(initial=0.0)), None
        limit = min(max(_OUTLIER**2 * float(np.median(squares)), _SHORT**2), _LONG**4)
        if not longest <= limit:
            outliers = ~(squares <= limit)
        return values, np.sqrt(longest) * (1 + U32), outliers

    def error(self, queries: PreparedQueries, longest: float) -> Reals:
        """Return a bound on the error of distances by nearness, for each query."""
        far = 0.0 if self.centre is None else float(np.linalg.norm(self.centre.astype(np.float64)))
        dimension = queries.values.shape[1] - _ADDED
        return self.metric.error_bound(
            queries.lengths, longest, dimension, far * self.scale, self._slope
        )

    def lower_bounds(self, nearness: Reals, nearest: Reals, error: Reals) -> Reals:
        """Return lower bounds of distances from nearness, `PreparedQueries.nearest` and error.

        All three are parallel, or broadcast to each other.
        """
        distances = self._slope * (nearest - nearness) - error
        return np.maximum(distances, self.metric.least, out=distances)

    def thresholds(
        self, limit: Floats, queries: PreparedQueries, longest: float, error: Reals
    ) -> tuple[Floats, Reals]:
        """Return thresholds that no row falls below whose float32 distance is within limits (n,).

        Added to the nearness of each query they make it negative for rows too far away. A threshold
        is one more term t of the sum in `error`, which rounds |t| by the same share: t is greater
        by that than the least nearness asks for. The second value bounds the error of distances by
        such sums.
        """
        share = rounding(queries.values.shape[1] - _ADDED)
        with np.errstate(over="ignore"):
            reach = np.nextafter(limit, np.float32(np.inf)).astype(np.float64) + error
        least = queries.nearest - reach / self._slope
        # No nearness is below this one, whatever it rounds, and float32 holds it.
        lowest = -2 * longest * (queries.lengths + longest) - 2.0**-100
        least = np.maximum(least, lowest)
        added = np.nextafter(narrow(share * np.abs(least) - least), np.float32(np.inf))
        return added, error + self._slope * share * np.abs(added.astype(np.float64))

    @property
    def _slope(self) -> float:
        return self.metric.slope / self.scale / self.scale

    def _prepared(self, vectors: Floats, *, moved: bool) -> tuple[Floats, Reals]:
        """Return prepared values, of which the added columns are not set, and squared lengths."""
        dimension = vectors.shape[1]
        values = np.empty((len(vectors), dimension + _ADDED), np.float32)
        squares = np.empty(len(vectors))
        centre = self.centre * np.float32(self.scale) if moved and self.centre is not None else None
        for start in range(0, len(vectors), _SAMPLE):
            some = slice(start, start + _SAMPLE)
            part = vectors[some]
            with np.errstate(over="ignore"):
                if self.metric.normalizes:
                    part = directions(part)
                if self.scale != 1.0:
                    part = part * np.float32(self.scale)
                if centre is not None:
                    part = part - centre
            values[some, :dimension] = part
            wide = part.astype(np.float64)
            squares[some] = np.einsum("nd,nd->n", wide, wide)
        return values, squares


def directions(vectors: Floats) -> Floats:
    """Scale vectors that are not zero to length 1, rounded to float32."""
    lengths = _lengths(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        units = vectors * (1.0 / lengths).astype(np.float32)[:, None]
    # Float32 has no inverse of these.
    extreme = np.flatnonzero(~((lengths > 2.0**-100) & (lengths < 2.0**100)))
    units[extreme] = _unit(vectors[extreme].astype(np.float64))
    return units


def _unit(vectors: Reals) -> Reals:
    lengths: Reals = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return vectors / lengths[:, None]


def _lengths(vectors: Floats) -> Reals:
    lengths: Reals = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return lengths


def outlier_queries(queries: Floats) -> Mask:
    """Return a mask of the queries that are too long for a scaling that suits the others."""
    lengths = _lengths(queries)
    limit = _LONG * float(np.median(lengths[lengths > 0])) if lengths.any() else np.inf
    return lengths > limit


def narrow(wide: Reals) -> Floats:
    """Round to float32; what is beyond its range becomes infinite."""
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)


# Pairs whose products are held at once: about what a core's cache holds. Fewer rows at a time than
# this, whatever the number of queries, make poor use of a product of matrices.
HELD_PAIRS, _HELD_ROWS = 1 << 20, 512
# Rows whose products are taken with one bound.
TILE_ROWS = 4096
# Bounds that leave more than k of so many rows to each query are of little use.
_RULED_OUT_ROWS = 1024
# Products of a query are folded to so many places, and to at least so many times k. The k-th of the
# greatest products at these places is reached by few more than k rows.
_PLACES, _SPREAD = 256, 4
# A nearness of at least zero is within the threshold.
_ZERO = np.float32(0)
LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Bounds:
    """What neighbours of queries (n,) cannot be beyond, by (distance, position), nor before.

    `after` are the least positions of neighbours; None for any position.
    """

    distances: Floats
    positions: Ints
    after: Ints | None


# Consecutive queries that are compared with consecutive rows of a block.
Visit = tuple[slice, slice]


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as they are, and the `values` prepared for products, none longer than `longest`."""

    rows: Floats
    positions: Ints
    values: Floats
    longest: float
    scaling: Scaling

    def within(
        self, tile: slice, queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[Ints, Ints] | None:
        """Return pairs of queries and rows of a tile that may be within bounds, by products.

        None where these are far more than k for each query. Bounds are finite. What is added to the
        nearness of the queries is lost.
        """
        error = self.scaling.error(queries, self.longest)
        added, error = self.scaling.thresholds(bounds.distances, queries, self.longest, error)
        queries.values[:, -1] = added
        found = self._not_too_far(tile, queries, bounds.after, k)
        if found is None:
            return None
        query, row, sums = found
        nearness = sums.astype(np.float64) - added[query]
        return self._not_beyond(query, row, nearness, queries, error, bounds)

    def nearest(
        self, visits: Sequence[Visit], queries: PreparedQueries, bounds: Bounds, k: int
    ) -> tuple[Ints, Ints]:
        """Return pairs of visits that may be among the k nearest of them, and within bounds.

        The k nearest rows are at least as near as the k-th greatest of the products of k different
        ones. These are the greatest of every so many products, which are soon found. Visits are of
        all queries in their order; their products are held together.
        """
        held = _HeldProducts.of(visits, k)
        for (of_queries, of_rows), products in zip(visits, held.products(), strict=True):
            rows = self.values[of_rows]
            multiply(queries.values[of_queries], rows, products[:, : len(rows)])
            if bounds.after is not None:
                after = bounds.after[of_queries, None]
                products[:, : len(rows)][self.positions[of_rows] < after] = -np.inf
        greatest = held.greatest()
        error = self.scaling.error(queries, self.longest)
        reach = narrow(
            self.scaling.lower_bounds(_kth(greatest, k), queries.nearest, error) + 2 * error
        )
        is_nearer = reach < bounds.distances
        limits = Bounds(
            np.where(is_nearer, reach, bounds.distances),
            np.where(is_nearer, LAST, bounds.positions),
            bounds.after,
        )
        added, _ = self.scaling.thresholds(limits.distances, queries, self.longest, error)
        query, row, nearness = held.at_least(-added)
        return self._not_beyond(query, row, nearness.astype(np.float64), queries, error, limits)

    def _not_beyond(
        self,
        query: Ints,
        row: Ints,
        nearness: Reals,
        queries: PreparedQueries,
        error: Reals,
        bounds: Bounds,
    ) -> tuple[Ints, Ints]:
        """Return the pairs (n,) of that nearness that may be within bounds."""
        least = narrow(self.scaling.lower_bounds(nearness, queries.nearest[query], error[query]))
        limit = bounds.distances[query]
        is_within = least < limit
        is_within |= (least == limit) & (self.positions[row] <= bounds.positions[query])
        return query[is_within], row[is_within]

    def _not_too_far(
        self, tile: slice, queries: PreparedQueries, after: Ints | None, k: int
    ) -> tuple[Ints, Ints, Floats] | None:
        """Return queries and rows whose sums are not negative, and these sums."""
        count = len(queries.values)
        step = max(_HELD_ROWS, HELD_PAIRS // max(1, count))
        held = np.empty(count * step, np.float32)
        is_near = np.empty(count * step, np.bool_)
        pairs, sums = [np.empty((2, 0), np.int64)], [np.empty(0, np.float32)]
        for start in range(tile.start, tile.stop, step):
            rows = self.values[start : min(start + step, tile.stop)]
            size = count * len(rows)
            products, near = held[:size], is_near[:size]
            multiply(queries.values, rows, products.reshape(count, len(rows)))
            np.greater_equal(products, _ZERO, out=near)
            positions = self.positions[start : start + len(rows)]
            if after is not None and int(np.max(after)) > int(np.min(positions)):
                near &= (positions >= after[:, None]).ravel()
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
    starts: Ints
    held: Floats

    @classmethod
    def of(cls, visits: Sequence[Visit], k: int) -> _HeldProducts:
        """Make room for the products of visits, with what is less than any product after them."""
        rows = np.array([rows.stop - rows.start for _, rows in visits])
        width = _fold_width(int(rows.max()), k)
        queries = [queries.stop - queries.start for queries, _ in visits]
        lengths = np.repeat(-(-rows // width) * width, queries)
        ends = np.cumsum(lengths)
        held = cls(visits, width, ends - lengths, np.empty(int(ends[-1]), np.float32))
        for products, count in zip(held.products(), rows.tolist(), strict=True):
            products[:, count:] = -np.inf
        return held

    def products(self) -> list[Floats]:
        starts = [int(self.starts[queries.start]) for queries, _ in self.visits]
        spans = pairwise([*starts, len(self.held)])
        return [
            self.held[start:stop].reshape(queries.stop - queries.start, -1)
            for (queries, _), (start, stop) in zip(self.visits, spans, strict=True)
        ]

    def greatest(self) -> Floats:
        """Return the greatest products at each place of folds (queries, width)."""
        greatest = np.empty((len(self.starts), self.width), np.float32)
        for (queries, _), products in zip(self.visits, self.products(), strict=True):
            folded = products.reshape(len(products), -1, self.width)
            np.max(folded, axis=1, out=greatest[queries])
        return greatest

    def at_least(self, least: Floats) -> tuple[Ints, Ints, Floats]:
        """Return queries and rows of products that are not less than `least` (queries,)."""
        is_near = np.empty(len(self.held), np.bool_)
        start = 0
        for (queries, _), products in zip(self.visits, self.products(), strict=True):
            near = is_near[start : start + products.size].reshape(products.shape)
            np.greater_equal(products, least[queries, None], out=near)
            start += products.size
        found = np.flatnonzero(is_near)
        query = np.searchsorted(self.starts, found, side="right") - 1
        counts = [queries.stop - queries.start for queries, _ in self.visits]
        firsts = np.repeat([rows.start for _, rows in self.visits], counts)
        return query, found - self.starts[query] + firsts[query], self.held[found]


def _fold_width(rows: int, k: int) -> int:
    """Return how many products are a fold. It is odd, since what rows repeat may have a period."""
    return min(max(_SPREAD * k, _PLACES), rows) | 1


def held_products(rows: int, k: int) -> int:
    """Return at most how many products are held of each query that visits so many rows.

    Those that are held with them visit at most `TILE_ROWS`.
    """
    return rows + _fold_width(max(rows, TILE_ROWS), k)


def _kth(values: Floats, k: int) -> Reals:
    """Return the k-th greatest of each line, less than any number where there are fewer."""
    lines, width = values.shape
    if width < k:
        return np.full(lines, -np.inf)
    return np.partition(values, width - k, axis=1)[:, width - k].astype(np.float64)


def multiply(queries: Floats, rows: Floats, out: Floats) -> None:
    """Write the products of queries (n, dim) and rows (m, dim) to `out` (n, m)."""
    np.matmul(queries, rows.T, out=out)
