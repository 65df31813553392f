"""Distances between vectors, as Lance defines them: smaller is nearer for all."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Metric(str, Enum):
    """`l2` is the squared Euclidean distance, `cosine` is 1 - cos, `dot` is 1 - dot product."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"


def distances(
    queries: NDArray[np.float32], rows: NDArray[np.float32], metric: Metric
) -> NDArray[np.float64]:
    """Distances in float64, free of the cancellation that products of matrices suffer from.

    Args:
        queries: (n, dim).
        rows: (n, m, dim): the rows to compare with each query.
        metric: Which distance.

    Returns:
        (n, m).
    """
    wide, others = queries.astype(np.float64)[:, None, :], rows.astype(np.float64)
    if metric is Metric.L2:
        differences = others - wide
        return np.einsum("nmd,nmd->nm", differences, differences)
    products = np.einsum("nmd,nkd->nm", others, wide)
    if metric is Metric.DOT:
        return 1.0 - products
    lengths = np.linalg.norm(wide, axis=2) * np.linalg.norm(others, axis=2)
    return 1.0 - products / lengths
