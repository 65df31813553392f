"""Centroids: the list of the right side that a vector belongs to, and the lists to search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Floats, Ints, Reals
from lancestat.joins.search.prefilter import directions

# Rounds of assignment; later ones change less than more rows to train on do.
ROUNDS = 6
# Elements are clamped to that, in the scale of the training rows.
_FARTHEST = np.float32(2.0**50)
# Between these squared lengths float32 holds products well as they are, and nothing is copied.
_COMMON = 2.0**-40, 2.0**40


def best(queries: Floats, rows: Floats, count: int, metric: Metric) -> tuple[Floats, Ints]:
    """Return the best scores, best first, and their row numbers, both (queries, count).

    Under `l2` a score is the squared distance, else the product. Arrays are contiguous.
    """
    kind = faiss.METRIC_L2 if metric.translates else faiss.METRIC_INNER_PRODUCT
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


@dataclass(frozen=True, slots=True)
class Centroids:
    """Centroids (lists, dimension), in the space where lists are made, which the metric decides.

    Under `l2` that is the vectors' own, under `cosine` their directions; under `dot` rows are
    padded to `length` in one more dimension (`metrics.InnerProduct`). Vectors are multiplied by
    `scale` first, a power of two.
    """

    values: Floats
    metric: Metric
    scale: float
    length: float

    def __len__(self) -> int:
        return len(self.values)

    def assign(self, rows: Floats) -> NDArray[np.int32]:
        return self._nearest(self._of_rows(rows), 1)[:, 0]

    def assign_with_errors(self, rows: Floats) -> tuple[NDArray[np.int32], Reals]:
        """Return the list of each row, and the row's error (`Metric.list_errors`)."""
        scores, lists = best(self._of_rows(rows), self.values, 1, self.metric)
        errors = self.metric.list_errors(scores[:, 0].astype(np.float64), self.length)
        return lists[:, 0].astype(np.int32), np.maximum(errors, 0.0)

    def nearest_lists(self, queries: Floats, nprobes: int) -> NDArray[np.int32]:
        """Return the lists that each query (n, dim) visits, (n, nprobes), the nearest first."""
        projected = _projected(queries, self.metric, self.scale)
        if self.metric.pads:
            projected = _with_column(projected, 0.0)
        return self._nearest(projected, min(nprobes, len(self)))

    def visited_lists(self, queries: Floats, nprobes: int, k: int, rows: Ints) -> NDArray[np.int32]:
        """Return the lists that queries visit: the nearest ones, and as many as have k rows.

        With fewer than k rows in all lists (`rows`) all are visited. The result is (n, most), the
        nearest first, -1 after the last one.
        """
        visits = self.nearest_lists(queries, nprobes)
        wanted, count = min(k, int(rows.sum())), visits.shape[1]
        least = count
        short = np.flatnonzero(rows[visits].sum(axis=1) < wanted)
        while len(short):
            count = min(2 * count, len(self))
            nearest = self.nearest_lists(queries[short], count)
            met = np.cumsum(rows[nearest], axis=1)
            nearest[:, least:][met[:, least - 1 : -1] >= wanted] = -1
            wider = np.full((len(visits), count), -1, np.int32)
            wider[:, : visits.shape[1]] = visits
            wider[short] = nearest
            visits, short = wider, short[met[:, -1] < wanted]
        return visits

    def _of_rows(self, rows: Floats) -> Floats:
        projected = _projected(rows, self.metric, self.scale)
        return _padded(projected, self.length) if self.metric.pads else projected

    def _nearest(self, projected: Floats, count: int) -> NDArray[np.int32]:
        return best(projected, self.values, count, self.metric)[1].astype(np.int32)


