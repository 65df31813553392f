"""Reads row ranges of fragments, whole or filtered, in batches of bounded size."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lancestat.errors import DatasetDamaged, UnsupportedDataset
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.fingerprint import fixed_width
from lancestat.lake.open import REPLACED, open_pinned, read_failure
from lancestat.lake.snapshot import (
    Pin,
    RowRange,
    ScanPartition,
    can_be_united,
    count_rows,
    filter_options,
    is_blob,
    is_legacy,
    is_readable_name,
    pin_of,
)

METADATA_CACHE_BYTES = 32 << 20
# Pages of an index that filters are looked up in; analyses use none.
INDEX_CACHE_BYTES = 64 << 20
# The JVM counts the rows of a batch in 32 bits.
LARGEST_COUNT = 1 << 30
# Jobs over several tables take turns on a worker.
OPEN_DATASETS = 4

# At this many the fixed cost of each call is small, and a column of a batch still fits a core's
# cache.
BATCH_ROWS = 65_536


BATCH_BYTES = 16 << 20


# Of the first batch, which tells how wide rows are.
PROBE_ROWS = 256

# The probe's rows are read again where so many times as many fit a batch.
_ROWS_READ_AGAIN = 16


# Of small fragments that are read at once.
_ROWS_OF_SMALL_FRAGMENTS = 1_024

# Of every scanner: little ahead of the reader, and blobs as their bytes.
SCAN_OPTIONS = {
    "batch_readahead": 2,
    "io_buffer_size": 64 << 20,
    "blob_handling": "all_binary",
}

_Key = tuple[Pin, tuple[tuple[str, str], ...]]
_opened: dict[_Key, lance.LanceDataset] = {}


def pinned_dataset(pin: Pin, storage_options: Mapping[str, str]) -> lance.LanceDataset:
    """Open a pinned dataset, and keep it open for the worker's next items of the same table."""
    key = (pin, tuple(sorted(storage_options.items())))
    if key not in _opened:
        while len(_opened) >= OPEN_DATASETS:
            del _opened[next(iter(_opened))]
        session = lance.Session(
            index_cache_size_bytes=INDEX_CACHE_BYTES,
            metadata_cache_size_bytes=METADATA_CACHE_BYTES,
        )
        _opened[key] = open_pinned(pin, storage_options=storage_options, session=session)
    return _opened[key]


