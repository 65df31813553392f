"""Right rows written by list to scratch, and read again list by list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.centroids import Centroids
from lancestat.joins.search.live_rows import LiveRows
from lancestat.joins.search.neighbours import nothing
from lancestat.joins.search.sampled import SampledNeighbours, lists_of
from lancestat.joins.search.scratch_tables import (
    commit_fragments,
    not_laid_out,
    scan_rows,
    write_fragments,
)
from lancestat.joins.search.search import ExactSearch
from lancestat.lake.open import store_options
from lancestat.lake.snapshot import Pin, pin_of

if TYPE_CHECKING:
    import lance

VECTOR = "vector"
PLACE = "place"
# Bytes of vectors that are put in order and written at once.
_WRITE_BYTES = 8 << 20
# Bytes of vectors of several lists that are put together: more would be in memory twice for longer.
_GATHERED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Fragments with some right rows by list, not yet committed.

    `fragments` are Lance's, as JSON; `offsets` (fragments, lists + 1) are the rows of a fragment at
    which lists start. `sampled` counts these rows alone, and `error` is the sum of their distances
    from the centroids of their lists.
    """

    fragments: tuple[str, ...]
    offsets: NDArray[np.int64]
    sampled: SampledNeighbours
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class PartitionedDataset:
    """A dataset in scratch with right rows by list: vectors, and the positions they came from.

    `fragment_ids` go with the lines of `offsets`. With `live` rows are known by their keys instead
    of positions, and those that are none any more are left out (`live_rows.LiveRows`).
    """

    pin: Pin
    fragment_ids: tuple[int, ...]
    offsets: NDArray[np.int64]
    storage_options: Mapping[str, str] = field(repr=False)
    live: LiveRows | None = None

    @property
    def list_rows(self) -> NDArray[np.int64]:
        """The number of rows of each list."""
        rows: NDArray[np.int64] = np.diff(self.offsets, axis=1).sum(axis=0)
        return rows


def write_partition(
    blocks: Iterable[tuple[NDArray[np.int64], NDArray[np.float32]]],
    centroids: Centroids,
    sample: NDArray[np.float32],
    k: int,
    uri: str,
    storage_options: Mapping[str, str],
    *,
    appends: bool = False,
) -> WrittenPart:
    """Write rows by list, and find the neighbours of sampled queries on the way.

    Each block becomes a fragment whose rows are sorted by list, so that blocks are best as large as
    memory allows; a block and what Lance buffers are held at once.

    Args:
        blocks: Positions and vectors (n, dim) of rows that can match.
        centroids: Of the lists.
        sample: (queries, dim): the queries to search for.
        k: The number of neighbours of each query.
        uri: The dataset that the fragments will belong to.
        storage_options: For the store.
        appends: Whether that dataset is there already.

    Raises:
        ScratchUnusable: scratch cannot be written to.
    """
    nearest = ExactSearch(sample, k, centroids.metric)
    fragments: list[str] = []
    offsets: list[NDArray[np.int64]] = []
    known: NDArray[np.int32] = np.full((len(sample), k), -1, np.int32)
    error = 0.0
    mode: Literal["create", "append"] = "append" if appends else "create"
    for positions, rows in blocks:
        if not len(rows):
            continue
        lists, errors = centroids.assign_with_errors(rows)
        error += float(errors.sum())
        before = nearest.neighbours().positions.copy()
        nearest.add(rows, positions)
        known = lists_of(nearest.neighbours().positions, (before, known), positions, lists)
        # Of numbers of 16 bits NumPy sorts in linear time.
        narrow = lists.astype(np.uint16) if len(centroids) < 1 << 16 else lists
        order = np.argsort(narrow, kind="stable")
        fragments += _written(rows, positions, order, uri, storage_options, mode)
        offsets.append(np.searchsorted(lists[order], np.arange(len(centroids) + 1)))
    return WrittenPart(
        tuple(fragments),
        np.array(offsets, np.int64).reshape(len(offsets), len(centroids) + 1),
        SampledNeighbours(nearest.neighbours(), known),
        error,
    )


