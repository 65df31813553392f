"""IVF lists in scratch: right rows are written list by list, measured and searched by list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.joins.search.centroids import Centroids
from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Floats, Ints, Mask, Neighbours, merge, share_found
from lancestat.joins.search.scratch_tables import (
    Bins,
    SampledLists,
    WrittenBins,
    committed,
    made_fragments,
    together,
    write_fragment,
)
from lancestat.joins.search.search import BLOCK_BYTES, UNLIMITED, ExactSearch, RowList
from lancestat.lake.snapshot import pin_of

VECTOR = "vector"
PLACE = "place"
OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1
# Bytes of vectors that are put in order and written in one batch.
_WRITE_BYTES = 8 << 20
# Bytes of vectors of several lists that are put together: more would be in memory twice for longer.
_GATHERED_BYTES = 4 << 20
# To read so many bytes of vectors that no query needs takes less time than to begin a new read.
_SKIPPED_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Tells which rows of a kept index are rows of the side that is searched, and which these are.

    A *place*, which an index holds of each row, is `slot << 32 | offset`: a slot, and the row's
    offset among the physical rows of the fragment. A *key* is the same with the number of the
    fragment in the side for the slot, so that the order of keys is row order. `fragments` are those
    of a `Coverage`, `deleted` the ascending keys of deleted rows.
    """

    fragments: Ints
    deleted: Ints

    @classmethod
    def of(cls, fragments: Sequence[int], deleted: Mapping[int, NDArray[np.uint32]]) -> LiveRows:
        """Return the live rows of fragments, by the ascending offsets of deleted ones by number.

        Deleted rows of fragments that are in no slot are left out.
        """
        numbers = sorted(deleted.keys() & set(fragments))
        keys = [number << OFFSET_BITS | deleted[number].astype(np.int64) for number in numbers]
        return cls(np.array(fragments, np.int64), np.concatenate([np.empty(0, np.int64), *keys]))

    def keys(self, places: Ints) -> Ints:
        """Return the keys of places, -1 for rows that are not on the side any more."""
        numbers = self.fragments[places >> OFFSET_BITS]
        keys = np.where(numbers < 0, -1, numbers << OFFSET_BITS | places & OFFSET_MASK)
        keys[is_among(keys, self.deleted)] = -1
        return keys


def is_among(values: Ints, ascending: Ints | NDArray[np.uint32]) -> Mask:
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: Mask = ascending[at] == values
    return found


def imbalance(list_rows: Ints) -> float:
    """Return how unequal lists are: 1 where all are equally long."""
    total = float(list_rows.sum())
    if not total:
        return 1.0
    return len(list_rows) * float(np.square(list_rows.astype(np.float64)).sum()) / total**2


@dataclass(frozen=True, slots=True)
class IvfLists(Bins):
    """Right rows by list: vectors, and their positions, or with `live` their places."""

    live: LiveRows | None = None

    @property
    def list_rows(self) -> Ints:
        rows: Ints = np.diff(self.offsets, axis=1).sum(axis=0)
        return rows

    def live_list_rows(self) -> Ints:
        """Return the live rows of each list; where rows may have gone, places are read."""
        live = self.live
        if live is None or not (len(live.deleted) or (live.fragments < 0).any()):
            return self.list_rows
        rows = np.zeros(self.offsets.shape[1] - 1, np.int64)
        for number, offsets in enumerate(self.offsets):
            places = self.read(number, 0, int(offsets[-1]), (PLACE,)).column(PLACE)
            is_live = live.keys(places.to_numpy()) >= 0
            rows += np.diff(np.concatenate([[0], np.cumsum(is_live)])[offsets])
        return rows

    def keyed(self, places: Ints) -> tuple[Ints, Mask | slice]:
        """Return the keys of the rows that are live, and which rows these are."""
        if self.live is None:
            return places, slice(None)
        keys = self.live.keys(places)
        is_live = keys >= 0
        return (keys, slice(None)) if is_live.all() else (keys[is_live], is_live)