def read_range(
    dataset: lance.LanceDataset,
    rows: RowRange,
    columns: tuple[str, ...],
    storage_options: Mapping[str, str],
    *,
    filter: str | None = None,
    limit: int | None = None,
    row_bytes: int = 0,
    batch_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a range: of live rows without a filter, else of physical ones.

    Without columns batches have one row, the number of rows as an int64. `filter` is in Lance's
    SQL. Without one no more rows than `limit` are read; with one, the caller stops. `row_bytes` is
    an estimate of the bytes of a row, which bounds the first batch; `batch_rows` is how many rows
    it has where that is known. LakeError if the name of a column, the fragment or its files cannot
    be read.
    """
    _check_names(dataset, columns)
    fragment = _fragment(dataset, rows.fragment_id)
    if filter is not None:
        stop = fragment.physical_rows
        stop = stop if rows.count is None else min(stop, rows.offset + rows.count)
        filtered = FilteredRows(dataset, fragment, columns, filter, rows.offset, stop)
        batches = filtered.batches() if columns else _counted(filtered.count)
    else:
        counts = [count for count in (rows.count, limit) if count is not None]
        most = min(counts, default=None)
        if not columns:
            batches = _counted(lambda: _live(fragment, rows.offset, most))
        elif batch_rows is None:
            batches = _sized(fragment, columns, rows.offset, most, row_bytes)
        else:
            batches = _in_batches(fragment, columns, batch_rows, rows.offset, most)
    return _named(batches, dataset, f"fragment {rows.fragment_id}", storage_options)


def read_ranges(
    dataset: lance.LanceDataset,
    ranges: ScanPartition,
    columns: tuple[str, ...],
    storage_options: Mapping[str, str],
    *,
    filter: str | None = None,
    limit: int | None = None,
) -> Iterator[tuple[ScanPartition, pa.RecordBatch]]:
    """Yield the rows of ranges as `read_range` does, each batch with the ranges that it is of.

    One scan reads many small fragments, of which a scan for each would take ten times as long.
    Rows are `limit` at most; where only their number is wanted, it may be larger.
    """
    small = _SmallFragments(dataset, columns, filter) if len(ranges) > 1 else None
    at, most, left = 0, 1, limit
    while at < len(ranges) and left != 0:
        together = small.first_of(ranges[at : at + most]) if small else ranges
        if small and len(together) > 1:
            what = f"fragments {together[0].fragment_id} to {together[-1].fragment_id}"
            batches = _named(small.batches(together, left), dataset, what, storage_options)
        else:
            batches = read_range(
                dataset, together[0], columns, storage_options, filter=filter, limit=left
            )
        for batch in batches:
            if small:
                small.has_seen(batch)
            if left is not None and columns:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield together, batch
            if left == 0:
                return
        at, most = at + len(together), min(4 * most, _MOST_TOGETHER)


def read_fragments(
    dataset: lance.LanceDataset,
    ids: Sequence[int],
    columns: Sequence[str],
    storage_options: Mapping[str, str],
) -> tuple[pa.RecordBatch, list[int]]:
    """Read the live rows of some small fragments at once, which fit memory.

    Returns:
        The rows in the order of `ids`, their dictionaries as `united` has them, and how many each
        fragment has.

    Raises:
        LakeError: the name of a column, or a fragment cannot be read.
    """
    _check_names(dataset, columns)
    scanner = dataset.scanner(
        fragments=[_fragment(dataset, id) for id in ids],
        columns=list(columns),
        batch_size=_ROWS_OF_SMALL_FRAGMENTS,
        with_row_address=True,
        **SCAN_OPTIONS,
    )
    what = f"fragments {ids[0]} to {ids[-1]}"
    batches = list(_named(scanner.to_batches(), dataset, what, storage_options))
    rows = united(pa.Table.from_batches(batches, scanner.projected_schema)).combine_chunks()
    owners = rows.column(_ADDRESS).to_numpy() >> np.uint64(ROW_BITS)
    # Earlier releases of Lance have left fragments out of the order of their ids.
    order = np.argsort(ids)
    places = order[np.searchsorted(np.asarray(ids, np.uint64)[order], owners)]
    assert np.all(places[1:] >= places[:-1]), "fragments are read in order"
    lengths = np.bincount(places, minlength=len(ids)).tolist()
    whole = rows.select(list(columns)).to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], rows.schema), lengths


def united(table: pa.Table) -> pa.Table:
    """Return a table whose chunks can be combined, each fragment having dictionaries of its own.

    Arrow unites none that hold nulls, as in files of format 2.0, nor more values than the indices
    can number, such as the 8 bits of a categorical of pandas: here these have 32.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            type = pa.dictionary(pa.int32(), field.type.value_type)
            chunks = [_renumbered(chunk) for chunk in table.column(place).chunks]
            table = table.set_column(place, field.name, pa.chunked_array(chunks, type))
    return table


def _renumbered(array: pa.DictionaryArray) -> pa.DictionaryArray:
    if not array.dictionary.null_count:
        return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)
    is_value = array.dictionary.is_valid()
    places = pc.cumulative_sum(is_value.cast(pa.int32()))
    places = pc.subtract(places, pa.scalar(1, pa.int32()))
    indices = pc.if_else(is_value, places, None).take(array.indices)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.drop_null())


def decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch, or a table, with the values of dictionaries in place of these."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            column = rows.column(place).cast(field.type.value_type)
            rows = rows.set_column(place, decoded_field(field), column)
    return rows


def decoded_field(field: pa.Field) -> pa.Field:
    """Return a column as `decoded` has it, where blobs were read as their bytes."""
    if is_blob(field):
        # As others are: as a blob it would be written to a file of its own.
        return pa.field(field.name, pa.large_binary(), field.nullable)
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field


