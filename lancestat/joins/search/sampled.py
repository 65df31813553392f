"""The true neighbours of sampled queries, and the lists that these are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.neighbours import Neighbours, merge


@dataclass(frozen=True, slots=True)
class SampledNeighbours:
    """The true neighbours of some queries, and the lists these are in, -1 where there is none."""

    neighbours: Neighbours
    lists: NDArray[np.int32]


def merge_sampled(parts: Sequence[SampledNeighbours], k: int) -> SampledNeighbours:
    """Merge the true neighbours among parts of the rows to those among all."""
    neighbours = merge([part.neighbours for part in parts], k)
    lists = np.full(neighbours.positions.shape, -1, np.int32)
    for part in parts:
        _look_up(neighbours.positions, part.neighbours.positions, part.lists, lists)
    return SampledNeighbours(neighbours, lists)


def lists_of(
    positions: NDArray[np.int64],
    before: tuple[NDArray[np.int64], NDArray[np.int32]],
    block: NDArray[np.int64],
    lists: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the lists of positions, from those known before and those of a block."""
    list_of_position = np.full(positions.shape, -1, np.int32)
    _look_up(positions, *before, list_of_position)
    _look_up(positions, block, lists, list_of_position)
    return list_of_position


def _look_up(
    positions: NDArray[np.int64],
    keys: NDArray[np.int64],
    values: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Put into `out` the values of those positions that are among the keys."""
    keys, values = keys.ravel(), values.ravel()
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], positions), len(keys) - 1) if len(keys) else None
    if at is None:
        return
    is_known = (keys[order][at] == positions) & (positions >= 0)
    out[is_known] = values[order][at][is_known]
