"""Stored partials: rows by (table, fingerprints, set of fields), their index, and reading them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat.formats import string_literal
from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.identity import covered_keys, plain_key, weight
from lancestat.state.stored_table import StoredTable
from lancestat.state.values import Decoded, PartialIndex, StoredPartials

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

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
    table: str, stored: Iterable[StoredPartials[bytes]], written_at: datetime, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows for `stored`, in batches of a few megabytes; entries without partials make no row."""
    import pyarrow as pa

    rows: list[dict[str, object]] = []
    size = 0
    for entry in stored:
        if not entry.partials or not entry.fingerprints:
            continue
        fields = sorted(entry.partials)
        encoded = [entry.partials[field] for field in fields]
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


_INDEX_BATCH_ROWS = 4096
_NAMED_TABLES = 64


def table_filter(table: str) -> str:
    """The predicate for one table's rows."""
    return f"`table` = {string_literal(table)}"


def tables_filter(tables: Collection[str]) -> str | None:
    """The predicate for the rows of some tables; None when they are too many to be named."""
    if len(tables) > _NAMED_TABLES:
        return None
    return " OR ".join(map(table_filter, tables))


def read_indexes(dataset: LanceDataset, tables: Collection[str]) -> dict[str, PartialIndex]:
    """Return the indexes of some tables, in one pass: a second for 100,000 rows of 200 fields."""
    scanner = dataset.scanner(
        columns=["table", "fingerprints", "fields"],
        filter=tables_filter(tables),
        batch_size=_INDEX_BATCH_ROWS,
        batch_readahead=4,
    )
    sets = FieldSets()
    by_table = {table: _Index(sets) for table in tables}
    for batch in scanner.to_batches():
        names = batch.column("table").dictionary_encode()
        indexes = [by_table.get(name) for name in names.dictionary.to_pylist()]
        codes, stored = names.indices.to_pylist(), batch.column("fingerprints").to_pylist()
        for code, key, fields in zip(codes, stored, sets.of(batch.column("fields")), strict=True):
            index = indexes[code]
            if index is not None:
                index.add(key, fields)
    return {table: index.to_value() for table, index in by_table.items()}


class _Index:
    """An index while it is read."""

    def __init__(self, sets: FieldSets) -> None:
        self._sets = sets
        self._singles: dict[Fingerprint, frozenset[str]] = {}
        self._groups: dict[tuple[Fingerprint, ...], frozenset[str]] = {}

    def add(self, stored: bytes, fields: frozenset[str]) -> None:
        fingerprints = split_fingerprints(stored)
        if len(fingerprints) == 1:
            known = self._singles.get(stored)
            self._singles[stored] = fields if known is None else self._sets.union(known, fields)
        elif fingerprints:
            known = self._groups.get(fingerprints)
            merged = fields if known is None else self._sets.union(known, fields)
            self._groups[fingerprints] = merged

    def to_value(self) -> PartialIndex:
        return PartialIndex(self._singles, self._groups)


class FieldSets:
    """Interned sets of the keys that stored rows answer for: equal sets are one object."""

    def __init__(self) -> None:
        self._by_text: dict[str, frozenset[str]] = {}
        self._by_value: dict[frozenset[str], frozenset[str]] = {}
        self._keys: dict[str, str] = {}

    def of(self, texts: pa.Array) -> Iterator[frozenset[str]]:
        """The sets that a column of stored fields answers for, row by row."""
        encoded = texts.dictionary_encode()
        distinct = [self._parse(text) for text in encoded.dictionary.to_pylist()]
        return map(distinct.__getitem__, encoded.indices.to_pylist())

    def union(self, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
        """The interned union of two interned sets."""
        if left is right:
            return left
        return self._intern(left | right)

    def _parse(self, text: str) -> frozenset[str]:
        known = self._by_text.get(text)
        if known is None:
            keys = self._keys
            stored = covered_keys(frozenset(split_fields(text)))
            known = self._intern(frozenset(keys.setdefault(key, key) for key in stored))
            self._by_text[text] = known
        return known

    def _intern(self, fields: frozenset[str]) -> frozenset[str]:
        return self._by_value.setdefault(fields, fields)


_log = logging.getLogger("lancestat.state")

_READ_BATCH_BYTES = 8 << 20
_PARTIAL_BYTES = 4 << 10
_MOST_BATCH_ROWS = 256
_IO_BUFFER_BYTES = 32 << 20
# Up to here the filter names the fingerprints, and the sketches of other rows are not read.
_NAMED_FINGERPRINTS = 4096


def stream_partials(
    stored: StoredTable,
    table: str,
    keys: Mapping[tuple[Fingerprint, ...], frozenset[str]],
    decode: Callable[[bytes], Decoded],
) -> Iterator[StoredPartials[Decoded]]:
    """Yield every field asked for at most once, of what is stored and decodes."""
    missing = {
        join_fingerprints(fingerprints): set(fields)
        for fingerprints, fields in keys.items()
        if fingerprints and fields
    }
    if not missing:
        return
    # The most that one set of fingerprints takes, in partials without quantiles.
    widest = max([1, *map(weight, keys.values())])
    undecodable = 0
    for batch in stored.scan(lambda dataset: _batches(dataset, table, missing, widest)):
        for key, encoded in _rows(batch, missing):
            if encoded is None:
                undecodable += 1
                continue
            partials: dict[str, Decoded] = {}
            for field, one in encoded:
                try:
                    partials[field] = decode(one or b"")
                except ValueError:
                    undecodable += 1
            missing[key].difference_update(partials)
            if not missing[key]:
                del missing[key]
            if partials:
                yield StoredPartials(split_fingerprints(key), partials)
        if not missing:
            break
    if undecodable:
        _log.warning("%d stored partials do not decode and will be made again", undecodable)


def _batches(
    dataset: LanceDataset, table: str, missing: Collection[bytes], widest: int
) -> Iterator[pa.RecordBatch]:
    predicate = table_filter(table)
    if len(missing) <= _NAMED_FINGERPRINTS:
        named = ",".join(f"X'{joined.hex()}'" for joined in missing)
        predicate += f" AND fingerprints IN ({named})"
    scanner = dataset.scanner(
        columns=["fingerprints", "fields", "partials"],
        filter=predicate,
        batch_size=min(_READ_BATCH_BYTES // (widest * _PARTIAL_BYTES) + 1, _MOST_BATCH_ROWS),
        batch_readahead=2,
        fragment_readahead=1,
        io_buffer_size=_IO_BUFFER_BYTES,
    )
    yield from scanner.to_batches()


def _rows(
    batch: pa.RecordBatch, missing: Mapping[bytes, Collection[str]]
) -> Iterator[tuple[bytes, list[tuple[str, bytes | None]] | None]]:
    """Yield the missing partials of each row by the fields asked for; None where it is malformed.

    `missing` is looked up row by row, since the caller takes out what it has got.
    """
    column = batch.column("partials")
    offsets, values = column.offsets.to_pylist(), column.values
    keys = batch.column("fingerprints").to_pylist()
    texts = batch.column("fields").to_pylist()
    for row, (key, text) in enumerate(zip(keys, texts, strict=True)):
        asked = missing.get(key)
        if not asked:
            continue
        fields = split_fields(text)
        start = offsets[row]
        if offsets[row + 1] - start != len(fields):
            yield key, None
            continue
        encoded = values.slice(start, len(fields)).to_pylist()
        yield (
            key,
            [
                (name, one)
                for field, one in zip(fields, encoded, strict=True)
                for name in {field, plain_key(field)}
                if name in asked
            ],
        )
