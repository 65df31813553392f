"""A plan is data: what will be done to each node, and why."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.errors import LancestatError
from lancestat.lake.fingerprint import Fingerprint
from lancestat.lake.snapshot import Field
from lancestat.plan.coverage import Coverage
from lancestat.plan.reason import Reason


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns of one fragment that must be read; `size_bytes` estimates their bytes on disk."""

    fragment_id: int
    fingerprint: Fingerprint
    fields: frozenset[str]
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TableWork:
    """What analyzing a table at one version takes: fragments to scan, stored partials to carry over and to reuse.

    `table` is the state's identity of the dataset, `fields` are the analyzed columns, `live` all fingerprints of
    the version that is read.
    """

    uri: str
    table: str
    version: int
    fields: tuple[Field, ...]
    schema_hash: str
    content_digest: str
    rows: int
    live: frozenset[Fingerprint]
    scans: tuple[Scan, ...]
    coverage: Coverage
    publish: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """The counts that a plan shows for a table."""

    fragments_total: int
    fragments_scanned: int
    columns: int
    rows_total: int
    rows_scanned: int
    bytes_scanned: int
    version_read: int


@dataclass(frozen=True, slots=True)
class Analyze:
    """Nothing usable yet: statistics are made."""

    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refresh:
    """Some fragments or columns are new, or what is published must be written again."""

    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restamp:
    """The rows are those that the statistics describe; only the version moved."""

    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    values: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do."""

    node: str
    reasons: tuple[Reason, ...]
    figures: Figures | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The node cannot be planned; the error says why. `kind` is the node's kind."""

    node: str
    kind: str
    error: LancestatError


Action = Analyze | Refresh | Restamp | Skip | Blocked


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered, frozen actions; what `lancestat plan` prints is what `lancestat run` does."""

    project: str
    target: str
    actions: tuple[Action, ...]
