"""Reads slices of fragments in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import lance
import pyarrow as pa

from lancestat.errors import LakeError
from lancestat.lake.clean import clean, secret_values
from lancestat.lake.open import readable, store_options
from lancestat.lake.refusal import Refusal, refuse
from lancestat.spark.work import Slice
from lancestat.stats.kernel import BATCH_ROWS

BATCH_BYTES = 16 << 20
PROBE_ROWS = 256
READAHEAD_BATCHES = 2
IO_BUFFER_BYTES = 64 << 20
METADATA_CACHE_BYTES = 32 << 20
# Jobs over several tables take turns on a worker.
OPEN_DATASETS = 4

_Key = tuple[str, int, tuple[tuple[str, str], ...], datetime | None]
_opened: dict[_Key, lance.LanceDataset] = {}


def open_pinned(
    uri: str,
    version: int,
    storage_options: Mapping[str, str],
    committed_at: datetime | None = None,
) -> lance.LanceDataset:
    """The dataset at that version, kept open for the worker's next items of the same table.

    `committed_at` tells a dataset that was made anew from the one that had the version before.
    """
    key = (uri, version, tuple(sorted(storage_options.items())), committed_at)
    if key not in _opened:
        while len(_opened) >= OPEN_DATASETS:
            del _opened[next(iter(_opened))]
        with readable(uri, version=version, storage_options=storage_options):
            _opened[key] = lance.dataset(
                uri,
                version=version,
                storage_options=store_options(uri, storage_options),
                session=lance.Session(
                    index_cache_size_bytes=0, metadata_cache_size_bytes=METADATA_CACHE_BYTES
                ),
            )
    return _opened[key]


def read_slice(
    dataset: lance.LanceDataset,
    slice: Slice,
    columns: tuple[str, ...],
    storage_options: Mapping[str, str],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of the columns, and the live rows of a slice.

    Raises:
        LakeError: a column's name, the fragment or its files cannot be read; says which.
    """
    unreadable = [name for name in columns if not name or "`" in name]
    if unreadable:
        what = f"column {unreadable[0]!r} of {dataset.uri} has a name that Lance cannot read"
        hint = "exclude it under columns, or rename it"
        raise LakeError(Refusal.UNSUPPORTED.value, what, hint=hint)
    fragment = dataset.get_fragment(slice.fragment_id)
    if fragment is None:
        missing = f"{dataset.uri} has no fragment {slice.fragment_id} at version {dataset.version}"
        raise LakeError(Refusal.CORRUPT.value, missing)
    schema = pa.schema([dataset.schema.field(name) for name in columns])
    batches = _named(_sized(fragment, slice, columns), dataset, slice, storage_options)
    return schema, batches


def _sized(
    fragment: lance.LanceFragment, slice: Slice, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    # Lance's own bound on the bytes of a batch shrinks batches to a few rows, and sizes on disk say
    # little about sizes in memory. So a short probe tells how many rows to ask for, and a surprise
    # on the way makes the scan go on from there with fewer.
    position, left = slice.offset, slice.count
    rows = max(1, min(PROBE_ROWS, BATCH_BYTES // max(1, slice.row_bytes)))
    limit: int | None = rows
    while left is None or left > 0:
        asked = limit if left is None else min(limit, left) if limit else left
        got = 0
        for batch in _scanner(fragment, columns, rows, position, asked).to_batches():
            yield batch
            got += batch.num_rows
            fitting = _fitting_rows(batch)
            if fitting * 4 < batch.num_rows:
                break
        else:
            if asked is None or got < asked:
                return
        position += got
        left = None if left is None else left - got
        rows, limit = fitting, None


def _fitting_rows(batch: pa.RecordBatch) -> int:
    width = max(1, batch.nbytes // max(1, batch.num_rows))
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // width)))


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
        batch_readahead=READAHEAD_BATCHES,
        io_buffer_size=IO_BUFFER_BYTES,
        blob_handling="all_binary",
        offset=offset or None,
        limit=limit,
    )


def _named(
    batches: Iterator[pa.RecordBatch],
    dataset: lance.LanceDataset,
    slice: Slice,
    storage_options: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        secrets = secret_values(storage_options)
        refusal = refuse(error, dataset.uri, secrets=secrets)
        said = refusal.message
        if refusal.code == Refusal.MISSING.value:
            said = f"a data file of {dataset.uri} is missing ({clean(str(error), secrets)})"
        place = f"fragment {slice.fragment_id} at version {dataset.version}"
        raise LakeError(refusal.code, f"{place}: {said}", hint=refusal.hint) from None
