"""What the state stores of tables: records, partials, summaries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lancestat import codec
from lancestat.codec import Instant
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import Pin
from lancestat.spec.model import NodeKind
from lancestat.state.store import LanceState, StateReader
from lancestat.state.values import (
    BlockKey,
    PartialKey,
    StoredPartials,
    StoredRecord,
    SummaryBlock,
    TableSummary,
    partial_key,
    weight,
)
from lancestat.tables.relations import KeyResult
from lancestat.tables.statistics.partial import ColumnPartial, decode, encode
from lancestat.tables.wire import column_figures


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The last statistics that a run made for a table.

    `table` is the identity of the dataset (`state.values`), `node` its name in the project.
    `version` is the manifest version that the statistics describe: the published one, or the one
    read under `publish: none`. `content_digest` is `lake.fingerprint.table_digest` of the analyzed
    columns, `values` the `lance.stats.*` entries as published, `kept` those of columns that are
    never published, `bounds` the string and binary bounds that the manifest cannot hold (hex),
    `histograms` the columns whose partials have quantiles, `special_keys` the keys (`state.values`)
    of partials of groups, and of those with common values or of keys. `keys` says what is known of
    declared keys, and `size_bytes` is that of the data files. `manifest` identifies the manifest of
    `version` (`lake.snapshot.Pin`), and `rows_changed_at` is when its rows last changed, None where
    that was not looked up. `fold` is how many fragments with consecutive ids have their partials
    together, 1 where some are still to be folded. `ranges` counts those that may be: the ranges of
    1, 2, 4 and more ids with fragments; it is empty for tables of few fragments. `is_restored` is
    set where the state was lost and the record made of the published values, which lack bounds.
    """

    table: str
    node: str
    version: int
    published: bool
    content_digest: str
    schema_hash: str
    rows: int
    fragments: int
    computed_at: Instant
    columns: tuple[str, ...]
    values: Mapping[str, str]
    bounds: Mapping[str, tuple[str, str]]
    manifest: str
    histograms: tuple[str, ...] = ()
    special_keys: tuple[str, ...] = ()
    keys: tuple[KeyResult, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    rows_changed_at: Instant | None = None
    fold: int = 1
    ranges: tuple[int, ...] = ()
    is_restored: bool = False

    @property
    def weight(self) -> int:
        """How many partials with nothing beyond take as much as those of one fragment."""
        own = [key for key in map(partial_key, self.special_keys) if not key.is_joint]
        histograms = len(self.histograms) - sum(key.quantiles for key in own)
        # Of other columns, keys that weigh as much.
        others = range(len(self.columns) - len(own))
        keys = (PartialKey((str(n),), quantiles=n < histograms) for n in others)
        return weight(frozenset((*self.special_keys, *map(str, keys))))

    def describes(self, pin: Pin) -> bool:
        """Whether the statistics were made for the very version that a pin names."""
        return (self.version, self.manifest) == (pin.version, pin.manifest)

    def stored(self) -> StoredRecord:
        return self.table, codec.encode(self, separators=(",", ":"))

    def history_figures(self) -> dict[str, object]:
        """Return what the history of a table keeps of the record: texts of strings are in none.

        `columns` has the statistics of each column by their keys in JSON.
        """
        return {
            "version": self.version,
            "rows": self.rows,
            "fragments": self.fragments,
            # Manifests may not know it.
            "size_bytes": self.size_bytes if self.size_bytes or not self.fragments else None,
            "schema": self.schema_hash[:SCHEMA_DIGITS],
            "columns": {**column_figures(self.values), **column_figures(self.kept)},
        }


def table_records(state: StateReader) -> Mapping[str, TableRecord]:
    """Return the newest record of every table, by the identity of its dataset."""
    return state.records(NodeKind.TABLE.value, decode_record)


def decode_record(stored: str) -> TableRecord:
    """Return the record of its stored form; raises ValueError on anything else."""
    return codec.decode(stored, TableRecord)


SCHEMA_DIGITS = 16
"""How much of the hash of a schema the history keeps."""


def read_partials(
    state: LanceState, table: str, keys: Mapping[tuple[Fingerprint, ...], frozenset[str]]
) -> Iterator[StoredPartials[ColumnPartial]]:
    """Stream the partials of some keys, less what is gone or does not decode."""
    return state.partials(table, keys, decode)


def add_partials(
    state: LanceState, table: str, stored: Iterable[StoredPartials[ColumnPartial]]
) -> None:
    """Append partials in one commit."""
    state.add_partials(
        table,
        (
            StoredPartials(
                entry.fingerprints,
                {field: encode(partial) for field, partial in entry.partials.items()},
            )
            for entry in stored
        ),
    )


def read_blocks(
    state: StateReader, table: str, keys: Collection[BlockKey]
) -> Iterator[SummaryBlock[ColumnPartial]]:
    """Stream the summary's blocks of some keys, less what is gone or does not decode."""
    return state.summary_blocks(table, keys, decode)


def add_summary(
    state: LanceState,
    table: str,
    summary: TableSummary,
    blocks: Iterable[SummaryBlock[ColumnPartial]],
) -> None:
    """Append a summary, and blocks that are not stored yet, in one commit."""
    encoded = ((key, tuple(map(encode, partials))) for key, partials in blocks)
    state.add_summary(table, summary, encoded)
