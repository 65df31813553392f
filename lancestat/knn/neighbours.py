"""The nearest rows that a search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
