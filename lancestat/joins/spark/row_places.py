"""Where the rows of a right side lie among the physical rows of its table's fragments."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.layout import RightContent
from lancestat.joins.search.live_rows import OFFSET_BITS, OFFSET_MASK
from lancestat.joins.search.work import FragmentRows, VectorSide
from lancestat.joins.spark.selected_rows import matching_offsets, physical_offsets
from lancestat.lake.open import pinned_reads
from lancestat.spark.fragment_reader import pinned_dataset


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Tells the keys of rows (`live_rows.LiveRows`) from their positions, and the other way round.

    `ids` are those of the fragments with live rows, by number; `deleted` has the ascending offsets
    of deleted rows, of fragments that have some.
    """

    side: VectorSide
    ids: tuple[int, ...]
    deleted: dict[int, NDArray[np.uint32]] = field(repr=False)

    @classmethod
    def of(cls, side: VectorSide, content: RightContent) -> RowPlaces:
        """Look up which rows are deleted.

        Raises:
            LakeError: the table cannot be read.
        """
        dataset = pinned_dataset(side.pin, side.storage_options)
        deleted = {}
        with pinned_reads(side.pin, side.storage_options):
            for number, fragment in enumerate(content.fragments):
                if fragment.rows < fragment.physical_rows:
                    live = physical_offsets(dataset.get_fragment(fragment.id), None)
                    is_deleted = np.ones(fragment.physical_rows, np.bool_)
                    is_deleted[live] = False
                    deleted[number] = np.flatnonzero(is_deleted).astype(np.uint32)
        return cls(side, tuple(fragment.id for fragment in content.fragments), deleted)

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of rows at ascending positions."""
        numbers = self._numbers
        keys = np.empty(len(positions), np.int64)
        for part, here in self._parts(positions):
            number, inside = numbers[part.id], positions[here] - part.start
            if self.side.selection is not None:
                offsets = matching_offsets(self.side, self.side.selection, part.id)[inside]
            elif number in self.deleted:
                deleted = self.deleted[number].astype(np.int64)
                before = np.searchsorted(deleted - np.arange(len(deleted)), inside, side="right")
                offsets = inside + before
            else:
                offsets = inside
            keys[here] = np.int64(number << OFFSET_BITS) | offsets
        return keys

    def positions(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of rows by their keys; a key of -1 has none, which is -1."""
        if not keys.size:
            return keys
        flat = keys.ravel()
        numbers, offsets = flat >> OFFSET_BITS, flat & OFFSET_MASK
        positions = np.full(len(flat), -1, np.int64)
        ids = self._numbers
        parts = {ids[part.id]: part for part in self.side.fragments}
        order = np.argsort(numbers, kind="stable")
        present, firsts = np.unique(numbers[order], return_index=True)
        for number, here in zip(present.tolist(), np.split(order, firsts[1:]), strict=True):
            if number < 0:
                continue
            part, inside = parts[number], offsets[here]
            if self.side.selection is not None:
                matches = matching_offsets(self.side, self.side.selection, part.id)
                inside = np.searchsorted(matches, inside)
            elif number in self.deleted:
                inside = inside - np.searchsorted(self.deleted[number], inside)
            positions[here] = part.start + inside
        return positions.reshape(keys.shape)

    def _parts(self, positions: NDArray[np.int64]) -> list[tuple[FragmentRows, slice]]:
        """Return the fragments that hold some of the rows, with which of the rows these are."""
        if not len(positions):
            return []
        starts = np.array([part.start for part in self.side.fragments], np.int64)
        first, last = np.searchsorted(starts, positions[[0, -1]], side="right") - 1
        edges = np.searchsorted(positions, starts[first : last + 1])
        stops = [*edges[1:].tolist(), len(positions)]
        parts = self.side.fragments[first : last + 1]
        return [
            (part, slice(start, stop))
            for part, start, stop in zip(parts, edges.tolist(), stops, strict=True)
            if stop > start
        ]

    @property
    def _numbers(self) -> dict[int, int]:
        return {id: number for number, id in enumerate(self.ids)}
