"""How many rows come in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# At this many the fixed cost of each call is small, and a column of a batch still fits a core's
# cache.
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
# Of the first batch, which tells how wide rows are.
PROBE_ROWS = 256
# Of every scanner: little ahead of the reader, and blobs as their bytes.
SCAN_OPTIONS = {
    "batch_readahead": 2,
    "io_buffer_size": 64 << 20,
    "blob_handling": "all_binary",
}


def fitting_rows(batch: pa.RecordBatch) -> int:
    """How many rows like those of `batch` fill a batch."""
    width = max(1, batch.nbytes // max(1, batch.num_rows))
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // width)))
