"""Lance datasets in scratch whose rows lie in bins: IVF lists, groups of keys, bins of left rows.

Tasks write fragments, each sorted by bin, the driver commits them, and tasks read ranges of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import LancestatError, ListsLost, ScratchUnusable
from lancestat.joins.search.neighbours import Floats, Ints, Neighbours, Parallel, merge, nothing
from lancestat.joins.search.work import Rows
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.files import store_options
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.redact import redact_line, secret_values
from lancestat.spark.fragment_reader import pinned_dataset

if TYPE_CHECKING:
    import lance

    BinsT = TypeVar("BinsT", bound="Bins")

_LEFT, _RIGHT, _DISTANCE = "left", "right", "distance"
_PAIRS = pa.schema([(_LEFT, pa.int64()), (_RIGHT, pa.int64()), (_DISTANCE, pa.float32())])
# Neighbours that are held at once, unless a single row has more: 12 bytes each.
MOST_HELD = 4 << 20
# Pairs of a fragment, which a task holds while it sorts them.
_FRAGMENT_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True)
class SampledLists:
    """The true neighbours of sampled queries, and which lists their positions are in."""

    nearest: Neighbours
    list_of: dict[int, int] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[SampledLists], k: int) -> SampledLists:
        """Merge the neighbours of the same queries in disjoint rows."""
        list_of = {position: n for part in parts for position, n in part.list_of.items()}
        return cls(merge([part.nearest for part in parts], k), list_of)

    def note(self, positions: Ints, lists: Ints | NDArray[np.int32]) -> None:
        """Note the lists of those rows (n,) which are neighbours now."""
        found = set(self.nearest.positions.ravel().tolist()) - {-1} - self.list_of.keys()
        if found:
            unknown = np.array(sorted(found), np.int64)
            at = np.minimum(np.searchsorted(unknown, positions), len(unknown) - 1)
            is_found = unknown[at] == positions
            noted = zip(positions[is_found].tolist(), lists[is_found].tolist(), strict=True)
            self.list_of.update(noted)

    def lists(self) -> Ints:
        """Return the lists (queries, k) of the neighbours, -1 for none."""
        positions = self.nearest.positions
        lists = [self.list_of.get(position, -1) for position in positions.ravel().tolist()]
        return np.array(lists, np.int64).reshape(positions.shape)


@dataclass(frozen=True, slots=True)
class WrittenBins:
    """Fragments of a task, not yet committed: Lance's JSON, and the rows at which bins start.

    The `offsets` are (fragments, bins + 1). Of IVF lists `sampled` are neighbours among these rows
    alone, and `error` is the sum of the rows' errors.
    """

    fragments: tuple[str, ...]
    offsets: Ints
    sampled: SampledLists | None = None
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Bins:
    """A dataset in scratch; `fragment_ids` go with the lines of `offsets`. It is pickled."""

    pin: Pin
    fragment_ids: tuple[int, ...]
    offsets: Ints
    storage_options: Mapping[str, str] = field(repr=False)

    @classmethod
    def commit(
        cls: type[BinsT],
        parts: Sequence[WrittenBins],
        uri: str,
        schema: pa.Schema,
        storage_options: Mapping[str, str],
        **more: Ints,
    ) -> BinsT:
        """Commit the written parts as one dataset; `more` are fields of the class."""
        import lance

        operation = lance.LanceOperation.Overwrite(schema, made_fragments(parts))
        dataset = committed(uri, operation, storage_options)
        ids = tuple(fragment.fragment_id for fragment in dataset.get_fragments())
        offsets = np.concatenate([part.offsets for part in parts])
        return cls(pin_of(dataset, uri), ids, offsets, storage_options, **more)

    def open(self) -> lance.LanceDataset:
        try:
            return pinned_dataset(self.pin, self.storage_options)
        except LancestatError as error:
            message = f"the lists in scratch cannot be opened: {error.message}"
            raise ListsLost(message) from None

    def read(self, number: int, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of consecutive rows of the fragment of that number."""
        dataset, fragment_id = self.open(), self.fragment_ids[number]
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise ListsLost(f"scratch at {dataset.uri} has lost fragment {fragment_id}")
        try:
            scanner = fragment.scanner(columns=list(columns), offset=start, limit=stop - start)
            table = scanner.to_table()
        except BaseException as error:
            if not is_error_or_panic(error) or isinstance(error, MemoryError):
                raise
            reason = _reason(error, self.storage_options)
            raise ListsLost(f"scratch at {dataset.uri} cannot be read: {reason}") from None
        if table.num_rows != stop - start:
            lost = f"has lost rows of fragment {fragment_id}"
            raise ListsLost(f"scratch at {dataset.uri} {lost}")
        return table


