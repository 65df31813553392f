"""Vectors as products of matrices in float32 compare them, and bounds on what these round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.metrics import U32, Metric, rounding

# Rows that a centre is taken from, and that are prepared at once.
_SAMPLE = 4096
# Rows are moved to another centre when that takes so much off their mean square length.
_WORTH_CENTRING = 0.25
# Lengths within these need no scaling: their squares neither overflow nor vanish.
_SHORT, _LONG = 2.0**-30, 2.0**30
# Rows so much longer than the middle one would spoil the bound for all others.
_OUTLIER = 8.0
# Columns behind the elements of prepared vectors: of a row, what its length takes off its nearness,
# and 1; of a query, 1, and what is added to its nearness.
_ADDED = 2


@dataclass(frozen=True, slots=True)
class PreparedQueries:
    """Queries in a frame: `values` (n, dim + 2), `lengths`, and the nearness of distance zero.

    The last column of `values` is added to the nearness of every row.
    """

    values: NDArray[np.float32]
    lengths: NDArray[np.float64]
    nearest: NDArray[np.float64]

    def some(self, which: NDArray[np.int64] | slice) -> PreparedQueries:
        """Return some of the queries."""
        return PreparedQueries(self.values[which], self.lengths[which], self.nearest[which])


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows in a frame: `values` (m, dim + 2), none longer than `longest`.

    `outliers` are far longer than most, or too long for the frame; None where there are none.
    """

    values: NDArray[np.float32]
    longest: float
    outliers: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What to add to the nearness of each query (n,), so that it is negative for rows too far away.

    `error` is the bound on the error of distances by such sums.
    """

    added: NDArray[np.float32]
    error: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frame:
    """The coordinates in which products are taken.

    The *nearness* of a query and a row is the product of their prepared values, the larger the
    nearer: under l2 qy - |y|^2 / 2, so that the distance is |q|^2 less twice that, else qy.

    Distances do not change with the origin, and products only by what depends on the query alone,
    so vectors that lie far from the origin are moved to it, where float32 resolves them better.
    `scale` is a power of two, which rounds nothing. Under cosine vectors have length 1 first.
    """

    metric: Metric
    centre: NDArray[np.float32] | None
    scale: float

    @classmethod
    def around(
        cls, queries: NDArray[np.float32], rows: NDArray[np.float32], metric: Metric
    ) -> Frame:
        """Choose a frame that suits these queries and rows like these."""
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

    def prepare_queries(self, queries: NDArray[np.float32]) -> PreparedQueries:
        """Convert queries to this frame, with nothing added to their nearness."""
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

    def prepare_rows(self, rows: NDArray[np.float32]) -> PreparedRows:
        """Convert rows to this frame."""
        values, squares = self._prepared(rows, moved=True)
        with np.errstate(over="ignore"):
            values[:, -2] = self.metric.row_term(squares)
        values[:, -1] = 1.0
        longest, outliers = float(squares.max(initial=0.0)), None
        limit = min(max(_OUTLIER**2 * float(np.median(squares)), _SHORT**2), _LONG**4)
        if not longest <= limit:
            outliers = ~(squares <= limit)
        return PreparedRows(values, np.sqrt(longest) * (1 + U32), outliers)

    def error(self, queries: PreparedQueries, rows: PreparedRows) -> NDArray[np.float64]:
        """Return a bound on the error of distances by nearness, for each query."""
        far = 0.0 if self.centre is None else float(np.linalg.norm(self.centre.astype(np.float64)))
        dimension = queries.values.shape[1] - _ADDED
        return self.metric.error_bound(
            queries.lengths, rows.longest, dimension, far * self.scale, self._slope
        )

    def lower_bounds(
        self,
        nearness: NDArray[np.float64],
        nearest: NDArray[np.float64],
        error: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return lower bounds of distances from nearness, `PreparedQueries.nearest` and error.

        All three are parallel, or broadcast to each other.
        """
        distances = self._slope * (nearest - nearness) - error
        return np.maximum(distances, self.metric.least, out=distances)

    def thresholds(
        self,
        limit: NDArray[np.float32],
        queries: PreparedQueries,
        rows: PreparedRows,
        error: NDArray[np.float64],
    ) -> Thresholds:
        """Return thresholds that no row falls below whose float32 distance is within limits (n,).

        The threshold is one more term t of the sum in `error`, which rounds |t| by the same share:
        t is greater by that than the least nearness asks for.
        """
        share = rounding(queries.values.shape[1] - _ADDED)
        with np.errstate(over="ignore"):
            reach = np.nextafter(limit, np.float32(np.inf)).astype(np.float64) + error
        least = queries.nearest - reach / self._slope
        # No nearness is below this one, whatever it rounds, and float32 holds it.
        lowest = -2 * rows.longest * (queries.lengths + rows.longest) - 2.0**-100
        least = np.maximum(least, lowest)
        added = np.nextafter(narrow(share * np.abs(least) - least), np.float32(np.inf))
        return Thresholds(added, error + self._slope * share * np.abs(added.astype(np.float64)))

    @property
    def _slope(self) -> float:
        """How much farther a row is for each unit of nearness that it has less."""
        return self.metric.slope / self.scale / self.scale

    def _prepared(
        self, vectors: NDArray[np.float32], *, moved: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
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


def directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors that are not zero to length 1, rounded to float32."""
    lengths = _lengths(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        units = vectors * (1.0 / lengths).astype(np.float32)[:, None]
    # Float32 has no inverse of these.
    extreme = np.flatnonzero(~((lengths > 2.0**-100) & (lengths < 2.0**100)))
    units[extreme] = _unit(vectors[extreme].astype(np.float64))
    return units


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    return vectors / lengths[:, None]


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(
        np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    )
    return lengths


def outlier_queries(queries: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return a mask of the queries that are too long for a frame that suits the others."""
    lengths = _lengths(queries)
    limit = _LONG * float(np.median(lengths[lengths > 0])) if lengths.any() else np.inf
    return lengths > limit


def narrow(wide: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32; what is beyond its range becomes infinite."""
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)
