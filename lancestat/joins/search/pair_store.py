"""Pairs of rows in scratch, from the order in which they are found to that of the left rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.neighbours import Neighbours, nothing
from lancestat.joins.search.scratch_tables import commit_fragments, scan_rows, write_fragments
from lancestat.joins.search.work import Rows
from lancestat.lake.snapshot import Pin, pin_of

if TYPE_CHECKING:
    import lance

_LEFT, _RIGHT, _DISTANCE = "left", "right", "distance"
_SCHEMA = pa.schema(
    [pa.field(_LEFT, pa.int64()), pa.field(_RIGHT, pa.int64()), pa.field(_DISTANCE, pa.float32())]
)
# Neighbours that are held at once, unless a single row has more: 12 bytes each.
MOST_HELD = 4 << 20
# Pairs of a fragment, which a task holds while it sorts them.
_FRAGMENT_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs, by the positions of their rows, and their distances; each (n,)."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    distances: NDArray[np.float32]

    @classmethod
    def of(cls, left: NDArray[np.int64], found: Neighbours) -> Pairs:
        query, turn = np.nonzero(found.positions >= 0)
        return cls(left[query], found.positions[query, turn], found.distances[query, turn])

    def __len__(self) -> int:
        return len(self.left)

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Pairs:
        return Pairs(self.left[which], self.right[which], self.distances[which])

    def by_left(self) -> Pairs:
        """Return the pairs in the order of left rows, those of one row as they were."""
        if (self.left[:-1] <= self.left[1:]).all():
            return self
        return self.some(np.argsort(self.left, kind="stable"))


def _together(parts: Sequence[Pairs]) -> Pairs:
    return Pairs(
        np.concatenate([np.empty(0, np.int64), *(part.left for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.right for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.distances for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class WrittenPairs:
    """Fragments with pairs in the order of left rows, not yet committed.

    Fragments are Lance's, as JSON; `offsets` (fragments, bins + 1) are the pairs of a fragment at
    which bins of left rows start.
    """

    fragments: tuple[str, ...]
    offsets: NDArray[np.int64]


def write_pairs(
    parts: Iterable[Pairs],
    edges: NDArray[np.int64],
    uri: str,
    storage_options: Mapping[str, str],
    fragment_pairs: int = _FRAGMENT_PAIRS,
) -> WrittenPairs:
    """Write pairs, of which no more than a fragment has are held, besides those of one part.

    Args:
        parts: The pairs; those of a left row are in one of them, the nearest first.
        edges: (bins + 1,) the left positions at which bins start, and the end of the last.
        uri: The dataset that the fragments will belong to.
        storage_options: For the store.
        fragment_pairs: The pairs of a fragment.
    """
    fragments: list[str] = []
    offsets: list[NDArray[np.int64]] = []
    held: list[Pairs] = []

    def write() -> None:
        pairs = _together(held)
        held.clear()
        if not len(pairs):
            return
        pairs = pairs.by_left()
        arrays = [pa.array(column) for column in (pairs.left, pairs.right, pairs.distances)]
        table = pa.Table.from_arrays(arrays, schema=_SCHEMA)
        fragments.extend(write_fragments(table, len(table), uri, storage_options))
        offsets.append(np.searchsorted(pairs.left, edges))

    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= fragment_pairs:
            write()
    write()
    made = np.array(offsets, np.int64).reshape(len(offsets), len(edges))
    return WrittenPairs(tuple(fragments), made)


@dataclass(frozen=True, slots=True)
class PairStore:
    """A dataset in scratch with pairs; `fragment_ids` go with the lines of `offsets`.

    `edges` and `offsets` are as for `write_pairs`. It travels to Spark's workers.
    """

    pin: Pin
    edges: NDArray[np.int64]
    fragment_ids: tuple[int, ...]
    offsets: NDArray[np.int64]
    storage_options: Mapping[str, str] = field(repr=False)

    @classmethod
    def commit(
        cls,
        parts: Sequence[WrittenPairs],
        edges: NDArray[np.int64],
        uri: str,
        storage_options: Mapping[str, str],
    ) -> PairStore:
        """Commit what was written, which is not nothing."""
        fragments = [text for part in parts for text in part.fragments]
        dataset = commit_fragments(fragments, uri, _SCHEMA, storage_options)
        ids = tuple(fragment.fragment_id for fragment in dataset.get_fragments())
        offsets = np.concatenate([part.offsets for part in parts])
        return cls(pin_of(dataset, uri), edges, ids, offsets, storage_options)

    def of_bins(self, first: int, last: int) -> PairStore:
        """Return what the bins from `first` up to and without `last` have."""
        return PairStore(
            self.pin,
            self.edges[first : last + 1],
            self.fragment_ids,
            self.offsets[:, first : last + 1],
            self.storage_options,
        )

    def neighbours(
        self, dataset: lance.LanceDataset, most: int = MOST_HELD
    ) -> Iterator[tuple[Rows, Neighbours]]:
        """Yield all left rows of the bins, consecutive ones together, and their neighbours.

        The neighbours of all rows that are yielded together are as many as the widest row has. No
        more than `most` are held, unless one row has more.
        """
        sizes = np.diff(self.offsets.sum(axis=0))
        first = 0
        while first < len(sizes):
            last, held = first + 1, int(sizes[first])
            while last < len(sizes) and held + sizes[last] <= most:
                last, held = last + 1, held + int(sizes[last])
            yield from self._window(dataset, first, last, most)
            first = last

    def _window(
        self, dataset: lance.LanceDataset, first: int, last: int, most: int
    ) -> Iterator[tuple[Rows, Neighbours]]:
        """Yield the rows of some bins, which have few pairs or are one bin."""
        rows = Rows(int(self.edges[first]), int(self.edges[last]))
        if int(np.sum(self.offsets[:, last] - self.offsets[:, first])) <= most:
            pairs = self._read(dataset, self.offsets[:, first], self.offsets[:, last])
            yield from _split(rows, pairs, most)
            return
        # A bin of too many pairs: they are counted first, and read for some of its rows at a time.
        counts = self._counts(dataset, rows, first, last)
        starts = self.offsets[:, first, None] + np.cumsum(counts, axis=1) - counts
        ends, sizes = starts + counts, counts.sum(axis=0)
        begin = 0
        while begin < len(rows):
            end, held = begin + 1, int(sizes[begin])
            while end < len(rows) and held + sizes[end] <= most:
                end, held = end + 1, held + int(sizes[end])
            pairs = self._read(dataset, starts[:, begin], ends[:, end - 1])
            yield from _split(Rows(rows.start + begin, rows.start + end), pairs, most)
            begin = end

    def _counts(
        self, dataset: lance.LanceDataset, rows: Rows, first: int, last: int
    ) -> NDArray[np.int64]:
        """Return how many pairs each fragment has of each row, (fragments, rows)."""
        counts = np.zeros((len(self.fragment_ids), len(rows)), np.int64)
        bounds = zip(self.fragment_ids, self.offsets[:, first], self.offsets[:, last], strict=True)
        for number, (fragment_id, start, stop) in enumerate(bounds):
            for begin in range(int(start), int(stop), _FRAGMENT_PAIRS):
                size = min(_FRAGMENT_PAIRS, int(stop) - begin)
                table = scan_rows(dataset, fragment_id, begin, size, (_LEFT,), self.storage_options)
                left = table.column(_LEFT).to_numpy() - rows.start
                counts[number] += np.bincount(left, minlength=len(rows))
        return counts

    def _read(
        self, dataset: lance.LanceDataset, starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> Pairs:
        parts = []
        for fragment_id, start, stop in zip(
            self.fragment_ids, starts.tolist(), stops.tolist(), strict=True
        ):
            if stop > start:
                size, options = stop - start, self.storage_options
                table = scan_rows(dataset, fragment_id, start, size, _SCHEMA.names, options)
                parts.append(Pairs(*(column.to_numpy() for column in table.columns)))
        return _together(parts)


def _split(rows: Rows, pairs: Pairs, most: int) -> Iterator[tuple[Rows, Neighbours]]:
    """Yield rows with their pairs as neighbours, so many rows that their room is not too large."""
    pairs = pairs.by_left()
    counts = np.bincount(pairs.left - rows.start, minlength=len(rows))
    starts = np.cumsum(counts) - counts
    begin = 0
    while begin < len(rows):
        end, width = begin + 1, int(counts[begin])
        while end < len(rows):
            wider = max(width, int(counts[end]))
            if (end + 1 - begin) * wider > most:
                break
            end, width = end + 1, wider
        some = slice(int(starts[begin]), int(starts[end - 1] + counts[end - 1]))
        found = nothing(end - begin, max(1, width))
        is_pair = np.arange(max(1, width)) < counts[begin:end, None]
        found.positions[is_pair] = pairs.right[some]
        found.distances[is_pair] = pairs.distances[some]
        yield Rows(rows.start + begin, rows.start + end), found
        begin = end
