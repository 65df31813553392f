"""The values that the state stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lancestat.codec import Instant
from lancestat.joins.counts import UNMEASURED, Accuracy, JoinCounts, JoinGroups
from lancestat.joins.distances import JoinDistances
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import Pin
from lancestat.tables.statistics.partial import ColumnPartial


@dataclass(frozen=True, slots=True)
class PartialKey:
    """The content of a stored row: one fragment's fingerprint, or those of several together.

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
    """An index of a table's stored partials. Equal field sets are one object."""

    singles: Mapping[Fingerprint, frozenset[str]]
    groups: tuple[PartialKey, ...]


@dataclass(frozen=True, slots=True)
class TableRecord:
    """The last statistics that a run made for a table.

    `table` is the identity of the dataset (`state.identity`), `node` its name in the project.
    `version` is the manifest version that the statistics describe: the published one, or the one
    read under `publish: none`. `content_digest` is `lake.fingerprint.table_digest` of the analyzed
    columns, `values` the `lance.stats.*` entries as published, `kept` those of columns that are
    never published, `bounds` the string and binary bounds that the manifest cannot hold (hex),
    `histograms` the columns whose partials have quantiles. `manifest` identifies the manifest of
    `version` (`lake.pin`), None in records of releases that did not store it.
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
    histograms: tuple[str, ...] = ()
    manifest: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)

    def describes(self, pin: Pin) -> bool:
        """Whether the statistics were made for the very version that a pin names."""
        return (self.version, self.manifest) == (pin.version, pin.manifest)


@dataclass(frozen=True, slots=True)
class InputRecord:
    """The record of a side of a join when it was last read.

    `digest` is over its content in row order. A Lance table has `fragments` that hold rows, the
    highest of whose ids is `last_fragment`; other sides have none. `rows` is None where they
    were not counted. Of a query, `unproven` says what kept the run from proving that equal digests
    mean equal rows: nothing when that is proven, None when that was not checked.
    """

    digest: str
    fragments: int = 0
    last_fragment: int = -1
    rows: int | None = None
    unproven: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """The identity of a join's result where it was written (`knn.work.OutputState`)."""

    rows: int
    digest: str
    version: int | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class JoinRecord:
    """The last result that a run made of a join.

    `node` is its name in the project, `digest` that of its meaning. `distances` are those that the
    run wrote, and `groups` what the last run that compared all rows found of keys; both are None
    in records of releases that did not store them.
    """

    node: str
    digest: str
    left: InputRecord
    right: InputRecord
    result: ResultRecord
    counts: JoinCounts[int]
    strategy: str
    finished_at: Instant
    accuracy: Accuracy = UNMEASURED
    distances: JoinDistances | None = None
    groups: JoinGroups | None = None


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One node's outcome in one run.

    `digest` is that of the node's meaning (`spec.digest.node_digest`), `result` its object in the
    JSON of `lancestat run`. `full_refresh` is set where everything was to be made again.
    """

    node: str
    kind: str
    digest: str
    table: str | None
    result: Mapping[str, object]
    record: TableRecord | JoinRecord | None
    full_refresh: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that ended, with one entry per node.

    Of a run whose process was killed `finished_at` is when it started.
    """

    run_id: str
    command: str
    target: str
    started_at: Instant
    finished_at: Instant
    status: str
    nodes: tuple[NodeRun, ...]


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """One node's outcome in one run, without what the run remembered of it."""

    run_id: str
    command: str
    target: str
    finished_at: Instant
    node: str
    kind: str
    result: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table's fragments in groups, and what identifies the content whose sums are stored.

    It was made for `version`, whose manifest `manifest` identifies (`lake.pin`): for that very
    manifest it holds without further proof, for any other where digests agree. `groups` are the ids
    of the fragments in each, ascending; `blocks` count the consecutive groups that are stored
    together. `contents` has, by field key, one digest per group over the fingerprints of its
    fragments (`state.grouping.group_digest`), empty where nothing is stored.
    """

    version: int
    manifest: str | None
    groups: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]
    contents: Mapping[str, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class BlockKey:
    """The content of a stored block: one field, and groups by `state.grouping.block_digest`."""

    field: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SummaryBlock:
    """The partials of consecutive groups of fragments, one for each."""

    key: BlockKey
    partials: tuple[ColumnPartial, ...]


class StateReader(Protocol):
    """The state as planning reads it."""

    def records(self) -> Mapping[str, TableRecord]:
        """The newest record of every table, by identity."""
        ...

    def joins(self) -> Mapping[str, JoinRecord]:
        """The newest record of every join, by node."""
        ...

    def digests(self) -> Mapping[str, str]:
        """By node, the digest of its meaning in the newest run that took it up."""
        ...

    def partial_index(self, table: str) -> PartialIndex:
        """Return the index of one table's partials, without reading them."""
        ...

    def partial_indexes(self, tables: Collection[str]) -> Mapping[str, PartialIndex]:
        """As `partial_index`, of some tables at once."""
        ...

    def runs(self, limit: int) -> list[RunRecord]:
        """The newest runs, newest first; those whose process was killed are interrupted ones."""
        ...

    def running(self) -> list[RunRecord]:
        """The runs that may go on now, newest first, as they would be were they killed."""
        ...

    def outcomes(self, target: str, limit: int) -> Mapping[str, tuple[NodeOutcome, ...]]:
        """By node, its newest outcomes under a target, newest first."""
        ...

    def join_results(self, target: str, limit: int) -> Mapping[str, tuple[NodeOutcome, ...]]:
        """By join, as `outcomes`, of the runs alone that wrote a result."""
        ...

    def summary(self, table: str) -> TableSummary | None:
        """The newest summary of a table, its `contents` empty where blocks are not stored."""
        ...

    def summary_blocks(self, table: str, keys: Collection[BlockKey]) -> Iterator[SummaryBlock]:
        """Stream the blocks of some keys, each once, less what is gone or does not decode."""
        ...


class StateWriter(StateReader, Protocol):
    """The state as a run writes it."""

    def partials(
        self, table: str, keys: Mapping[tuple[Fingerprint, ...], frozenset[str]]
    ) -> Iterator[StoredPartials]:
        """Stream the partials of some keys, less what is gone or does not decode."""
        ...

    def add_partials(self, table: str, stored: Iterable[StoredPartials]) -> None:
        """Append partials in one commit."""
        ...

    def begin_run(self, run: RunRecord) -> None:
        """Remember what `runs` and `outcomes` have to say should the run never be added."""
        ...

    def add_run(self, run: RunRecord) -> None:
        """Append a run in one commit, after those whose process was killed."""
        ...

    def add_summary(
        self, table: str, summary: TableSummary, blocks: Iterable[SummaryBlock]
    ) -> None:
        """Append a summary, and blocks that are not stored yet, in one commit."""
        ...

    def expire(self, live: Mapping[str, frozenset[Fingerprint]]) -> None:
        """Drop what the tables in `live` no longer need (their current fingerprints), compact."""
        ...
