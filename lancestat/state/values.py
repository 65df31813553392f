"""What is remembered, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lancestat.lake.fingerprint import Fingerprint
from lancestat.stats.partial import ColumnPartial


@dataclass(frozen=True, slots=True)
class PartialKey:
    """What a stored row covers: one fragment's fingerprint, or those of several together.

    Several occur when a compaction rewrote old fragments into more than one new fragment: their sum
    is known, the parts are not. `fields` holds field keys (`lake.fingerprint.field_key`).
    """

    fingerprints: tuple[Fingerprint, ...]
    fields: frozenset[str]


@dataclass(frozen=True, slots=True)
class StoredPartials:
    """Partials by field key for the content that `fingerprints` names (sorted; usually one)."""

    fingerprints: tuple[Fingerprint, ...]
    partials: Mapping[str, ColumnPartial]


@dataclass(frozen=True, slots=True)
class PartialIndex:
    """Which partials of a table are stored. Equal field sets are one object."""

    singles: Mapping[Fingerprint, frozenset[str]]
    groups: tuple[PartialKey, ...]


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The last statistics that a run made for a table.

    `table` is the identity of the dataset (`state.identity`), `node` its name in the project.
    `version` is the manifest version that the statistics describe: the published one, or the one
    read under `publish: none`. `content_digest` is `plan.planner.table_digest` of the analyzed
    columns, `values` the `lance.stats.*` entries as published, `bounds` the string and binary
    bounds that the manifest cannot hold (hex).
    """

    table: str
    node: str
    version: int
    published: bool
    content_digest: str
    schema_hash: str
    rows: int
    fragments: int
    computed_at: datetime
    columns: tuple[str, ...]
    values: Mapping[str, str]
    bounds: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node's outcome in one run.

    `digest` is that of the node's meaning (`spec.digest.node_digest`), `result` its object in the
    JSON of `lancestat run`.
    """

    node: str
    kind: str
    digest: str
    table: str | None
    result: Mapping[str, object]
    record: TableRecord | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that ended, with one entry per node."""

    run_id: str
    command: str
    target: str
    started_at: datetime
    finished_at: datetime
    status: str
    nodes: tuple[NodeRun, ...]


class StateReader(Protocol):
    """What planning may ask of the state."""

    def records(self) -> Mapping[str, TableRecord]:
        """The newest record of every table, by identity."""
        ...

    def digests(self) -> Mapping[str, str]:
        """By node, the digest of its meaning in the newest run that took it up."""
        ...

    def partial_index(self, table: str) -> PartialIndex:
        """Which partials of one table are stored, without reading them."""
        ...

    def runs(self, limit: int) -> list[RunRecord]:
        """The newest runs, newest first."""
        ...


class StateWriter(StateReader, Protocol):
    """What a run may do to the state."""

    def partials(
        self, table: str, wanted: Mapping[tuple[Fingerprint, ...], frozenset[str]]
    ) -> Iterator[StoredPartials]:
        """Stream the wanted partials; what is gone, or does not decode, is not yielded."""
        ...

    def add_partials(self, table: str, stored: Iterable[StoredPartials]) -> None:
        """Append partials in one commit."""
        ...

    def add_run(self, run: RunRecord) -> None:
        """Append a run in one commit."""
        ...

    def tidy(self, live: Mapping[str, frozenset[Fingerprint]]) -> None:
        """Drop what the tables in `live` no longer need (their current fingerprints), compact."""
        ...