def train(sample: Floats, lists: int, metric: Metric, seed: int = 0) -> Centroids:
    """Train centroids by k-means on a sample (n, dim) of rows, the same for the same arguments.

    Means are made length 1 again where angles matter (spherical k-means).
    """
    lists = min(lists, len(sample))
    scale = _scale(sample, metric)
    projected = _projected(sample, metric, scale)
    length = 0.0
    if metric.pads:
        length = float(np.sqrt(_squares(projected).max()))
        projected = _padded(projected, length)
    means = faiss.Kmeans(
        projected.shape[1],
        lists,
        niter=ROUNDS,
        seed=seed,
        spherical=not metric.translates,
        min_points_per_centroid=1,
        max_points_per_centroid=len(projected),
    )
    means.train(projected)
    assert means.centroids is not None
    return Centroids(means.centroids, metric, scale, length)


def recall_curve(order: NDArray[np.int32], truth: Ints) -> tuple[Reals, Reals]:
    """Return the recall for every number of lists visited, entry 0 for one, and its lower bound.

    Search inside a list is exact, so that a true neighbour is found when its list is visited:
    `order` are (queries, lists) in the order of visits, `truth` the lists (queries, k) of true
    neighbours, -1 for none. The bound is that of `mean_and_lower`.
    """
    queries, lists = order.shape
    turn = np.empty_like(order)
    np.put_along_axis(turn, order, np.arange(lists, dtype=np.int32)[None, :], axis=1)
    query, rank = np.nonzero(truth >= 0)
    turns = turn[query, truth[query, rank]]
    hits = np.zeros((queries, lists))
    np.add.at(hits, (query, turns), 1.0)
    counts = hits.sum(axis=1)
    shares = np.cumsum(hits[counts > 0], axis=1) / counts[counts > 0, None]
    if not len(shares):
        return np.ones(lists), np.ones(lists)
    recall, lower = mean_and_lower(shares)
    lower[-1] = 1.0
    return recall, lower


_ONE_SIDED_95 = 1.645


def mean_and_lower(shares: Reals) -> tuple[Reals, Reals]:
    """Return means over queries (queries, n), and their lower bounds at a confidence of 95 %."""
    mean = shares.mean(axis=0)
    if len(shares) < 2:
        return mean, np.zeros_like(mean)
    deviation = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
    return mean, mean - _ONE_SIDED_95 * deviation


def choose_nprobes(lower: Reals, recall: float) -> int:
    """Return the fewest lists to visit that reach a recall by the lower bounds of the curve."""
    enough = lower >= min(recall, 1.0 - 1e-12)
    return int(np.argmax(enough)) + 1 if enough.any() else len(lower)


def _scale(sample: Floats, metric: Metric) -> float:
    if metric.normalizes:
        return 1.0
    square = float(np.einsum("nd,nd->n", sample, sample, dtype=np.float64).mean())
    if not square or _COMMON[0] < square < _COMMON[1]:
        return 1.0
    return 2.0 ** int(np.clip(-np.floor(np.log2(square) / 2), -120, 100))


def _projected(vectors: Floats, metric: Metric, scale: float) -> Floats:
    if metric.normalizes:
        return np.ascontiguousarray(directions(vectors))
    if (
        scale == 1.0
        and -_FARTHEST <= np.min(vectors, initial=0.0) <= np.max(vectors, initial=0.0) <= _FARTHEST
    ):
        return np.ascontiguousarray(vectors)
    with np.errstate(over="ignore"):
        scaled = vectors * np.float32(scale)
    clipped: Floats = np.clip(scaled, -_FARTHEST, _FARTHEST)
    return clipped


def _padded(rows: Floats, length: float) -> Floats:
    return _with_column(rows, np.sqrt(np.maximum(length * length - _squares(rows), 0.0)))


def _squares(vectors: Floats) -> Floats:
    squares: Floats = np.einsum("nd,nd->n", vectors, vectors)
    return squares


def _with_column(vectors: Floats, last: Floats | float) -> Floats:
    rows, dimension = vectors.shape
    longer = np.empty((rows, dimension + 1), np.float32)
    longer[:, :dimension], longer[:, dimension] = vectors, last
    return longer
