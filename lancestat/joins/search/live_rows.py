"""Rows of a kept layout that are rows of the side which is searched, and which rows these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Tells which rows of a layout are rows of the side that is searched, and which these are.

    A *place*, which a layout holds of each row, is `slot << 32 | offset`: a slot, and the row's
    offset among the physical rows of the fragment. A *key* is the same with the number of the
    fragment in the side for the slot, so that the order of keys is row order. `fragments` are those
    of a `Coverage`, `deleted` the ascending keys of deleted rows.
    """

    fragments: NDArray[np.int64]
    deleted: NDArray[np.int64]

    @classmethod
    def of(cls, fragments: Sequence[int], deleted: Mapping[int, NDArray[np.uint32]]) -> LiveRows:
        """Return the live rows of fragments, by the ascending offsets of deleted ones by number.

        Deleted rows of fragments that are in no slot are left out.
        """
        numbers = sorted(deleted.keys() & set(fragments))
        keys = [number << OFFSET_BITS | deleted[number].astype(np.int64) for number in numbers]
        none = np.empty(0, np.int64)
        return cls(np.array(fragments, np.int64), np.concatenate([none, *keys]))

    @property
    def are_all(self) -> bool:
        """Whether no row of a layout can have gone."""
        return not len(self.deleted) and not (self.fragments < 0).any()

    def keys(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of places, -1 for rows that are not on the side any more."""
        numbers = self.fragments[places >> OFFSET_BITS]
        keys = np.where(numbers < 0, -1, numbers << OFFSET_BITS | places & OFFSET_MASK)
        keys[is_among(keys, self.deleted)] = -1
        return keys


OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1


def is_among(
    values: NDArray[np.int64], ascending: NDArray[np.int64] | NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Return whether each value is among ascending ones."""
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[at] == values
    return found


def imbalance(list_rows: NDArray[np.int64]) -> float:
    """Return how unequal lists are: 1 where all are equally long."""
    total = float(list_rows.sum())
    if not total:
        return 1.0
    return len(list_rows) * float(np.square(list_rows.astype(np.float64)).sum()) / total**2