def _check_names(dataset: lance.LanceDataset, columns: Sequence[str]) -> None:
    unreadable = [name for name in columns if not is_readable_name(name)]
    if unreadable:
        what = f"column {unreadable[0]!r} of {dataset.uri} has a name that Lance cannot read"
        hint = "exclude it under columns, or rename it"
        raise UnsupportedDataset(what, hint=hint)


def _fragment(dataset: lance.LanceDataset, id: int) -> lance.LanceFragment:
    fragment = dataset.get_fragment(id)
    if fragment is None:
        raise DatasetDamaged(f"{dataset.uri} has no fragment {id} at version {dataset.version}")
    return fragment


def _live(fragment: lance.LanceFragment, offset: int, most: int | None) -> int:
    rows = max(0, count_rows(fragment) - offset)
    return rows if most is None else min(rows, most)


def _counted(count: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    left = count()
    while left > 0:
        rows = min(left, LARGEST_COUNT)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], ["rows"])
        left -= rows


def _sized(
    fragment: lance.LanceFragment,
    columns: tuple[str, ...],
    position: int,
    left: int | None,
    row_bytes: int,
) -> Iterator[pa.RecordBatch]:
    # Lance's own bound on the bytes of a batch shrinks batches to a few rows, and sizes on disk say
    # little about sizes in memory. So a short probe shows how many rows to ask for, and where
    # rows turn out wider the scan goes on from there with fewer.
    probe = _probe_rows(row_bytes)
    requested = probe if left is None else min(probe, left)
    probed = list(_scanner(fragment, columns, probe, position, requested).to_batches())
    got = sum(batch.num_rows for batch in probed)
    rows = min(map(fitting_rows, probed), default=probe)
    # Who gets the batches does as much for a short one as for a full one: narrow rows are read
    # again with those that follow.
    if got < requested or got == left or rows < _ROWS_READ_AGAIN * probe:
        yield from probed
        position, left = position + got, None if left is None else left - got
    if got == requested:
        yield from _in_batches(fragment, columns, rows, position, left)