def lists_schema(dimension: int) -> pa.Schema:
    return pa.schema([(VECTOR, pa.list_(pa.float32(), dimension)), (PLACE, pa.int64())])


def write_lists(
    blocks: Iterable[tuple[Ints, Floats]],
    centroids: Centroids,
    sample: Floats,
    k: int,
    uri: str,
    storage_options: Mapping[str, str],
    *,
    appends: bool = False,
) -> WrittenBins:
    """Write rows by list, and find the k neighbours of sampled queries (n, dim) on the way.

    Each of the blocks (positions, vectors) becomes a fragment whose rows are sorted by list, so
    that blocks are best as large as memory allows; a block and what Lance buffers are held
    together. With `appends` the dataset is there already.
    """
    nearest = ExactSearch(sample, k, centroids.metric)
    sampled = SampledLists(nearest.neighbours())
    fragments: list[str] = []
    offsets: list[Ints] = []
    error = 0.0
    for positions, rows in blocks:
        if not len(rows):
            continue
        lists, errors = centroids.assign_with_errors(rows)
        error += float(errors.sum())
        # NumPy sorts numbers of 16 bits in linear time.
        narrow = lists.astype(np.uint16) if len(centroids) < 1 << 16 else lists
        order = np.argsort(narrow, kind="stable")
        nearest.add(rows, positions)
        sampled.note(positions, lists)
        mode: Literal["create", "append"] = "append" if appends else "create"
        fragments += _written(rows, positions, order, uri, storage_options, mode)
        offsets.append(np.searchsorted(lists[order], np.arange(len(centroids) + 1)))
    made = np.array(offsets, np.int64).reshape(len(offsets), len(centroids) + 1)
    return WrittenBins(tuple(fragments), made, sampled, error)


def write_groups(
    groups: Ints,
    positions: Ints,
    rows: Floats,
    count: int,
    uri: str,
    storage_options: Mapping[str, str],
) -> WrittenBins:
    """Write rows (n, dim) that are sorted by group (n,), in `count` lists, each of them a group."""
    offsets = np.searchsorted(groups, np.arange(count + 1)).reshape(1, -1)
    written = _written(rows, positions, None, uri, storage_options) if len(rows) else []
    return WrittenBins(tuple(written), offsets[: len(written)])


