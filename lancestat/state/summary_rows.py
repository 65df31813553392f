"""Summaries as rows: one head per summary, and one row per block of groups of one field."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from lancestat.state.grouping import Group, block_digest, slices
from lancestat.state.values import BlockKey, SummaryBlock, TableSummary
from lancestat.stats.partial import decode, encode

if TYPE_CHECKING:
    import pyarrow as pa

# No field key is empty.
HEAD = ""
_BATCH_BYTES = 4 << 20


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
    blocks: Iterable[SummaryBlock],
    written_at: datetime,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Rows for the blocks, a few megabytes at a time, and then for the head."""
    import pyarrow as pa

    rows: list[dict[str, object]] = []
    size = 0
    stored = (
        (block.key.field, block.key.content, [encode(partial) for partial in block.partials])
        for block in blocks
    )
    for field, content, body in chain(stored, [(HEAD, b"", [encode_summary(summary)])]):
        rows.append(
            {
                "table": table,
                "field": field,
                "content": content,
                "body": body,
                "written_at": written_at,
            }
        )
        size += sum(map(len, body))
        if size >= _BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def decode_block(key: BlockKey, body: Iterable[bytes | None]) -> SummaryBlock:
    """A stored block; raises ValueError when one of its partials does not decode."""
    return SummaryBlock(key, tuple(decode(each or b"") for each in body))


def block_keys(summary: TableSummary) -> list[BlockKey]:
    """The blocks that a summary names, those left out of which a group is not known."""
    keys = []
    for field, digests in summary.contents.items():
        for place in slices(summary.blocks):
            if all(digests[place]):
                keys.append(BlockKey(field, block_digest(digests[place])))
    return keys


def only_stored(summary: TableSummary, stored: Collection[BlockKey]) -> TableSummary:
    """The summary with no content where its block is not stored."""
    contents = {}
    for field, digests in summary.contents.items():
        found: list[bytes] = []
        for place in slices(summary.blocks):
            part = digests[place]
            is_stored = BlockKey(field, block_digest(part)) in stored
            found += part if is_stored else [b""] * len(part)
        contents[field] = tuple(found)
    return replace(summary, contents=contents)


def encode_summary(summary: TableSummary) -> bytes:
    """The stored form of a head: compressed JSON.

    Fragment ids are written as runs of consecutive ones, and digests once for all fields that have
    the same.
    """
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
        found = json.loads(zlib.decompress(stored))
        # Summaries of releases that stored the commit time instead hold where digests agree.
        manifest = found.get("manifest")
        summary = TableSummary(
            version=int(found["version"]),
            manifest=None if manifest is None else str(manifest),
            groups=tuple(_ids(runs) for runs in found["groups"]),
            blocks=tuple(int(count) for count in found["blocks"]),
            contents={
                str(field): digests
                for fields, texts in found["contents"]
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
    for each in group:
        if each == following:
            runs[-1] += 1
        else:
            runs += [each, 1]
        following = each + 1
    return runs


def _ids(runs: list[int]) -> Group:
    starts, lengths = runs[::2], runs[1::2]
    return tuple(
        each
        for start, length in zip(starts, lengths, strict=True)
        for each in range(start, start + length)
    )