def write_fragment(
    table: pa.Table | pa.RecordBatchReader,
    rows: int,
    uri: str,
    storage_options: Mapping[str, str],
    mode: Literal["create", "append"] = "create",
) -> list[str]:
    """Write so many rows as one fragment of a dataset, without a commit; return it as JSON."""
    import lance

    try:
        fragments = lance.fragment.write_fragments(
            table,
            uri,
            mode=mode,
            max_rows_per_file=rows,
            max_bytes_per_file=2**40,
            # Later ones copy vectors row by row, which takes three times as long.
            data_storage_version="2.0",
            storage_options=store_options(uri, storage_options),
        )
    except Exception as error:
        raise _unusable(error, storage_options) from error
    return [json.dumps(fragment.to_json()) for fragment in fragments]


def made_fragments(parts: Sequence[WrittenBins]) -> list[lance.FragmentMetadata]:
    import lance

    return [lance.FragmentMetadata.from_json(text) for part in parts for text in part.fragments]


def committed(
    uri: str,
    operation: lance.LanceOperation.BaseOperation,
    storage_options: Mapping[str, str],
    read_version: int | None = None,
) -> lance.LanceDataset:
    """Commit an operation, and return the dataset after it."""
    import lance

    options = store_options(uri, storage_options)
    try:
        return lance.LanceDataset.commit(
            uri, operation, read_version=read_version, storage_options=options
        )
    except Exception as error:
        raise _unusable(error, storage_options) from error


def _unusable(error: Exception, storage_options: Mapping[str, str]) -> ScratchUnusable:
    reason = _reason(error, storage_options)
    return ScratchUnusable(
        f"the right side cannot be laid out in scratch: {reason}",
        hint="see that the scratch folder has room and may be written",
    )


def _reason(error: BaseException, storage_options: Mapping[str, str]) -> str:
    return redact_line(f"{type(error).__name__}: {error}", secret_values(storage_options))