def _probe_rows(row_bytes: int) -> int:
    return max(1, min(PROBE_ROWS, BATCH_BYTES // max(1, row_bytes)))


def column_widths(
    dataset: lance.LanceDataset,
    rows: RowRange,
    columns: tuple[str, ...],
    storage_options: Mapping[str, str],
    row_bytes: int,
) -> dict[str, int]:
    """Return how many bytes a value of each column takes in the first rows of a range.

    `row_bytes` is as for `read_range`, which has the same errors.
    """
    probe, widths = _probe_rows(row_bytes), dict.fromkeys(columns, 0)
    for batch in read_range(dataset, rows, columns, storage_options, limit=probe, batch_rows=probe):
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            widths[name] = max(widths[name], -(-values.nbytes // max(1, batch.num_rows)))
    return widths


def _in_batches(
    fragment: lance.LanceFragment,
    columns: tuple[str, ...],
    rows: int,
    position: int,
    left: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows, so many at once, and fewer from where they are wider than that allows."""
    while left is None or left > 0:
        got = 0
        for batch in _scanner(fragment, columns, rows, position, left).to_batches():
            yield batch
            got += batch.num_rows
            rows = fitting_rows(batch)
            if rows * 4 < batch.num_rows:
                # What follows is like the last rows.
                rows = min(rows, fitting_rows(batch.slice(batch.num_rows // 2)))
                break
        else:
            return
        position, left = position + got, None if left is None else left - got


def _scanner(
    fragment: lance.LanceFragment,
    columns: tuple[str, ...],
    rows: int,
    offset: int,
    limit: int | None,
) -> lance.LanceScanner:
    return fragment.scanner(
        columns=list(columns),
        batch_size=rows,
        offset=offset or None,
        limit=limit,
        **SCAN_OPTIONS,
    )


def _named(
    batches: Iterator[pa.RecordBatch],
    dataset: lance.LanceDataset,
    what: str,
    storage_options: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        failure = read_failure(error, pin_of(dataset), storage_options)
        if isinstance(failure, REPLACED):
            raise failure from None
        subject = f"{what} at version {dataset.version}"
        raise type(failure)(f"{subject}: {failure.message}", hint=failure.hint) from None


FIRST_WINDOW = 16_384
LARGEST_WINDOW = 262_144

# Lance evaluates the filter first and then looks the other columns of matching rows up. Where more
# than this share matches, reading everything is up to four times faster. Wide rows are looked up.
DENSE = 0.02
WIDE_ROW_BYTES = 2_048

# Where an index or an older format decides how matches are read; widths are estimates there.
LOOKED_UP_ROWS = 4_096

_ADDRESS = "_rowaddr"
# An address is the id of a fragment, and in its last bits the offset of the row in it.
ROW_BITS = 32
ROW_OF_ADDRESS = (1 << ROW_BITS) - 1


def physical_offsets(fragment: lance.LanceFragment, filter: str | None) -> NDArray[np.int64]:
    """Return where the rows of a fragment that pass a filter lie in it, ascending."""
    options = filter_options(fragment)
    table = fragment.scanner(columns=[], filter=filter, with_row_address=True, **options).to_table()
    addresses: NDArray[np.int64] = table.column(_ADDRESS).to_numpy().astype(np.int64)
    # A scan by way of a scalar index may come in the index's order.
    return np.sort(addresses & ROW_OF_ADDRESS)


# Of fragments that are read together, and how many are: to begin a scan of another takes as long as
# reading one or two megabytes.
SMALL_ROWS = 8_192
SMALL_BYTES = 1 << 20
_MOST_TOGETHER = 1_024


def count_matches(
    dataset: lance.LanceDataset, ids: Sequence[int], filter: str
) -> Iterator[tuple[int, int]]:
    """Yield the ids of fragments, in their order, with how many rows pass a filter in Lance's SQL.

    One scan counts those of many small fragments.
    """
    held: list[lance.LanceFragment] = []
    rows = 0
    for fragment in (_fragment(dataset, id) for id in ids):
        rows += fragment.physical_rows
        if held and (rows > LARGEST_WINDOW or len(held) == _MOST_TOGETHER):
            yield from _count_together(dataset, held, filter)
            held, rows = [], fragment.physical_rows
        held.append(fragment)
    yield from _count_together(dataset, held, filter)


def _count_together(
    dataset: lance.LanceDataset, fragments: list[lance.LanceFragment], filter: str
) -> Iterator[tuple[int, int]]:
    if len(fragments) == 1:
        yield fragments[0].fragment_id, count_rows(fragments[0], filter)
    elif fragments:
        scanner = dataset.scanner(
            fragments=fragments,
            columns=[],
            filter=filter,
            with_row_address=True,
            **filter_options(fragments[0]),
        )
        owners = scanner.to_table().column(_ADDRESS).to_numpy() >> np.uint64(ROW_BITS)
        found, counts = np.unique(owners, return_counts=True)
        known = dict(zip(found.tolist(), counts.tolist(), strict=True))
        for fragment in fragments:
            yield fragment.fragment_id, known.get(fragment.fragment_id, 0)


class _SmallFragments:
    """Reads small fragments by one scan."""

    def __init__(
        self, dataset: lance.LanceDataset, columns: tuple[str, ...], filter: str | None
    ) -> None:
        self._dataset, self._columns, self._filter = dataset, columns, filter
        fields = {field.name: field for field in dataset.schema}
        read = [fields[name] for name in columns if name in fields]
        widths = [fixed_width(field.type) for field in read]
        # Lance's own columns, such as the offset of a row, are in no schema.
        is_known = len(read) == len(columns) and can_be_united(read)
        self._can_be_read = is_known if columns else filter is not None
        self._width = sum(width or 0 for width in widths)
        self._is_variable = None in widths
        self._width_on_disk = sum(fixed_width(field.type) or 0 for field in fields.values())
        self._has_dictionaries = any(pa.types.is_dictionary(field.type) for field in read)

    def first_of(self, ranges: ScanPartition) -> ScanPartition:
        """Return the first ranges that are read together; one where that is not small."""
        if not self._can_be_read or len(ranges) == 1:
            return ranges[:1]
        rows = 0
        for place, range in enumerate(ranges):
            fragment = _fragment(self._dataset, range.fragment_id)
            rows += fragment.physical_rows
            if rows > LARGEST_WINDOW or not self._is_small(fragment, range):
                return ranges[: max(1, place)]
        return ranges

    def batches(self, together: ScanPartition, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of fragments, or their number."""
        fragments = [_fragment(self._dataset, range.fragment_id) for range in together]
        scanner = self._dataset.scanner(
            fragments=fragments,
            columns=list(self._columns),
            filter=self._filter,
            limit=limit if self._filter is None else None,
            batch_size=SMALL_ROWS,
            # Those that are wide, unlike the ones before, and take little on disk.
            batch_size_bytes=BATCH_BYTES,
            with_row_id=not self._columns,
            late_materialization=False,
            # Matches of an index come in batches of several fragments, whose dictionaries differ,
            # and in files of the first format not in order.
            use_scalar_index=not (self._has_dictionaries or is_legacy(fragments[0])),
            **SCAN_OPTIONS,
        )
        if not self._columns:
            yield from _counted(scanner.count_rows)
        else:
            batches = scanner.to_batches()
            yield from _joined(map(decoded, batches) if self._has_dictionaries else batches)

    def has_seen(self, batch: pa.RecordBatch) -> None:
        """Take note of how wide rows are."""
        if self._columns and batch.num_rows:
            self._width = batch.nbytes // batch.num_rows

    def _is_small(self, fragment: lance.LanceFragment, range: RowRange) -> bool:
        """Whether a range is a small fragment as a whole."""
        rows = fragment.physical_rows
        if rows > SMALL_ROWS or range.offset:
            return False
        metadata, size = fragment.metadata, float(rows * self._width)
        all_rows = rows if self._filter else rows - metadata.num_deletions
        if range.count is not None and range.count < all_rows:
            return False
        if self._is_variable:
            # Other columns take about what they have in memory: vectors are hardly compressed.
            on_disk = sum(file.file_size_bytes or 0 for file in metadata.files)
            size = max(size, on_disk - rows * self._width_on_disk)
        return size <= SMALL_BYTES


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """The live rows that pass a filter, of the physical rows `start` to before `stop`."""

    dataset: lance.LanceDataset
    fragment: lance.LanceFragment
    columns: tuple[str, ...]
    filter: str
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        """Whether the rows are all of the fragment."""
        return self.start == 0 and self.stop >= self.fragment.physical_rows

    def count(self) -> int:
        """Return the number of rows that pass the filter."""
        if self.is_whole:
            return count_rows(self.fragment, self.filter)
        if self._can_be_masked():
            mask = row_mask(self.fragment.fragment_id, self.start, self.stop)
            return int(self._scanner(BATCH_ROWS, mask=mask, with_row_id=True).count_rows())
        return sum(batch.num_rows for batch in self._addressed(BATCH_ROWS))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns in batches that are neither small nor large."""
        width = self._width()
        if self._can_be_masked() and not self._has_index():
            yield from _joined(self._windows(is_wide=width > WIDE_ROW_BYTES))
        else:
            # Masks and indices exclude each other.
            rows = max(1, min(LOOKED_UP_ROWS, BATCH_BYTES // max(1, int(width))))
            yield from _joined(self._scanned(rows) if self.is_whole else self._addressed(rows))

    def _windows(self, *, is_wide: bool) -> Iterator[pa.RecordBatch]:
        # Matches come in clusters: each window is read in the way that suited the one before. The
        # first also shows how many rows fit a batch, and much wider rows cut a window short.
        start, size, rows, is_dense = self.start, FIRST_WINDOW, PROBE_ROWS, not is_wide
        while start < self.stop:
            stop = min(start + size, self.stop)
            matches, fitting = 0, BATCH_ROWS
            for batch in self._window(start, stop, rows, is_dense=is_dense):
                last = batch.column(_ADDRESS)[-1].as_py() & ROW_OF_ADDRESS
                yield batch.select(list(self.columns))
                matches, fitting = matches + batch.num_rows, min(fitting, fitting_rows(batch))
                if fitting * 4 < batch.num_rows:
                    stop = last + 1
                    break
            is_dense = not is_wide and matches > DENSE * (stop - start)
            rows = fitting if matches else rows
            start, size = stop, min(4 * size, LARGEST_WINDOW)

    def _window(
        self, start: int, stop: int, rows: int, *, is_dense: bool
    ) -> Iterator[pa.RecordBatch]:
        scanner = self._scanner(
            rows,
            mask=row_mask(self.fragment.fragment_id, start, stop),
            with_row_address=True,
            late_materialization=False if is_dense else None,
        )
        return (batch for batch in scanner.to_batches() if batch.num_rows)

    def _scanned(self, rows: int) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self._scanner(rows).to_batches()
        return batches

    def _addressed(self, rows: int) -> Iterator[pa.RecordBatch]:
        first = self.fragment.fragment_id << 32
        for batch in self._scanner(rows, with_row_address=True).to_batches():
            address = batch.column(_ADDRESS)
            inside = pc.and_(
                pc.greater_equal(address, pa.scalar(first + self.start, pa.uint64())),
                pc.less(address, pa.scalar(first + self.stop, pa.uint64())),
            )
            yield batch.filter(inside).select(list(self.columns))

    def _scanner(
        self, rows: int, *, mask: bytes | None = None, **options: object
    ) -> lance.LanceScanner:
        if mask is not None:
            options["row_addr_allowlist"] = mask
        return self.dataset.scanner(
            fragments=[self.fragment],
            columns=list(self.columns),
            filter=self.filter,
            **{**filter_options(self.fragment), "batch_size": rows},
            **SCAN_OPTIONS,
            **options,
        )

    def _has_index(self) -> bool:
        return "ScalarIndexQuery" in self._scanner(1).explain_plan()

    def _can_be_masked(self) -> bool:
        # Masks are of row ids, which are addresses unless they are stable.
        return not (self.dataset.has_stable_row_ids or is_legacy(self.fragment))

    def _width(self) -> float:
        schema = self.dataset.schema
        # Lance's own columns, such as the offset of a row, are in no schema.
        types = [schema.field(name).type for name in self.columns if name in schema.names]
        widths = list(map(fixed_width, types))
        width = sum(value_width for value_width in widths if value_width is not None)
        if None in widths:
            files = self.fragment.metadata.files
            bytes_on_disk = sum(file.file_size_bytes or 0 for file in files)
            width += bytes_on_disk / max(1, self.fragment.physical_rows)
        return width


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES:
            yield from _one(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    yield from _one(held)


def _one(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


# RoaringFormatSpec: bitmaps of runs, by the upper 16 bits; offsets follow from four of them on.
_RUN_COOKIE = 12_347
_OFFSETS_FROM = 4
_BLOCK = 1 << 16


def row_mask(fragment_id: int, start: int, stop: int) -> bytes:
    """Return the physical rows `start` to before `stop` of a fragment as `row_addr_allowlist`.

    It is what `lance.dataset.serialize_row_addrs` makes of their addresses, in runs: a count of
    fragments, and for each its id, the length of its bitmap and the bitmap, all little-endian
    (https://github.com/RoaringBitmap/RoaringFormatSpec).
    """
    bitmap = _runs(start, stop)
    return struct.pack("<III", 1, fragment_id, len(bitmap)) + bitmap


def _runs(start: int, stop: int) -> bytes:
    blocks = range(start // _BLOCK, -(-stop // _BLOCK))
    spans = [
        (max(start - block * _BLOCK, 0), min(stop - block * _BLOCK, _BLOCK) - 1) for block in blocks
    ]
    head = struct.pack("<I", _RUN_COOKIE | (len(blocks) - 1) << 16)
    head += ((1 << len(blocks)) - 1).to_bytes(-(-len(blocks) // 8), "little")
    for block, (first, last) in zip(blocks, spans, strict=True):
        head += struct.pack("<HH", block, last - first)
    containers = [struct.pack("<HHH", 1, first, last - first) for first, last in spans]
    if len(blocks) >= _OFFSETS_FROM:
        body = len(head) + 4 * len(blocks)
        for index, container in enumerate(containers):
            head += struct.pack("<I", body + index * len(container))
    return head + b"".join(containers)


def fitting_rows(batch: pa.RecordBatch) -> int:
    """Return how many rows like those of `batch` fill a batch."""
    width = max(1, batch.nbytes // max(1, batch.num_rows))
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // width)))
