"""Stored partials: of fragments, and merged ones of groups of fragments with their summaries."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from lancestat.formats import string_literal
from lancestat.lake.fingerprint import ColumnGroup, Fingerprint
from lancestat.state.stored_table import StoredTable, commit_order
from lancestat.state.values import (
    BlockKey,
    Decoded,
    PartialIndex,
    StoredPartials,
    SummaryBlock,
    TableSummary,
    covered_keys,
    served_keys,
    weight,
)

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
    rows = (
        {
            "table": table,
            "fingerprints": join_fingerprints(entry.fingerprints),
            "fields": join_fields(entry.partials),
            "partials": [entry.partials[field] for field in sorted(entry.partials)],
            "written_at": written_at,
        }
        for entry in stored
        if entry.partials and entry.fingerprints
    )
    return _row_batches(rows, "partials", schema)


def _row_batches(
    rows: Iterable[Mapping[str, Any]], sized: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows a few megabytes at a time, by the encoded values in their column `sized`."""
    import pyarrow as pa

    waiting: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(map(len, row[sized]))
        if size >= _BATCH_BYTES or len(waiting) >= _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema)


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
    batch: pa.RecordBatch, missing: Mapping[bytes, Set[str]]
) -> Iterator[tuple[bytes, list[tuple[str, bytes | None]] | None]]:
    """Yield the missing partials of each row by the fields asked for; None for a malformed row."""
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
                for name in served_keys(field) & asked
            ],
        )


Group = tuple[int, ...]

# A query reads every group, so these bound its cost; a table of no more fragments than that has
# one group for each.
MOST_GROUPS = 512
# Groups are stored some at a time, so that an append writes the last block anew and no other.
_BLOCK_RANGES = 16
_BLOCK_GROUPS = 64

_DIGEST_SIZE = 16


