"""Why an action is in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from lancestat.errors import LancestatError
from lancestat.knn.cost_model import Decision
from lancestat.knn.work import JoinWork
from lancestat.lake.fingerprint import ColumnGroup, Fingerprint, field_key
from lancestat.lake.snapshot import Field, Pin
from lancestat.plan.coverage import Coverage
from lancestat.spec.model import Node
from lancestat.state.identity import quantile_key
from lancestat.state.values import InputRecord


class Reason(str, Enum):
    """The machine-readable words of a plan; their spelling is a contract."""

    NEW = "new"
    COLUMNS_ADDED = "columns_added"
    COLUMNS_REMOVED = "columns_removed"
    SCHEMA_CHANGED = "schema_changed"
    ROWS_APPENDED = "rows_appended"
    ROWS_DELETED = "rows_deleted"
    ROWS_CHANGED = "rows_changed"
    FRAGMENTS_REWRITTEN = "fragments_rewritten"
    VERSION_MOVED = "version_moved"
    PUBLISH_MISSING = "publish_missing"
    PUBLISH_ALTERED = "publish_altered"
    POLICY_ACCEPTS = "policy_accepts"
    FULL_REFRESH = "full_refresh"
    SPEC_CHANGED = "spec_changed"
    INPUT_CHANGED = "input_changed"
    OUTPUT_MISSING = "output_missing"
    UNCHANGED = "unchanged"


SYMBOLS = {"analyze": "+", "refresh": "~"}


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """The counts that plans and runs show for a join, None where they are not known (yet).

    `left_rows` and `right_rows` are those of the whole sides; `pairs` are compared by this run, in
    `scope`. `recall` and `nprobes` tell of approximate strategies; in a plan, as far as known. Only
    a plan has `why` the strategy was chosen, and `estimated_seconds` of what it takes.
    """

    strategy: str | None = None
    scope: str | None = None
    left_rows: int | None = None
    right_rows: int | None = None
    unmatched_left_rows: int | None = None
    excluded_right_rows: int | None = None
    pairs: int | None = None
    recall: float | None = None
    nprobes: int | None = None
    why: str | None = None
    estimated_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """A join is run: `analyze` where it has no usable result yet, else `refresh`.

    `new_rows` are those that a narrowed scope joins, `stages` what it will go through. `left` and
    `right` are remembered once it is done.
    """

    kind: ClassVar[str] = "knn_join"
    node: str
    verb: str
    reasons: tuple[Reason, ...]
    figures: JoinFigures
    work: JoinWork
    decision: Decision
    left: InputRecord
    right: InputRecord
    new_rows: int | None = None
    stages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """The sign of the verb."""
        return SYMBOLS[self.verb]


def await_joins(node: Node, joins: tuple[str, ...], *, is_known: bool, full_refresh: bool) -> Await:
    """Wait for joins; `is_known` tells whether anything was made of the node before."""
    verb = "refresh" if is_known else "analyze"
    reason = Reason.INPUT_CHANGED if is_known else Reason.NEW
    return Await(node.name, node.kind.value, verb, (reason,), joins, full_refresh)


@dataclass(frozen=True, slots=True)
class Await:
    """A node reads what a join of this plan is about to write: it is planned again after that.

    `joins` are the nodes to wait for. `kind` is the node's kind.
    """

    node: str
    kind: str
    verb: str
    reasons: tuple[Reason, ...]
    joins: tuple[str, ...]
    full_refresh: bool = False

    @property
    def symbol(self) -> str:
        """The sign of the verb."""
        return SYMBOLS[self.verb]

    @property
    def notes(self) -> tuple[str, ...]:
        """What it waits for."""
        named = " and ".join(f"'{name}'" for name in self.joins)
        return (f"reads the result of {named}, and is planned in detail once that is there",)


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


def is_pending(action: Action) -> bool:
    """Whether a run would do something."""
    return not isinstance(action, Skip | Blocked)


def blocked(plan: Plan) -> tuple[Blocked, ...]:
    """The nodes that cannot be planned."""
    return tuple(action for action in plan.actions if isinstance(action, Blocked))


def table_figures(action: Action) -> Figures | None:
    """The figures of an action on a table, None where it has none (yet)."""
    if isinstance(action, Blocked | Await | Join):
        return None
    return action.figures if isinstance(action.figures, Figures) else None


def join_figures(action: Action) -> JoinFigures | None:
    """The figures of an action on a join, None where it has none (yet)."""
    if isinstance(action, Blocked | Await):
        return None
    return action.figures if isinstance(action.figures, JoinFigures) else None
