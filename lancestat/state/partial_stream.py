"""Partials read back as a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lancestat.lake.fingerprint import Fingerprint
from lancestat.state.keys import plain_key, weight
from lancestat.state.partial_index import table_filter
from lancestat.state.partial_rows import join_fingerprints, split_fields, split_fingerprints
from lancestat.state.search import find
from lancestat.state.stored_table import StoredTable
from lancestat.state.values import StoredPartials
from lancestat.stats.partial import ColumnPartial, decode

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_log = logging.getLogger("lancestat.state")

_BATCH_BYTES = 8 << 20
_PARTIAL_BYTES = 4 << 10
_MOST_BATCH_ROWS = 256
_IO_BUFFER_BYTES = 32 << 20
# Up to here the filter names the fingerprints, and the sketches of other rows are not read.
_NAMED_FINGERPRINTS = 4096


def stream_partials(
    stored: StoredTable, table: str, wanted: Mapping[tuple[Fingerprint, ...], frozenset[str]]
) -> Iterator[StoredPartials]:
    """Yield every wanted field at most once, of what is stored and decodes.

    When a clean-up takes files away under the scan, what is still missing is read from the latest
    version.
    """
    search = _Search(wanted)
    yield from find(stored, search, lambda dataset: _batches(dataset, table, search))
    if search.undecodable:
        _log.warning("%d stored partials do not decode and will be made again", search.undecodable)


def _batches(dataset: LanceDataset, table: str, search: _Search) -> Iterator[pa.RecordBatch]:
    predicate = table_filter(table)
    if len(search.missing) <= _NAMED_FINGERPRINTS:
        named = ",".join(f"X'{joined.hex()}'" for joined in search.missing)
        predicate += f" AND fingerprints IN ({named})"
    scanner = dataset.scanner(
        columns=["fingerprints", "fields", "partials"],
        filter=predicate,
        batch_size=min(_BATCH_BYTES // (search.widest * _PARTIAL_BYTES) + 1, _MOST_BATCH_ROWS),
        batch_readahead=2,
        fragment_readahead=1,
        io_buffer_size=_IO_BUFFER_BYTES,
    )
    yield from scanner.to_batches()


class _Search:
    """What is still wanted, and how many stored partials turned out not to decode.

    `widest` is the most that one set of fingerprints takes, in partials without quantiles.
    """

    def __init__(self, wanted: Mapping[tuple[Fingerprint, ...], frozenset[str]]) -> None:
        self.undecodable = 0
        self.widest = max([1, *map(weight, wanted.values())])
        self.missing: dict[bytes, set[str]] = {
            join_fingerprints(fingerprints): set(fields)
            for fingerprints, fields in wanted.items()
            if fingerprints and fields
        }

    def found_in(self, batch: pa.RecordBatch) -> Iterator[StoredPartials]:
        column = batch.column("partials")
        offsets, values = column.offsets.to_pylist(), column.values
        keys = batch.column("fingerprints").to_pylist()
        texts = batch.column("fields").to_pylist()
        for row, (key, text) in enumerate(zip(keys, texts, strict=True)):
            missing = self.missing.get(key)
            if not missing:
                continue
            fields = split_fields(text)
            start = offsets[row]
            if offsets[row + 1] - start != len(fields):
                self.undecodable += 1
                continue
            partials: dict[str, ColumnPartial] = {}
            encoded = values.slice(start, len(fields)).to_pylist()
            for field, one in zip(fields, encoded, strict=True):
                for asked in {field, plain_key(field)} & missing:
                    self._decode(one, asked, partials)
            missing.difference_update(partials)
            if not missing:
                del self.missing[key]
            if partials:
                yield StoredPartials(split_fingerprints(key), partials)

    def _decode(self, stored: bytes | None, field: str, partials: dict[str, ColumnPartial]) -> None:
        try:
            partials[field] = decode(stored or b"")
        except ValueError:
            self.undecodable += 1
