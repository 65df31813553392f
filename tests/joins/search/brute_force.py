"""Nearest neighbours the long way: every pair in float64, sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.metrics import DOT, L2, METRICS, Metric
from lancestat.joins.search.neighbours import Neighbours

# Metrics with formulas of their own, over vectors of floats.
FORMULAS = [metric for metric in METRICS if not metric.has_bits]


def pair_distances(
    queries: NDArray[np.float32], rows: NDArray[np.float32], metric: Metric
) -> NDArray[np.float64]:
    """Distances of all pairs, from differences and not from products under l2."""
    left, right = queries.astype(np.float64), rows.astype(np.float64)
    if metric is L2:
        return np.array([((right - query) ** 2).sum(axis=1) for query in left]).reshape(
            len(left), len(right)
        )
    if metric is DOT:
        return 1.0 - left @ right.T
    left /= np.sqrt((left**2).sum(axis=1, keepdims=True))
    right /= np.sqrt((right**2).sum(axis=1, keepdims=True))
    return 1.0 - left @ right.T


def nearest_by(
    matrix: NDArray[np.float64],
    places: NDArray[np.int64],
    k: int,
    max_distance: float | None = None,
) -> Neighbours:
    """The k nearest by (distance in float32, place) of all distances, or of those up to one."""
    with np.errstate(over="ignore"):
        narrow = matrix.astype(np.float32)
    order = np.lexsort((np.broadcast_to(places, narrow.shape), narrow), axis=1)[:, :k]
    all_places = np.full((len(matrix), k), -1, np.int64)
    all_distances = np.full((len(matrix), k), np.inf, np.float32)
    all_places[:, : order.shape[1]] = places[order]
    all_distances[:, : order.shape[1]] = np.take_along_axis(narrow, order, axis=1)
    if max_distance is not None:
        is_beyond = all_distances.astype(np.float64) > max_distance
        all_places[is_beyond], all_distances[is_beyond] = -1, np.inf
    return Neighbours(all_places, all_distances)


def assert_same(actual: Neighbours, expected: Neighbours) -> None:
    """Both the places and the distances, to the last bit."""
    np.testing.assert_array_equal(actual.positions, expected.positions)
    np.testing.assert_array_equal(actual.distances, expected.distances)


def assert_nearest(
    neighbours: Neighbours, all_distances: NDArray[np.float64], k: int, *, noise: float
) -> None:
    """Check neighbours against other distances, which are off by up to `noise`.

    Places are columns of `all_distances`.
    """
    width = min(k, all_distances.shape[1])
    assert (neighbours.positions[:, width:] == -1).all()
    assert np.isinf(neighbours.distances[:, width:]).all()
    places, distances = neighbours.positions[:, :width], neighbours.distances[:, :width]
    known = np.take_along_axis(all_distances, places, axis=1)
    np.testing.assert_allclose(distances, known, rtol=1e-6, atol=noise)
    assert all(len(set(line)) == width for line in places.tolist())
    order = np.lexsort((places, distances), axis=1)
    np.testing.assert_array_equal(order, np.broadcast_to(np.arange(width), order.shape))
    best = np.sort(all_distances, axis=1)[:, :width]
    np.testing.assert_allclose(distances, best, rtol=1e-6, atol=noise)


def clustered(
    seed: int, rows: int, dimension: int = 8, clusters: int = 20, width: float = 0.3
) -> NDArray[np.float32]:
    """Vectors around middles that are the same for all seeds."""
    middles = np.random.default_rng(0).standard_normal((clusters, dimension))
    random = np.random.default_rng(seed)
    spread = width * random.standard_normal((rows, dimension))
    return (middles[random.integers(0, clusters, rows)] + spread).astype(np.float32)
