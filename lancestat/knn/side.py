"""One side of a join as the search reads it: a Lance dataset at a pinned version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from lancestat.lake.pin import Pin


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """Live rows of a fragment; `start` is the place of the first among all rows of the dataset."""

    id: int
    start: int
    rows: int


def placed(fragments: Iterable[tuple[int, int]]) -> tuple[FragmentRows, ...]:
    """Fragments by id and live rows, in row order, less those without rows."""
    live = [(id, rows) for id, rows in fragments if rows]
    starts = accumulate((rows for _, rows in live), initial=0)
    return tuple(
        FragmentRows(id, start, rows) for (id, rows), start in zip(live, starts, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a dataset, by their places: from `start` up to and without `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class FragmentRange:
    """Rows of one fragment: `count` live ones after the first `offset`; `start` is their place."""

    fragment_id: int
    offset: int
    count: int
    start: int


@dataclass(frozen=True, slots=True)
class VectorSide:
    """Rows with vectors, of a pinned dataset.

    A row's *place* is its position in a scan of the whole dataset, deleted rows not counted: it is
    what `take` understands, and the order of places is row order. `fragments` are those that take
    part, ascending and without gaps in their places; `columns` those that the output shows.
    """

    pin: Pin
    vector: str
    columns: tuple[str, ...]
    fragments: tuple[FragmentRows, ...]
    storage_options: Mapping[str, str] = field(repr=False)

    @property
    def all_rows(self) -> Rows:
        """The places of all rows that take part."""
        if not self.fragments:
            return Rows(0, 0)
        last = self.fragments[-1]
        return Rows(self.fragments[0].start, last.start + last.rows)

    def ranges(self, rows: Rows) -> Iterator[FragmentRange]:
        """Where consecutive rows are: one range for each fragment that holds some of them."""
        ends = [each.start + each.rows for each in self.fragments]
        for fragment in self.fragments[bisect_right(ends, rows.start) :]:
            if fragment.start >= rows.stop:
                return
            start = max(rows.start, fragment.start)
            stop = min(rows.stop, fragment.start + fragment.rows)
            if stop > start:
                yield FragmentRange(fragment.id, start - fragment.start, stop - start, start)
