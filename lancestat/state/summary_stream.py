"""Summaries read back."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.state.partial_index import table_filter, tables_filter
from lancestat.state.row_order import commit_order
from lancestat.state.search import find
from lancestat.state.stored_table import StoredTable
from lancestat.state.summary_rows import (
    HEAD,
    block_keys,
    decode_block,
    decode_summary,
    only_stored,
)
from lancestat.state.values import BlockKey, SummaryBlock, TableSummary

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_log = logging.getLogger("lancestat.state")

# A block holds tens of sketches of 4 kB, and up to some hundred.
_BATCH_ROWS = 8
_IO_BUFFER_BYTES = 32 << 20


def read_summary(dataset: LanceDataset, table: str) -> TableSummary | None:
    """The newest head of a table that decodes, and only what is stored of it."""
    rows = dataset.to_table(columns=["field", "content"], filter=table_filter(table))
    stored = {
        BlockKey(field, content)
        for field, content in zip(
            rows.column("field").to_pylist(), rows.column("content").to_pylist(), strict=True
        )
    }
    summary = _newest(dataset, f"{table_filter(table)} AND field = '{HEAD}'").get(table)
    return None if summary is None else only_stored(summary, stored)


def stream_blocks(
    stored: StoredTable, table: str, wanted: Collection[BlockKey]
) -> Iterator[SummaryBlock]:
    """Yield every wanted block at most once, of what is stored and decodes.

    When a clean-up takes files away under the scan, what is still missing is read from the latest
    version.
    """
    search = _Search(set(wanted))
    yield from find(stored, search, lambda dataset: _batches(dataset, table, search.missing))
    if search.undecodable:
        _log.warning("%d stored summaries do not decode and are not used", search.undecodable)


@dataclass(slots=True)
class _Search:
    """What is still wanted, and how much of what is stored turned out not to decode."""

    missing: set[BlockKey]
    undecodable: int = 0

    def found_in(self, batch: pa.RecordBatch) -> Iterator[SummaryBlock]:
        for row in batch.to_pylist():
            key = BlockKey(row["field"], row["content"])
            if key not in self.missing:
                continue
            try:
                block = decode_block(key, row["body"])
            except ValueError:
                self.undecodable += 1
                continue
            self.missing.discard(key)
            yield block


def _batches(
    dataset: LanceDataset, table: str, wanted: Collection[BlockKey]
) -> Iterator[pa.RecordBatch]:
    scanner = dataset.scanner(
        columns=["field", "content", "body"],
        filter=_blocks_filter(table, wanted),
        batch_size=_BATCH_ROWS,
        batch_readahead=2,
        fragment_readahead=1,
        io_buffer_size=_IO_BUFFER_BYTES,
    )
    yield from scanner.to_batches()


def past_summary_ids(dataset: LanceDataset, live: Collection[str]) -> list[int]:
    """Rows of the tables in `live` that their newest summaries do not name."""
    needed = {table: {BlockKey(HEAD, b"")} for table in live}
    few = tables_filter(live)
    heads = f"field = '{HEAD}'" + (f" AND ({few})" if few else "")
    for table, summary in _newest(dataset, heads).items():
        if table in needed:
            needed[table].update(block_keys(summary))
    columns = ["id", "table", "field", "content"]
    past: list[int] = []
    for row in _newest_first(dataset.to_table(columns=columns, filter=few)):
        wanted = needed.get(row["table"])
        if wanted is None:
            continue
        key = BlockKey(row["field"], row["content"])
        if key in wanted:
            wanted.discard(key)
        else:
            past.append(row["id"])
    return past


def _newest(dataset: LanceDataset, predicate: str) -> dict[str, TableSummary]:
    """The newest head that decodes of every table."""
    heads = dataset.to_table(columns=["id", "table", "body"], filter=predicate)
    found: dict[str, TableSummary] = {}
    for row in _newest_first(heads):
        if row["table"] in found:
            continue
        try:
            found[row["table"]] = decode_summary((row["body"] or [b""])[0] or b"")
        except ValueError:
            _log.warning("a stored summary does not decode and is not used")
    return found


def _newest_first(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.take(commit_order(rows.column("id"))[::-1]).to_pylist()
    return found


def _blocks_filter(table: str, wanted: Collection[BlockKey]) -> str:
    fields = ",".join(_quoted(field) for field in sorted({key.field for key in wanted}))
    contents = ",".join(f"X'{content.hex()}'" for content in {key.content for key in wanted})
    return f"{table_filter(table)} AND field IN ({fields}) AND content IN ({contents})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