def write_groups(
    groups: NDArray[np.int64],
    positions: NDArray[np.int64],
    rows: NDArray[np.float32],
    count: int,
    uri: str,
    storage_options: Mapping[str, str],
) -> WrittenPart:
    """Write rows that are sorted by group, in lists of which each is a group.

    Args:
        groups: (n,) the list of each row, ascending.
        positions: (n,) where the rows came from.
        rows: (n, dim): their vectors.
        count: The number of lists.
        uri: The dataset that the fragment will belong to.
        storage_options: For the store.

    Raises:
        ScratchUnusable: scratch cannot be written to.
    """
    offsets = np.searchsorted(groups, np.arange(count + 1)).reshape(1, -1)
    written = _written(rows, positions, None, uri, storage_options) if len(rows) else []
    none = SampledNeighbours(nothing(0, 1), np.empty((0, 1), np.int32))
    return WrittenPart(tuple(written), offsets[: len(written)], none)


def commit(
    parts: Sequence[WrittenPart], uri: str, dimension: int, storage_options: Mapping[str, str]
) -> PartitionedDataset:
    """Commit the written parts as one dataset.

    Raises:
        ScratchUnusable: scratch cannot be written to.
    """
    fragments = [text for part in parts for text in part.fragments]
    dataset = commit_fragments(fragments, uri, layout_schema(dimension), storage_options)
    return PartitionedDataset(
        pin_of(dataset, uri),
        tuple(fragment.fragment_id for fragment in dataset.get_fragments()),
        np.concatenate([part.offsets for part in parts]),
        storage_options,
    )