def group_fragments(
    ids: Iterable[int], joint: Iterable[Collection[int]], most: int
) -> tuple[Group, ...]:
    """Cut fragments into at most `most` groups, each of one range of ids.

    Ranges are aligned to a power of two, so that appends and dropped fragments leave all other
    groups as they are. Groups that share a set of `joint`, of which only the sum is known, are one.
    """
    ordered = sorted(ids)
    width = group_width(ordered, most)
    groups: dict[int, list[int]] = {}
    for fragment in ordered:
        groups.setdefault(fragment // width, []).append(fragment)
    for members in joint:
        first, *others = sorted({fragment // width for fragment in members})
        home = _home(groups, first, min(members))
        for other in others:
            other_home = _home(groups, other, max(members))
            if other_home != home:
                groups[home] = sorted(groups[home] + groups.pop(other_home))
    return tuple(tuple(groups[key]) for key in sorted(groups, key=lambda key: groups[key][0]))


def _home(groups: Mapping[int, Collection[int]], key: int, member: int) -> int:
    """Return the key of a fragment's group after others were joined to it."""
    if key in groups:
        return key
    return next(home for home, ids in groups.items() if member in ids)


def count_blocks(groups: Sequence[Group]) -> tuple[int, ...]:
    """Count the groups of each block: consecutive, of one range of ids, and at most 64."""
    firsts = [group[0] for group in groups]
    width = group_width(firsts, _BLOCK_RANGES)
    counts: list[int] = []
    last = None
    for first in firsts:
        if first // width == last and counts[-1] < _BLOCK_GROUPS:
            counts[-1] += 1
        else:
            counts.append(1)
            last = first // width
    return tuple(counts)


def group_width(ids: Collection[int], most: int = MOST_GROUPS) -> int:
    """Return the smallest power of two that leaves at most `most` aligned ranges of ids in use."""
    width = 1
    ranges: Collection[int] = ids
    while len(ranges) > most:
        width *= 2
        ranges = list(dict.fromkeys(number // 2 for number in ranges))
    return width


def slices(counts: Iterable[int]) -> Iterator[slice]:
    """Yield slices of consecutive lengths."""
    start = 0
    for count in counts:
        yield slice(start, start + count)
        start += count


def contents(groups: Iterable[ColumnGroup]) -> dict[frozenset[str], dict[int, Fingerprint]]:
    """Fingerprints by fragment id, for classes of fields whose fingerprints are the same in all."""
    by_fields: dict[frozenset[str], dict[int, Fingerprint]] = {}
    for group in groups:
        by_fields.setdefault(group.fields, {})[group.fragment_id] = group.fingerprint
    sets_of: dict[str, list[frozenset[str]]] = {}
    for fields in by_fields:
        for key in fields:
            sets_of.setdefault(key, []).append(fields)
    classes: dict[tuple[frozenset[str], ...], list[str]] = {}
    for key, sets in sets_of.items():
        classes.setdefault(tuple(sets), []).append(key)
    by_keys = {}
    for shared, keys in classes.items():
        merged: dict[int, Fingerprint] = {}
        for fields in shared:
            merged.update(by_fields[fields])
        by_keys[frozenset(keys)] = merged
    return by_keys


def group_digest(group: Group, fingerprints: Mapping[int, Fingerprint]) -> bytes | None:
    """The identity of a group's content, None when one of its fragments is not there."""
    members = [fingerprints.get(fragment) for fragment in group]
    known = [fingerprint for fingerprint in members if fingerprint is not None]
    return _digest(known) if len(known) == len(members) else None


def block_digest(group_digests: Iterable[bytes]) -> bytes:
    """The identity of the content of a block of groups."""
    return _digest(group_digests)


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_SIZE).digest()


# No field key is empty.
HEAD = ""


def summary_schema() -> pa.Schema:
    """Columns of the summaries dataset; a head has an empty `field` and one text as `body`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("table", pa.string()),
            pa.field("field", pa.string()),
            pa.field("content", pa.binary()),
            pa.field("body", pa.list_(pa.large_binary())),
            pa.field("written_at", pa.timestamp("us", "UTC")),
        ]
    )


def summary_batches(
    table: str,
    summary: TableSummary,
    blocks: Iterable[SummaryBlock[bytes]],
    written_at: datetime,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Rows for the blocks, a few megabytes at a time, and then for the head."""
    stored = ((*key, encoded) for key, encoded in blocks)
    rows = (
        {
            "table": table,
            "field": field,
            "content": content,
            "body": list(body),
            "written_at": written_at,
        }
        for field, content, body in chain(stored, [(HEAD, b"", [encode_summary(summary)])])
    )
    return _row_batches(rows, "body", schema)


def block_keys(summary: TableSummary) -> list[BlockKey]:
    """The blocks that a summary names, those left out of which a group is not known."""
    keys = []
    for field, digests in summary.contents.items():
        for block in slices(summary.blocks):
            if all(digests[block]):
                keys.append((field, block_digest(digests[block])))
    return keys


def only_stored(summary: TableSummary, stored: Collection[BlockKey]) -> TableSummary:
    """The summary with no content where its block is not stored."""
    contents = {}
    for field, digests in summary.contents.items():
        known: list[bytes] = []
        for block in slices(summary.blocks):
            part = digests[block]
            is_stored = (field, block_digest(part)) in stored
            known += part if is_stored else [b""] * len(part)
        contents[field] = tuple(known)
    return replace(summary, contents=contents)


def encode_summary(summary: TableSummary) -> bytes:
    """The stored form of a head: compressed JSON, with runs of fragment ids."""
    shared: dict[tuple[bytes, ...], list[str]] = {}
    for field, digests in summary.contents.items():
        shared.setdefault(digests, []).append(field)
    stored = {
        "version": summary.version,
        "manifest": summary.manifest,
        "groups": [_runs(group) for group in summary.groups],
        "blocks": summary.blocks,
        "contents": [
            [sorted(fields), [digest.hex() for digest in digests]]
            for digests, fields in shared.items()
        ],
    }
    return zlib.compress(json.dumps(stored, separators=(",", ":")).encode())


def decode_summary(stored: bytes) -> TableSummary:
    """The inverse of `encode_summary`; raises ValueError on anything else."""
    try:
        head = json.loads(zlib.decompress(stored))
        manifest = head["manifest"]
        summary = TableSummary(
            version=int(head["version"]),
            manifest=None if manifest is None else str(manifest),
            groups=tuple(_ids(runs) for runs in head["groups"]),
            blocks=tuple(int(count) for count in head["blocks"]),
            contents={
                str(field): digests
                for fields, texts in head["contents"]
                for digests in [tuple(bytes.fromhex(text) for text in texts)]
                for field in fields
            },
        )
    except (zlib.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a summary: {error}") from None
    _check(summary)
    return summary


def _check(summary: TableSummary) -> None:
    sizes = {sum(summary.blocks), *map(len, summary.contents.values())}
    is_whole = all(summary.groups) and min(summary.blocks, default=1) > 0
    if sizes != {len(summary.groups)} or not is_whole:
        raise ValueError(f"a summary has {len(summary.groups)} groups, and others elsewhere")


def _runs(group: Group) -> list[int]:
    """First id and length of every run of consecutive ids, in one list."""
    runs: list[int] = []
    following = None
    for fragment in group:
        if fragment == following:
            runs[-1] += 1
        else:
            runs += [fragment, 1]
        following = fragment + 1
    return runs


def _ids(runs: list[int]) -> Group:
    starts, lengths = runs[::2], runs[1::2]
    return tuple(
        fragment
        for start, length in zip(starts, lengths, strict=True)
        for fragment in range(start, start + length)
    )


# A block holds tens of sketches of 4 kB, and up to some hundred.
_BLOCK_BATCH_ROWS = 8


def read_summaries(dataset: LanceDataset, tables: Collection[str]) -> dict[str, TableSummary]:
    """The newest heads of some tables that decode, and only what is stored of them."""
    few = tables_filter(tables)
    rows = dataset.to_table(columns=["table", "field", "content"], filter=few)
    stored: dict[str, set[BlockKey]] = {table: set() for table in tables}
    columns = (rows.column(name).to_pylist() for name in rows.column_names)
    for table, field, content in zip(*columns, strict=True):
        if table in stored:
            stored[table].add((field, content))
    heads = f"field = '{HEAD}'" + (f" AND ({few})" if few else "")
    newest = _newest(dataset, heads)
    return {
        table: only_stored(newest[table], keys) for table, keys in stored.items() if table in newest
    }


def stream_blocks(
    stored: StoredTable,
    keys: Mapping[str, Collection[BlockKey]],
    decode: Callable[[bytes], Decoded],
) -> Iterator[tuple[str, SummaryBlock[Decoded]]]:
    """Yield every block asked for of some tables at most once, of what is stored and decodes."""
    missing = {(table, *key) for table, some in keys.items() for key in some}
    if not missing:
        return
    undecodable = 0
    for batch in stored.scan(lambda dataset: _block_batches(dataset, missing)):
        for row in batch.to_pylist():
            key = (row["table"], row["field"], row["content"])
            if key not in missing:
                continue
            try:
                partials = tuple(decode(part or b"") for part in row["body"])
            except ValueError:
                undecodable += 1
                continue
            missing.discard(key)
            yield key[0], (key[1:], partials)
        if not missing:
            break
    if undecodable:
        _log.warning("%d stored summaries do not decode and are not used", undecodable)


# A table, and one of its blocks.
_TableBlock = tuple[str, str, bytes]


def _block_batches(
    dataset: LanceDataset, keys: Collection[_TableBlock]
) -> Iterator[pa.RecordBatch]:
    scanner = dataset.scanner(
        columns=["table", "field", "content", "body"],
        filter=_blocks_filter(keys),
        batch_size=_BLOCK_BATCH_ROWS,
        batch_readahead=2,
        fragment_readahead=1,
        io_buffer_size=_IO_BUFFER_BYTES,
    )
    yield from scanner.to_batches()


def past_summary_ids(dataset: LanceDataset, live: Collection[str]) -> list[int]:
    """Rows of the tables in `live` that their newest summaries do not name."""
    needed = {table: {(HEAD, b"")} for table in live}
    few = tables_filter(live)
    heads = f"field = '{HEAD}'" + (f" AND ({few})" if few else "")
    for table, summary in _newest(dataset, heads).items():
        if table in needed:
            needed[table].update(block_keys(summary))
    columns = ["id", "table", "field", "content"]
    past: list[int] = []
    for row in _newest_first(dataset.to_table(columns=columns, filter=few)):
        named = needed.get(row["table"])
        if named is None:
            continue
        key = (row["field"], row["content"])
        if key in named:
            named.discard(key)
        else:
            past.append(row["id"])
    return past


def _newest(dataset: LanceDataset, predicate: str) -> dict[str, TableSummary]:
    """The newest head that decodes of every table."""
    heads = dataset.to_table(columns=["id", "table", "body"], filter=predicate)
    newest: dict[str, TableSummary] = {}
    for row in _newest_first(heads):
        if row["table"] in newest:
            continue
        try:
            newest[row["table"]] = decode_summary((row["body"] or [b""])[0] or b"")
        except ValueError:
            _log.warning("a stored summary does not decode and is not used")
    return newest


def _newest_first(rows: pa.Table) -> list[dict[str, Any]]:
    ordered: list[dict[str, Any]] = rows.take(commit_order(rows.column("id"))[::-1]).to_pylist()
    return ordered


def _blocks_filter(keys: Collection[_TableBlock]) -> str:
    tables = ",".join(map(string_literal, sorted({table for table, _, _ in keys})))
    fields = ",".join(map(string_literal, sorted({field for _, field, _ in keys})))
    contents = ",".join(f"X'{content.hex()}'" for content in {content for _, _, content in keys})
    return f"`table` IN ({tables}) AND field IN ({fields}) AND content IN ({contents})"
