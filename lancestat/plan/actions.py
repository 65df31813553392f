"""A plan is data: what will be done to each node, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lancestat.errors import LancestatError
from lancestat.lake.fingerprint import ColumnGroup, Fingerprint, field_key
from lancestat.lake.pin import Pin
from lancestat.lake.snapshot import Field
from lancestat.plan.coverage import Coverage
from lancestat.plan.join_actions import Await, Join, JoinFigures
from lancestat.plan.reason import Reason
from lancestat.state.keys import quantile_key


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns of one fragment that must be read.

    `rows` are its live rows, `size_bytes` estimates the bytes on disk of the columns.
    """

    fragment_id: int
    fingerprint: Fingerprint
    fields: frozenset[str]
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TableWork:
    """What analyzing a table at one version takes: what to scan, to carry over and to reuse.

    `table` is the state's identity of the dataset, `fields` the analyzed columns, `live` their
    fingerprints at that version and `groups` where they belong; `config` is the manifest's.
    `histograms` names the columns whose partials need quantiles.
    """

    pin: Pin
    table: str
    config: Mapping[str, str]
    fields: tuple[Field, ...]
    schema_hash: str
    content_digest: str
    rows: int
    fragments: int
    live: frozenset[Fingerprint]
    scans: tuple[Scan, ...]
    coverage: Coverage
    publish: bool
    histograms: frozenset[str] = frozenset()
    groups: tuple[ColumnGroup, ...] = ()

    @property
    def uri(self) -> str:
        """How the project names the dataset."""
        return self.pin.uri

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.pin.version

    def stored_key(self, field: Field) -> str:
        """The key of the partials that a column needs (`state.keys`)."""
        key = field_key(field)
        return quantile_key(key) if field.name in self.histograms else key


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

    verb: ClassVar[str] = "analyze"
    symbol: ClassVar[str] = "+"
    kind: ClassVar[str] = "table"
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refresh:
    """Some fragments or columns are new, or what is published must be written again."""

    verb: ClassVar[str] = "refresh"
    symbol: ClassVar[str] = "~"
    kind: ClassVar[str] = "table"
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restamp:
    """The rows are those that the statistics describe; only the version moved.

    `values` are the statistics entries that still hold, `bounds` those that only the state holds.
    """

    verb: ClassVar[str] = "restamp"
    symbol: ClassVar[str] = "="
    kind: ClassVar[str] = "table"
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures
    work: TableWork
    values: tuple[tuple[str, str], ...]
    bounds: tuple[tuple[str, tuple[str, str]], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do. `kind` is the node's kind, and the figures are of that kind."""

    verb: ClassVar[str] = "skip"
    symbol: ClassVar[str] = "."
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures | JoinFigures
    notes: tuple[str, ...] = ()
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The node cannot be planned; the error says why. `kind` is the node's kind."""

    verb: ClassVar[str] = "blocked"
    symbol: ClassVar[str] = "!"
    node: str
    kind: str
    error: LancestatError


TableAction = Analyze | Refresh | Restamp
Action = TableAction | Join | Await | Skip | Blocked


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered, frozen actions; what `lancestat plan` prints is what `lancestat run` does.

    `full_refresh` tells that everything was asked to be made again.
    """

    project: str
    target: str
    actions: tuple[Action, ...]
    full_refresh: bool = False
