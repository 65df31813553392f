"""Vectors of queries, whose neighbours have to be those that Spark's own functions find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import VectorLeftToSpark

# Squares of such elements, and products with enlarged ones, add up to a float in any dimension.
_LARGEST_PLAIN = 2.0**48
_ENLARGED = 44


def require_plain(array: pa.Array, source: str) -> None:
    """Refuse vectors that Spark's functions compare in another way than the search does.

    To Spark a distance from NaN or infinity is a number, and squares of large elements are no
    infinity, since it takes their root before it rounds to float.

    Args:
        array: Lists of float.
        source: What holds them, for errors.

    Raises:
        VectorLeftToSpark: an element is NaN, infinite or above 2^48.
    """
    elements = array.flatten().drop_null().to_numpy(zero_copy_only=False)
    # Nothing compares with NaN.
    if not bool((np.abs(elements) <= _LARGEST_PLAIN).all()):
        raise VectorLeftToSpark(f"{source} has a vector with NaN, infinity or very large elements")


def enlarged(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale queries (n, dim) by powers of two, so that their largest elements are near 2^44.

    Each query has its products in the same order then, and as 1 - product in float32 they are told
    apart as well as they are themselves.
    """
    _, exponents = np.frexp(np.abs(values).max(axis=1, initial=0.0))
    scaled: NDArray[np.float32] = np.ldexp(values, (_ENLARGED - exponents)[:, None])
    return scaled
