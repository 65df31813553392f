"""Partials as rows: one per (table, fingerprints, set of fields)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.values import StoredPartials
from lancestat.stats.partial import encode

if TYPE_CHECKING:
    import pyarrow as pa

FINGERPRINT_BYTES = 16
# Field keys hold Spark types, which may hold commas but no line breaks.
_SEPARATOR = "\n"
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 1024


def partial_schema() -> pa.Schema:
    """Columns of the partials dataset; `StoredTable` gives each row its `id`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("table", pa.string()),
            pa.field("fingerprints", pa.binary()),
            pa.field("fields", pa.string()),
            pa.field("partials", pa.list_(pa.large_binary())),
            pa.field("written_at", pa.timestamp("us", "UTC")),
        ]
    )


def join_fingerprints(fingerprints: Iterable[Fingerprint]) -> bytes:
    """The stored form of a set of fingerprints."""
    return b"".join(sorted(fingerprints))


def split_fingerprints(stored: bytes) -> tuple[Fingerprint, ...]:
    """The inverse of `join_fingerprints`; empty when the length is wrong."""
    if len(stored) == FINGERPRINT_BYTES:
        return (stored,)
    if len(stored) % FINGERPRINT_BYTES:
        return ()
    starts = range(0, len(stored), FINGERPRINT_BYTES)
    return tuple(stored[start : start + FINGERPRINT_BYTES] for start in starts)


def join_fields(fields: Iterable[str]) -> str:
    """The stored form of a set of field keys."""
    return _SEPARATOR.join(sorted(fields))


def split_fields(stored: str) -> Sequence[str]:
    """The inverse of `join_fields`, in stored order."""
    return stored.split(_SEPARATOR)


def partial_batches(
    table: str, stored: Iterable[StoredPartials], written_at: datetime, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows for `stored`, in batches of a few megabytes; entries without partials make no row."""
    import pyarrow as pa

    rows: list[dict[str, object]] = []
    size = 0
    for entry in stored:
        if not entry.partials or not entry.fingerprints:
            continue
        fields = sorted(entry.partials)
        encoded = [encode(entry.partials[field]) for field in fields]
        rows.append(
            {
                "table": table,
                "fingerprints": join_fingerprints(entry.fingerprints),
                "fields": join_fields(fields),
                "partials": encoded,
                "written_at": written_at,
            }
        )
        size += sum(map(len, encoded))
        if size >= _BATCH_BYTES or len(rows) >= _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)
