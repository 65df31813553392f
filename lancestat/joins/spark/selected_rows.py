"""The rows of a side that pass its filter: how many there are, and where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.work import FragmentRows, Rows, Selection, VectorSide, fragment_rows
from lancestat.lake.open import pinned_reads
from lancestat.lake.row_ranges import RowRange, count_rows
from lancestat.lake.snapshot import Pin
from lancestat.spark.fragment_reader import pinned_dataset, read_range

_ADDRESS = "_rowaddr"
_ROW_OF_ADDRESS = (1 << 32) - 1
# Fragments whose matches a worker remembers, four or eight bytes for each of them.
_REMEMBERED = 64
_Key = tuple[Pin, str, int]
_offsets: dict[_Key, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}


def select_rows(
    dataset: lance.LanceDataset, live: tuple[FragmentRows, ...], filter: str
) -> tuple[tuple[FragmentRows, ...], Selection]:
    """Count the rows of each fragment that pass a filter in Lance's SQL.

    Returns:
        The fragments with those rows alone, and the selection.
    """
    counts = [(part.id, count_rows(dataset.get_fragment(part.id), filter)) for part in live]
    selected = fragment_rows(counts)
    ids = {part.id for part in selected}
    return selected, Selection(filter, tuple(part for part in live if part.id in ids))


def read_selected(
    side: VectorSide, selection: Selection, rows: Rows, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield columns of consecutive rows of a side with a filter, in order."""
    dataset = pinned_dataset(side.pin, side.storage_options)
    counts = {part.id: part.rows for part in side.fragments}
    for part in side.ranges(rows):
        physical = RowRange(part.fragment_id)
        if part.count != counts[part.fragment_id]:
            offsets, _ = _matches(side, selection, part.fragment_id)
            first, last = offsets[part.offset], offsets[part.offset + (part.count or 0) - 1]
            physical = RowRange(part.fragment_id, int(first), int(last - first) + 1)
        yield from read_range(
            dataset, physical, columns, side.storage_options, filter=selection.filter
        )


def live_positions(
    side: VectorSide, selection: Selection, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions in a scan of the whole dataset of rows at ascending positions."""
    starts = np.array([part.start for part in side.fragments], np.int64)
    edges = np.append(np.searchsorted(positions, starts), len(positions)).tolist()
    live = np.empty(len(positions), np.int64)
    whole = {part.id: part for part in selection.live}
    for part, (start, stop) in zip(side.fragments, pairwise(edges), strict=True):
        if stop > start:
            _, offsets = _matches(side, selection, part.id)
            inside = offsets[positions[start:stop] - part.start]
            live[start:stop] = whole[part.id].start + inside
    return live


def places_of(
    left: VectorSide, right: VectorSide, positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where left rows are among the rows of the right side, which is the same dataset.

    Args:
        left: A side.
        right: The other one, over the same fragments before its filter.
        positions: Ascending positions of left rows.

    Returns:
        The position of each row on the right side, -1 for one that its filter does not pass; and
        the position of the first right row behind it.
    """
    live = positions
    if left.selection is not None:
        live = live_positions(left, left.selection, positions)
    if right.selection is None:
        return live, live + 1
    own, behind = np.full(len(live), -1, np.int64), np.empty(len(live), np.int64)
    # Fragments of which no row passes are not among those of the selection.
    firsts = np.array([part.start for part in right.selection.live], np.int64)
    starts = np.array([*(part.start for part in right.fragments), right.all_rows.stop], np.int64)
    at = np.searchsorted(firsts, live, side="right") - 1
    behind[:] = starts[at + 1]
    for number, part in enumerate(right.selection.live):
        here = np.flatnonzero((at == number) & (live < part.start + part.rows))
        if not len(here):
            continue
        _, offsets = _matches(right, right.selection, part.id)
        inside = live[here] - part.start
        place = np.searchsorted(offsets, inside)
        passes = offsets[np.minimum(place, len(offsets) - 1)] == inside
        own[here] = np.where(passes, starts[number] + place, -1)
        behind[here] = starts[number] + place + passes
    return own, behind


def _matches(
    side: VectorSide, selection: Selection, fragment_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which rows of a fragment pass, by their places among physical and live rows."""
    key = (side.pin, selection.filter, fragment_id)
    if key not in _offsets:
        while len(_offsets) >= _REMEMBERED:
            del _offsets[next(iter(_offsets))]
        with pinned_reads(side.pin, side.storage_options):
            _offsets[key] = _scanned(side, selection, fragment_id)
    return _offsets[key]


def _scanned(
    side: VectorSide, selection: Selection, fragment_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    fragment = pinned_dataset(side.pin, side.storage_options).get_fragment(fragment_id)
    physical = physical_offsets(fragment, selection.filter)
    if fragment.metadata.deletion_file is None:
        return physical, physical
    return physical, np.searchsorted(physical_offsets(fragment, None), physical)


def matching_offsets(side: VectorSide, selection: Selection, fragment_id: int) -> NDArray[np.int64]:
    """Return the rows of a fragment that pass, by their places among its physical rows."""
    return _matches(side, selection, fragment_id)[0]


def physical_offsets(fragment: lance.LanceFragment, filter: str | None) -> NDArray[np.int64]:
    """Return the live rows of a fragment that pass a filter, by their places, ascending."""
    table = fragment.scanner(columns=[], filter=filter, with_row_address=True).to_table()
    addresses: NDArray[np.int64] = table.column(_ADDRESS).to_numpy().astype(np.int64)
    # A scan by way of a scalar index may come in the index's order.
    return np.sort(addresses & _ROW_OF_ADDRESS)
