"""The nearest rows of each query, and what is done with them: merged, limited, less the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

Floats = NDArray[np.float32]
Reals = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HALF = np.uint64(32)
# It is greater than the bits of any distance.
_EMPTY = np.uint64(2**32 - 1)


class Parallel:
    """Arrays that are parallel along their first axes: the fields of a dataclass with slots."""

    __slots__: tuple[str, ...] = ()

    def some(self, which: Ints | Mask | slice) -> Self:
        """Return what the arrays have at some indices."""
        return type(self)(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Neighbours(Parallel):
    """The nearest rows of each query, nearest first, equally near ones in row order.

    Both are (queries, k): `positions` int64, -1 where there are fewer than k; `distances` float32,
    infinite there. Neighbours are ranked by the distance as the output shows it, in float32, so
    that what is equal there is in row order, and parts merge to what one search finds.
    """

    positions: Ints
    distances: Floats

    def put(self, which: Ints | Mask | slice, nearest: Neighbours) -> None:
        """Set the neighbours of some queries, in place; columns after the last one stay."""
        width = nearest.positions.shape[1]
        self.positions[which, :width] = nearest.positions
        self.distances[which, :width] = nearest.distances


def nothing(queries: int, k: int) -> Neighbours:
    return Neighbours(
        np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)
    )


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """Merge neighbours of the same queries in disjoint rows to the k nearest.

    It is associative and commutative.
    """
    positions = np.concatenate([part.positions for part in parts], axis=1)
    distances = np.concatenate([part.distances for part in parts], axis=1)
    order = _ranks(positions, distances)[:, :k]
    nearest = Neighbours(
        np.take_along_axis(positions, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )
    if order.shape[1] == k:
        return nearest
    padded = nothing(len(positions), k)
    padded.put(slice(None), nearest)
    return padded


def nearest_pairs(
    query: Ints, distances: Floats, positions: Ints, k: int
) -> tuple[Ints, Neighbours]:
    """Return the queries that have pairs (n,), and up to k nearest of these for each."""
    keys = (query.astype(np.uint64) << _HALF) | ordered_bits(distances)
    order = np.argsort(keys)
    keys = keys[order]
    is_tied = np.zeros(len(order), np.bool_)
    is_tied[1:] = keys[1:] == keys[:-1]
    settle_ties(order, is_tied, positions[order])
    query, distances, positions = query[order], distances[order], positions[order]
    first = np.flatnonzero(np.diff(query, prepend=-1))
    touched, counts = query[first], np.diff(first, append=len(query))
    number = np.repeat(np.arange(len(touched)), counts)
    rank = np.arange(len(query)) - first[number]
    is_near = rank < k
    nearest = nothing(len(touched), min(k, int(np.max(counts, initial=0))))
    nearest.positions[number[is_near], rank[is_near]] = positions[is_near]
    nearest.distances[number[is_near], rank[is_near]] = distances[is_near]
    return touched, nearest


def ordered_bits(distances: Floats) -> NDArray[np.uint64]:
    """Return numbers of 32 bits that are in the order of the distances, none of which is NaN."""
    # Bits of floats are in the order of these where they are not negative, else in the reverse.
    bits = (distances + np.float32(0)).view(np.uint32)
    ordered: NDArray[np.uint32] = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return ordered.astype(np.uint64)


def settle_ties(order: Ints, is_tied: Mask, positions: Ints) -> None:
    """Put tied elements of an order (n,) into the order of positions (n,), in place.

    `is_tied` (n,) says whether an element is as near as the one before it.
    """
    among = is_tied.copy()
    among[:-1] |= is_tied[1:]
    tied = np.flatnonzero(among)
    if len(tied):
        run = np.cumsum(~is_tied[tied])
        order[tied] = order[tied[np.lexsort((positions[tied], run))]]


def _ranks(positions: Ints, distances: Floats) -> Ints:
    """Return the order of each line by distance and position; empty positions come last."""
    bits = ordered_bits(distances)
    bits[positions < 0] = _EMPTY
    # To sort single numbers takes a tenth of the time that two keys take.
    keys = np.sort((bits << _HALF) | np.arange(positions.shape[1], dtype=np.uint64), axis=1)
    order: Ints = (keys & _EMPTY).astype(np.int64)
    ranked = keys >> _HALF
    is_tied = np.zeros(order.shape, np.bool_)
    is_tied[:, 1:] = (ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] != _EMPTY)
    if is_tied.any():
        ordered = np.take_along_axis(positions, order, axis=1)
        settle_ties(order.reshape(-1), is_tied.reshape(-1), ordered.reshape(-1))
    return order


def within(neighbours: Neighbours, limit: np.float32) -> Neighbours:
    """Return neighbours without those that are farther than a limit."""
    if np.isposinf(limit):
        return neighbours
    is_near = neighbours.distances <= limit
    return Neighbours(
        np.where(is_near, neighbours.positions, -1),
        np.where(is_near, neighbours.distances, np.float32(np.inf)),
    )


def share_found(true: Ints | NDArray[np.int32], found: Ints | NDArray[np.int32]) -> float | None:
    """Return the share of numbers that are among those found for their query; None without any.

    Both are (queries, any number): positions, or lists, -1 for none.
    """
    exists = true >= 0
    if not exists.any():
        return None
    hits = [np.isin(theirs, mine) for theirs, mine in zip(true, found, strict=True)]
    return float(np.array(hits)[exists].mean())


def without(neighbours: Neighbours, own: Ints) -> Neighbours:
    """Return neighbours, one fewer of each query, without the row at the query's own position.

    A query that is no row has the position -1.
    """
    is_own = (neighbours.positions == own[:, None]) & (own >= 0)[:, None]
    # Without itself among them a query has one more than it needs.
    is_own[:, -1] |= ~is_own.any(axis=1)
    kept = (len(own), neighbours.positions.shape[1] - 1)
    return Neighbours(
        neighbours.positions[~is_own].reshape(kept), neighbours.distances[~is_own].reshape(kept)
    )
