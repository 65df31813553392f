"""Reads row ranges of fragments in batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import lance
import pyarrow as pa

from lancestat.errors import DatasetDamaged, UnsupportedDataset
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.open import REPLACED, open_pinned, read_failure
from lancestat.lake.row_counts import count_rows
from lancestat.lake.row_ranges import RowRange
from lancestat.lake.snapshot import Pin, is_readable_name, pin_of
from lancestat.spark.arrow_types import BATCH_BYTES, PROBE_ROWS, SCAN_OPTIONS, fitting_rows
from lancestat.spark.filtered_rows import FilteredRows

METADATA_CACHE_BYTES = 32 << 20
# Pages of an index that filters are looked up in; analyses use none.
INDEX_CACHE_BYTES = 64 << 20
# The JVM counts the rows of a batch in 32 bits.
LARGEST_COUNT = 1 << 30
# Jobs over several tables take turns on a worker.
OPEN_DATASETS = 4

_Key = tuple[Pin, tuple[tuple[str, str], ...]]
_opened: dict[_Key, lance.LanceDataset] = {}


def pinned_dataset(pin: Pin, storage_options: Mapping[str, str]) -> lance.LanceDataset:
    """Open a pinned dataset, and keep it open for the worker's next items of the same table.

    Raises:
        LakeError: as `lake.open.open_pinned`.
    """
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
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a range.

    Args:
        dataset: The table at the version to read.
        rows: Of live rows without a filter, else of physical ones.
        columns: Names; for none of them, batches have one row, the number of rows as an int64.
        storage_options: The secrets in them are kept out of messages.
        filter: In Lance's SQL.
        limit: Without a filter, read no more rows than this; with one, the caller stops.
        row_bytes: An estimate of the bytes of a row, which makes the first batch small enough.

    Raises:
        LakeError: a column's name, the fragment or its files cannot be read; says which.
    """
    unreadable = [name for name in columns if not is_readable_name(name)]
    if unreadable:
        what = f"column {unreadable[0]!r} of {dataset.uri} has a name that Lance cannot read"
        hint = "exclude it under columns, or rename it"
        raise UnsupportedDataset(what, hint=hint)
    fragment = dataset.get_fragment(rows.fragment_id)
    if fragment is None:
        missing = f"{dataset.uri} has no fragment {rows.fragment_id} at version {dataset.version}"
        raise DatasetDamaged(missing)
    if filter is not None:
        stop = fragment.physical_rows
        stop = stop if rows.count is None else min(stop, rows.offset + rows.count)
        filtered = FilteredRows(dataset, fragment, columns, filter, rows.offset, stop)
        batches = filtered.batches() if columns else _counted(filtered.count)
    else:
        counts = [count for count in (rows.count, limit) if count is not None]
        request = _RangeRequest(columns, rows.offset, min(counts, default=None), row_bytes)
        batches = (
            _sized(fragment, request) if columns else _counted(lambda: _live(fragment, request))
        )
    return _named(batches, dataset, rows.fragment_id, storage_options)


@dataclass(frozen=True, slots=True)
class _RangeRequest:
    columns: tuple[str, ...]
    offset: int
    count: int | None
    row_bytes: int


def _live(fragment: lance.LanceFragment, request: _RangeRequest) -> int:
    rows = max(0, count_rows(fragment) - request.offset)
    return rows if request.count is None else min(rows, request.count)


def _counted(count: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    left = count()
    while left > 0:
        rows = min(left, LARGEST_COUNT)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], ["rows"])
        left -= rows


def _sized(fragment: lance.LanceFragment, request: _RangeRequest) -> Iterator[pa.RecordBatch]:
    # Lance's own bound on the bytes of a batch shrinks batches to a few rows, and sizes on disk say
    # little about sizes in memory. So a short probe shows how many rows to ask for, and where
    # rows turn out wider the scan goes on from there with fewer.
    position, left = request.offset, request.count
    rows = max(1, min(PROBE_ROWS, BATCH_BYTES // max(1, request.row_bytes)))
    limit: int | None = rows
    while left is None or left > 0:
        requested = limit if left is None else min(limit, left) if limit else left
        got = 0
        for batch in _scanner(fragment, request.columns, rows, position, requested).to_batches():
            yield batch
            got += batch.num_rows
            fitting = fitting_rows(batch)
            if fitting * 4 < batch.num_rows:
                break
        else:
            if requested is None or got < requested:
                return
        position += got
        left = None if left is None else left - got
        rows, limit = fitting, None


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
    fragment_id: int,
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
        subject = f"fragment {fragment_id} at version {dataset.version}"
        raise type(failure)(f"{subject}: {failure.message}", hint=failure.hint) from None