def _written(
    rows: Floats,
    positions: Ints,
    order: Ints | None,
    uri: str,
    storage_options: Mapping[str, str],
    mode: Literal["create", "append"] = "create",
) -> list[str]:
    """Write one fragment with rows in some order, None for that which they are in."""
    schema = lists_schema(rows.shape[1])
    step = max(1, _WRITE_BYTES // (4 * rows.shape[1]))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), step):
            span = slice(start, start + step)
            some = span if order is None else order[span]
            values = pa.array(rows[some].reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
            yield pa.RecordBatch.from_arrays([column, pa.array(positions[some])], schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    return write_fragment(reader, len(rows), uri, storage_options, mode)


def commit(
    parts: Sequence[WrittenBins], uri: str, dimension: int, storage_options: Mapping[str, str]
) -> IvfLists:
    """Commit the written parts as one dataset."""
    return IvfLists.commit(parts, uri, lists_schema(dimension), storage_options)


def commit_more(before: IvfLists, parts: Sequence[WrittenBins]) -> IvfLists:
    """Commit parts after the fragments that a dataset has.

    Others may do so at the same time: each of them counts its own fragments alone.
    """
    import lance

    made, pin = made_fragments(parts), before.pin
    if not made:
        return before
    operation = lance.LanceOperation.Append(made)
    dataset = committed(pin.uri, operation, before.storage_options, pin.version)
    ids = {
        fragment.metadata.files[0].path: fragment.fragment_id
        for fragment in dataset.get_fragments()
    }
    return replace(
        before,
        pin=pin_of(dataset, pin.uri),
        fragment_ids=(*before.fragment_ids, *(ids[item.files[0].path] for item in made)),
        offsets=np.concatenate([before.offsets, *(part.offsets for part in parts)]),
    )


@dataclass(frozen=True, slots=True)
class ReadLists:
    """Rows of consecutive lists, one list after the other: (n,) positions, (n, dim) vectors.

    `offsets` has where each list starts, and the end; `first` is the number of the first one.
    """

    first: int
    offsets: Ints
    positions: Ints
    rows: Floats

    @property
    def spans(self) -> Iterator[tuple[int, slice]]:
        """Each list by its number, and its rows."""
        for number, (start, stop) in enumerate(pairwise(self.offsets.tolist()), self.first):
            yield number, slice(start, stop)


def read_lists(lists: IvfLists, run: range, dimension: int, most: int) -> Iterator[ReadLists]:
    """Yield the rows of a run of lists, which are read fragment by fragment, some lists at a time.

    A run of one list comes in pieces of `most` rows.
    """
    if len(run) == 1:
        count = int(lists.list_rows[run.start])
        for start in range(0, count, most):
            stop = min(count, start + most)
            keys, rows = read_piece(lists, run.start, start, stop, dimension)
            yield ReadLists(run.start, np.array([0, len(keys)]), keys, rows)
        return
    parts = []
    for number, offsets in enumerate(lists.offsets):
        mine = offsets[run.start : run.stop + 1]
        start = int(mine[0])
        for places, rows in scanned(lists, number, start, int(mine[-1])):
            parts.append((np.clip(mine - start, 0, len(rows)).tolist(), places, rows))
            start += len(rows)
    counts = lists.list_rows[run.start : run.stop]
    for some in together(counts, _GATHERED_BYTES // (4 * max(1, dimension))):
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
        keys, which = lists.keyed(places)
        if isinstance(which, np.ndarray):
            ends = np.concatenate([[0], np.cumsum(which)])[ends]
        yield ReadLists(run.start + some.start, ends, keys, rows[which])


def read_piece(
    lists: IvfLists, number: int, first: int, last: int, dimension: int
) -> tuple[Ints, Floats]:
    """Return positions and vectors of the rows `first` to before `last` of one list."""
    positions: list[Ints] = [np.empty(0, np.int64)]
    rows: list[Floats] = [np.empty((0, dimension), np.float32)]
    before = 0
    for fragment, offsets in enumerate(lists.offsets):
        begin, end = int(offsets[number]), int(offsets[number + 1])
        start, stop = max(first - before, 0), min(last - before, end - begin)
        before += end - begin
        for places, read in scanned(lists, fragment, begin + start, begin + stop):
            positions.append(places)
            rows.append(read)
    keys, which = lists.keyed(np.concatenate(positions))
    return keys, np.concatenate(rows)[which]


def scanned(lists: IvfLists, number: int, start: int, stop: int) -> Iterator[tuple[Ints, Floats]]:
    """Yield places and vectors of consecutive rows of a fragment, as they are in memory."""
    if stop <= start:
        return
    for batch in lists.read(number, start, stop, (VECTOR, PLACE)).to_batches():
        column = batch.column(VECTOR)
        # What was written is float32 without nulls.
        values = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
        yield batch.column(PLACE).to_numpy(), values


def sample_lists(
    lists: IvfLists,
    among: range,
    queries: Floats,
    k: int,
    metric: Metric,
    like: Floats | None = None,
) -> SampledLists:
    """Find the k true neighbours of queries in some lists, and which of these they are in.

    `like` are rows like all of the right side, for the accuracy of GEMM.
    """
    nearest = ExactSearch(queries, k, metric, like=like)
    sampled = SampledLists(nearest.neighbours())
    most = max(1, BLOCK_BYTES // (4 * max(1, queries.shape[1])))
    for run in _runs(among, lists.list_rows, most, 0):
        for read in read_lists(lists, run, queries.shape[1], most):
            nearest.add(read.rows, read.positions)
            counts = np.diff(read.offsets)
            sampled.note(read.positions, np.repeat(read.first + np.arange(len(counts)), counts))
    return sampled


@dataclass(frozen=True, slots=True)
class SampledResult:
    """The neighbours of sampled queries in the lists that they visit, and in all lists."""

    found: Neighbours
    true: Neighbours

    def merged(self, other: SampledResult, k: int) -> SampledResult:
        """Merge the neighbours of the same queries in other lists."""
        return SampledResult(merge([self.found, other.found], k), merge([self.true, other.true], k))

    def recall(self) -> float | None:
        """Return the share of true neighbours that were found; None where there are none."""
        return share_found(self.true.positions, self.found.positions)


def search_lists(
    lists: IvfLists,
    queries: Floats,
    visits: NDArray[np.int32],
    among: range,
    k: int,
    metric: Metric,
    *,
    limit: np.float32 = UNLIMITED,
    after: Ints | None = None,
    like: Floats | None = None,
    sample: tuple[Floats, NDArray[np.int32]] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[Neighbours, int, SampledResult | None]:
    """Find the nearest rows of each query (n, dim) in the lists that it visits.

    Each list of those `among` which this task searches is read once, and without a sample only if
    some query visits it.

    `visits` (n, most) are as `Centroids.visited_lists` gives them; `limit`, `after` and `like` as
    for `ExactSearch`. `sample` are queries that measure the recall, with their visits: they are
    compared with all lists as well. `block_bytes` of vectors are read at a time; a single list may
    be longer.

    Returns the neighbours, the number of pairs that were compared without the sample's, and what
    was found for the sample.
    """
    assert sample is None or after is None
    count = visited = len(queries)
    visitors = _visitors(visits, among)
    if sample is not None:
        queries, visited = np.concatenate([queries, sample[0], sample[0]]), count + len(sample[0])
        none, mine = np.empty(0, np.int64), _visitors(sample[1], among)
        visitors = {
            number: np.concatenate(
                [
                    visitors.get(number, none),
                    count + mine.get(number, none),
                    np.arange(visited, len(queries)),
                ]
            )
            for number in among
        }
    nearest = ExactSearch(
        queries, k, metric, limit=limit, after=after, block_bytes=block_bytes, like=like
    )
    pairs, rows, row_bytes = 0, lists.list_rows, 4 * max(1, queries.shape[1])
    most = max(1, block_bytes // row_bytes)
    numbers = [number for number in visitors if rows[number]]
    for run in _runs(numbers, rows, most, _SKIPPED_BYTES // row_bytes):
        for read in read_lists(lists, run, queries.shape[1], most):
            met = [RowList(span, visitors[n]) for n, span in read.spans if n in visitors]
            nearest.add_lists(read.rows, read.positions, met)
            for item in met:
                pairs += item.count * int(np.searchsorted(item.queries, count))
                if after is not None:
                    positions = read.positions[item.rows]
                    pairs -= int(np.searchsorted(positions, after[item.queries]).sum())
    found, sampled = nearest.neighbours(), None
    if sample is not None:
        in_visited = found.some(slice(count, visited))
        sampled = SampledResult(in_visited, found.some(slice(visited, None)))
    return found.some(slice(count)), pairs, sampled


def _visitors(visits: NDArray[np.int32], lists: range) -> dict[int, Ints]:
    """Return the queries that visit each of the lists, in the order of lists."""
    query, turn = np.nonzero((visits >= lists.start) & (visits < lists.stop))
    chosen = visits[query, turn]
    order = np.argsort(chosen, kind="stable")
    numbers, starts = np.unique(chosen[order], return_index=True)
    groups = np.split(query[order], starts[1:]) if len(numbers) else []
    return {int(number): group for number, group in zip(numbers, groups, strict=True)}


def _runs(numbers: Sequence[int], rows: Ints, most: int, between: int) -> Iterator[range]:
    """Yield runs of lists that are together not longer than `most`, unless one list is.

    At most `between` rows of lists that are not visited are read from one that is to the next.
    """
    ends = np.cumsum(rows)
    start = stop = -1
    for number in numbers:
        if start >= 0:
            unvisited = int(ends[number] - rows[number] - ends[stop - 1])
            if unvisited > between or int(ends[number] - ends[start] + rows[start]) > most:
                yield range(start, stop)
                start = -1
        start, stop = number if start < 0 else start, number + 1
    if start >= 0:
        yield range(start, stop)