def commit_more(before: PartitionedDataset, parts: Sequence[WrittenPart]) -> PartitionedDataset:
    """Commit parts behind the fragments that a dataset has.

    Others may do so at the same time: each of them counts its own fragments alone.

    Raises:
        ScratchUnusable: scratch cannot be written to.
    """
    import lance

    made = [lance.FragmentMetadata.from_json(text) for part in parts for text in part.fragments]
    if not made:
        return before
    uri, options = before.pin.uri, store_options(before.pin.uri, before.storage_options)
    operation = lance.LanceOperation.Append(made)
    try:
        dataset = lance.LanceDataset.commit(
            uri, operation, read_version=before.pin.version, storage_options=options
        )
    except Exception as error:
        raise not_laid_out(error, before.storage_options) from error
    ids = {
        fragment.metadata.files[0].path: fragment.fragment_id
        for fragment in dataset.get_fragments()
    }
    return replace(
        before,
        pin=pin_of(dataset, uri),
        fragment_ids=(*before.fragment_ids, *(ids[item.files[0].path] for item in made)),
        offsets=np.concatenate([before.offsets, *(part.offsets for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class ReadLists:
    """Rows of consecutive lists, one list after the other: (n,) positions, (n, dim) vectors.

    `offsets` has where each list starts, and the end; `first` is the number of the first one.
    """

    first: int
    offsets: NDArray[np.int64]
    positions: NDArray[np.int64]
    rows: NDArray[np.float32]

    @property
    def spans(self) -> Iterator[tuple[int, slice]]:
        """Each list by its number, and its rows."""
        for number, (start, stop) in enumerate(pairwise(self.offsets.tolist()), self.first):
            yield number, slice(start, stop)


def read_lists(
    dataset: lance.LanceDataset,
    partitioned: PartitionedDataset,
    run: range,
    dimension: int,
    most: int,
) -> Iterator[ReadLists]:
    """Yield the rows of a run of lists, which are read fragment by fragment, some lists at a time.

    A run of one list comes in pieces of `most` rows.
    """
    if len(run) == 1:
        count = int(np.sum(partitioned.offsets[:, run.stop] - partitioned.offsets[:, run.start]))
        for start in range(0, count, most):
            stop = min(count, start + most)
            keys, rows = read_piece(dataset, partitioned, run.start, start, stop, dimension)
            yield ReadLists(run.start, np.array([0, len(keys)]), keys, rows)
        return
    parts = []
    for fragment_id, offsets in zip(partitioned.fragment_ids, partitioned.offsets, strict=True):
        mine = offsets[run.start : run.stop + 1]
        start = int(mine[0])
        for places, rows in scanned(dataset, partitioned, fragment_id, start, int(mine[-1])):
            parts.append((np.clip(mine - start, 0, len(rows)).tolist(), places, rows))
            start += len(rows)
    counts = partitioned.list_rows[run.start : run.stop]
    for some in _together(counts, _GATHERED_BYTES // (4 * max(1, dimension))):
        spans = [
            (slice(starts[number], starts[number + 1]), places, rows)
            for number in some
            for starts, places, rows in parts
            if starts[number] < starts[number + 1]
        ]
        if not spans:
            continue
        places = np.concatenate([places[span] for span, places, _ in spans])
        rows = np.concatenate([rows[span] for span, _, rows in spans])
        ends = np.concatenate([[0], np.cumsum(counts[some.start : some.stop])])
        keys, which = live_rows(partitioned, places)
        if isinstance(which, np.ndarray):
            ends = np.concatenate([[0], np.cumsum(which)])[ends]
        yield ReadLists(run.start + some.start, ends, keys, rows[which])


def _together(counts: NDArray[np.int64], most: int) -> Iterator[range]:
    """Yield ranges of lists (of `counts` rows) that have at most `most` together, or are one."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start]) - int(counts[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield range(start, stop)
        start = stop


def read_piece(
    dataset: lance.LanceDataset,
    partitioned: PartitionedDataset,
    number: int,
    first: int,
    last: int,
    dimension: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return positions and vectors of the rows `first` to before `last` of one list."""
    positions: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    rows: list[NDArray[np.float32]] = [np.empty((0, dimension), np.float32)]
    before = 0
    for fragment_id, offsets in zip(partitioned.fragment_ids, partitioned.offsets, strict=True):
        begin, end = int(offsets[number]), int(offsets[number + 1])
        start, stop = max(first - before, 0), min(last - before, end - begin)
        before += end - begin
        for places, read in scanned(dataset, partitioned, fragment_id, begin + start, begin + stop):
            positions.append(places)
            rows.append(read)
    keys, which = live_rows(partitioned, np.concatenate(positions))
    return keys, np.concatenate(rows)[which]


def live_rows(
    partitioned: PartitionedDataset, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | slice]:
    """Return the keys of the rows that are live, and which rows these are."""
    if partitioned.live is None:
        return places, slice(None)
    keys = partitioned.live.keys(places)
    is_live = keys >= 0
    return (keys, slice(None)) if is_live.all() else (keys[is_live], is_live)


def live_list_rows(
    dataset: lance.LanceDataset, partitioned: PartitionedDataset
) -> NDArray[np.int64]:
    """Return the number of live rows of each list; where rows may have gone, places are read.

    Raises:
        PartitionsLost: they cannot be read.
    """
    live, rows = partitioned.live, partitioned.list_rows
    if live is None or live.are_all:
        return rows
    rows = np.zeros_like(rows)
    options = partitioned.storage_options
    for fragment_id, offsets in zip(partitioned.fragment_ids, partitioned.offsets, strict=True):
        table = scan_rows(dataset, fragment_id, 0, int(offsets[-1]), (PLACE,), options)
        is_live = live.keys(table.column(PLACE).to_numpy()) >= 0
        rows += np.diff(np.concatenate([[0], np.cumsum(is_live)])[offsets])
    return rows


def scanned(
    dataset: lance.LanceDataset,
    partitioned: PartitionedDataset,
    fragment_id: int,
    start: int,
    stop: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield places and vectors of consecutive rows of a fragment, as they are in memory.

    Raises:
        PartitionsLost: they cannot be read.
    """
    if stop <= start:
        return
    options = partitioned.storage_options
    table = scan_rows(dataset, fragment_id, start, stop - start, (VECTOR, PLACE), options)
    for batch in table.to_batches():
        column = batch.column(VECTOR)
        # What was written is float32 without nulls.
        values = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
        yield batch.column(PLACE).to_numpy(), values


def layout_schema(dimension: int) -> pa.Schema:
    """Return the schema of a dataset with rows by list."""
    return pa.schema(
        [pa.field(VECTOR, pa.list_(pa.float32(), dimension)), pa.field(PLACE, pa.int64())]
    )


def _written(
    rows: NDArray[np.float32],
    positions: NDArray[np.int64],
    order: NDArray[np.int64] | None,
    uri: str,
    storage_options: Mapping[str, str],
    mode: Literal["create", "append"] = "create",
) -> list[str]:
    """Write one fragment with rows in some order, None for that which they are in."""
    schema = layout_schema(rows.shape[1])
    step = max(1, _WRITE_BYTES // (4 * rows.shape[1]))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), step):
            span = slice(start, start + step)
            some = span if order is None else order[span]
            values = pa.array(rows[some].reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
            yield pa.RecordBatch.from_arrays([column, pa.array(positions[some])], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    return write_fragments(reader, len(rows), uri, storage_options, mode)
