"""The best of the products of two matrices of float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import faiss
import numpy as np
from numpy.typing import NDArray

from lancestat.knn.metric import Metric


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
