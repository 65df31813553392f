"""Distances between vectors, as Lance defines them: smaller is nearer for all."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Cosines in float64 are off by about 2^-52. Distances below that are noise, and rounding it away
# makes vectors of one direction equally near.
_COSINE_STEPS = float(1 << 46)


class Metric(str, Enum):
    """`l2` is the squared Euclidean distance, `cosine` is 1 - cos, `dot` is 1 - dot product."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"


def distances(
    queries: NDArray[np.float32], rows: NDArray[np.float32], metric: Metric
) -> NDArray[np.float64]:
    """Distances of pairs in float64, free of the cancellation that matrix products suffer from.

    The distance of a pair depends on nothing but its two vectors. Cosine distances are multiples of
    2^-46 from 0 to 2.

    Args:
        queries: (n, dim).
        rows: (n, dim): what to compare each query with.
        metric: Which distance.

    Returns:
        (n,).
    """
    import numpy as np

    # Of one layout, because the order of sums follows it.
    left, right = queries.astype(np.float64, order="C"), rows.astype(np.float64, order="C")
    if metric is Metric.L2:
        right -= left
        return _products(right, right)
    products = _products(left, right)
    if metric is Metric.DOT:
        return 1.0 - products
    lengths = np.sqrt(_products(left, left)) * np.sqrt(_products(right, right))
    steps = np.rint((1.0 - products / lengths) * _COSINE_STEPS)
    found: NDArray[np.float64] = np.clip(steps / _COSINE_STEPS, 0.0, 2.0)
    return found


def _products(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    products: NDArray[np.float64] = np.einsum("nd,nd->n", left, right)
    return products