def together(counts: Ints, most: int) -> Iterator[range]:
    """Yield ranges of bins (of `counts` rows) that have at most `most` together, or are one."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start]) - int(counts[start])
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield range(start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class Pairs(Parallel):
    """Pairs, by the positions of their rows, and their distances; each (n,)."""

    left: Ints
    right: Ints
    distances: Floats

    @classmethod
    def of(cls, left: Ints, found: Neighbours) -> Pairs:
        query, turn = np.nonzero(found.positions >= 0)
        return cls(left[query], found.positions[query, turn], found.distances[query, turn])

    @classmethod
    def together(cls, parts: Sequence[Pairs]) -> Pairs:
        """Return the pairs of all parts in the order of left rows, of one row the nearest first.

        Those of a row may be in several parts: lists of the right side are searched by themselves.
        """
        left, right, distances = (
            np.concatenate([np.empty(0, type), *(getattr(part, name) for part in parts)])
            for name, type in (("left", "i8"), ("right", "i8"), ("distances", "f4"))
        )
        pairs = cls(left, right, distances)
        if (left[:-1] > left[1:]).any():
            pairs = pairs.some(np.argsort(left, kind="stable"))
        if pairs.is_nearest_first:
            return pairs
        return pairs.some(np.lexsort((pairs.right, pairs.distances, pairs.left)))

    @property
    def is_nearest_first(self) -> bool:
        """Whether pairs in the order of left rows are in that of distances, and then positions."""
        is_same = self.left[:-1] == self.left[1:]
        before, after = self.distances[:-1], self.distances[1:]
        is_tied = is_same & (before == after)
        is_wrong = (is_same & (before > after)) | (is_tied & (self.right[:-1] > self.right[1:]))
        return not is_wrong.any()

    def __len__(self) -> int:
        return len(self.left)


def write_pairs(
    parts: Iterable[Pairs],
    edges: Ints,
    uri: str,
    storage_options: Mapping[str, str],
    fragment_pairs: int = _FRAGMENT_PAIRS,
) -> WrittenBins:
    """Write pairs, of which no more than a fragment has are held, besides those of one part.

    `edges` (bins + 1,) are the left positions at which bins start, and the end of the last.
    """
    fragments: list[str] = []
    offsets: list[Ints] = []
    held: list[Pairs] = []

    def write() -> None:
        pairs = Pairs.together(held)
        held.clear()
        if len(pairs):
            arrays = [pa.array(column) for column in (pairs.left, pairs.right, pairs.distances)]
            table = pa.Table.from_arrays(arrays, schema=_PAIRS)
            fragments.extend(write_fragment(table, len(table), uri, storage_options))
            offsets.append(np.searchsorted(pairs.left, edges))

    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= fragment_pairs:
            write()
    write()
    made = np.array(offsets, np.int64).reshape(len(offsets), len(edges))
    return WrittenBins(tuple(fragments), made)


@dataclass(frozen=True, slots=True)
class PairStore(Bins):
    """Pairs in bins of left rows; `edges` are as for `write_pairs`."""

    edges: Ints

    @classmethod
    def of(
        cls, parts: Sequence[WrittenBins], edges: Ints, uri: str, storage_options: Mapping[str, str]
    ) -> PairStore:
        """Commit what was written, which is not nothing."""
        return cls.commit(parts, uri, _PAIRS, storage_options, edges=edges)

    def of_bins(self, first: int, last: int) -> PairStore:
        """Return what the bins from `first` up to and without `last` have."""
        span = slice(first, last + 1)
        return replace(self, edges=self.edges[span], offsets=self.offsets[:, span])

    def neighbours(self, most: int = MOST_HELD) -> Iterator[tuple[Rows, Neighbours]]:
        """Yield all left rows of the bins, consecutive ones together, and their neighbours.

        The neighbours of all rows that are yielded together are as many as the widest row has. No
        more than `most` are held, unless one row has more.
        """
        for bins in together(np.diff(self.offsets.sum(axis=0)), most):
            rows = Rows(int(self.edges[bins.start]), int(self.edges[bins.stop]))
            starts, stops = self.offsets[:, bins.start], self.offsets[:, bins.stop]
            if int((stops - starts).sum()) <= most:
                yield from _split(rows, self._pairs(starts, stops), most)
                continue
            # A bin of too many pairs: they are counted, and read for some of its rows at a time.
            counts = self._counts(rows, starts, stops)
            ends = starts[:, None] + np.cumsum(counts, axis=1)
            for some in together(counts.sum(axis=0), most):
                first, last = some.start, some.stop - 1
                pairs = self._pairs(ends[:, first] - counts[:, first], ends[:, last])
                yield from _split(Rows(rows.start + first, rows.start + last + 1), pairs, most)

    def _counts(self, rows: Rows, starts: Ints, stops: Ints) -> Ints:
        """Return how many pairs each fragment has of each row, (fragments, rows)."""
        counts = np.zeros((len(starts), len(rows)), np.int64)
        for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            for begin in range(start, stop, _FRAGMENT_PAIRS):
                table = self.read(number, begin, min(stop, begin + _FRAGMENT_PAIRS), (_LEFT,))
                left = table.column(_LEFT).to_numpy() - rows.start
                counts[number] += np.bincount(left, minlength=len(rows))
        return counts

    def _pairs(self, starts: Ints, stops: Ints) -> Pairs:
        parts = []
        for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if stop > start:
                table = self.read(number, start, stop, _PAIRS.names)
                parts.append(Pairs(*(column.to_numpy() for column in table.columns)))
        return Pairs.together(parts)


def _split(rows: Rows, pairs: Pairs, most: int) -> Iterator[tuple[Rows, Neighbours]]:
    """Yield batches of rows with their neighbours, bounded by `most` with those that are none."""
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
