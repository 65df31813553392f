"""Actions: what a plan does about each node, why, and in which stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from lancestat import codec, display
from lancestat.errors import LancestatError
from lancestat.formats import StringEnum, named, spoken
from lancestat.joins.measures import JOIN_MEASURES, UNCOUNTED, UNMEASURED, Accuracy, JoinCounts
from lancestat.joins.record import InputRecord
from lancestat.joins.search.cost_model import Decision, JoinSize
from lancestat.joins.search.work import JoinWork
from lancestat.lake.fingerprint import ColumnGroup, Fingerprint, field_key
from lancestat.lake.snapshot import Field, Pin
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.runs.stages import JoinStages, ReadFragments, RunsOn, Scan, TableStage
from lancestat.spec.model import Node, NodeKind
from lancestat.state.identity import quantile_key


class Reason(StringEnum):
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
    RULES_CHANGED = "rules_changed"
    POLICY_ACCEPTS = "policy_accepts"
    FULL_REFRESH = "full_refresh"
    SPEC_CHANGED = "spec_changed"
    INPUT_CHANGED = "input_changed"
    OUTPUT_MISSING = "output_missing"
    UNCHANGED = "unchanged"


Verb = Literal["analyze", "refresh", "restamp", "skip", "blocked"]


# A note on tables whose published statistics are left as they are.
STATE_LACKS = (
    "the state lacks what only it has of this table: bounds of strings and binary, and what rules "
    "out fragments and answers aggregates, come back with --full-refresh"
)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that a plan shows for a table.

    `still_published` is set where statistics that lancestat published earlier are in the table,
    and its declaration says `publish: none`.
    """

    fragments_total: int
    fragments_scanned: int
    columns: int
    rows_total: int
    rows_scanned: int
    bytes_scanned: int
    version_read: int
    still_published: bool = False


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """The figures that plans and runs show for a join, None where they are not known (yet).

    `pairs` are compared by this run, in `scope`, and in `groups` of rows with equal keys where
    there are keys. Where keys are compared, a plan has the groups of the last run, and estimates
    the pairs from those of that run. Only a plan has `why` the strategy was chosen, and
    `estimated_seconds` of the run.
    """

    strategy: str | None = None
    scope: str | None = None
    counts: JoinCounts[int | None] = UNCOUNTED
    pairs: int | None = None
    accuracy: Accuracy = UNMEASURED
    why: str | None = None
    estimated_seconds: float | None = None
    groups: int | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> JoinFigures:
        """Return the figures that the object of a node shows; raises ValueError on others."""
        members = {**cls().to_json(), **stored}
        return codec.convert(codec.nested(members, *JOIN_MEASURES), cls)

    def to_json(self) -> dict[str, object]:
        """Return the figures as members of a node's object in the JSON of `plan` and `run`."""
        return codec.flattened(codec.builtins(self), *JOIN_MEASURES)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table at one version, with the columns to keep statistics on.

    `identity` is the state's name for the dataset, `fields` the analyzed columns, `live` their
    fingerprints at that version and `groups` where they belong; `config` is the manifest's.
    `histograms` names the columns whose partials need quantiles, and `newest_fragment` is that of
    the snapshot.
    """

    pin: Pin
    identity: str
    config: Mapping[str, str]
    fields: tuple[Field, ...]
    schema_hash: str
    content_digest: str
    rows: int
    fragments: int
    live: frozenset[Fingerprint]
    histograms: frozenset[str] = frozenset()
    groups: tuple[ColumnGroup, ...] = ()
    newest_fragment: str = ""

    @property
    def uri(self) -> str:
        """The URI by which the project names the dataset."""
        return self.pin.uri

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.pin.version

    def stored_key(self, field: Field) -> str:
        """Return the key of the partials that a column needs (`state.identity`)."""
        key = field_key(field)
        return quantile_key(key) if field.name in self.histograms else key


def _action_summary(action: Action) -> str:
    why = action.error.code if action.error else spoken(reason.value for reason in action.reasons)
    return display.summary(action, f"{action.verb} {action.node}: {why}")


@dataclass(frozen=True, slots=True)
class TableAction:
    """Bring the statistics of a table up to date.

    The verb is `analyze` where there is nothing usable yet, `refresh` where some fragments or
    columns are new or what is published must be written again, and `restamp` where the rows are
    those that the statistics describe and only the version moved.
    """

    kind: ClassVar[str] = NodeKind.TABLE.value
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    node: str
    verb: Verb
    reasons: tuple[Reason, ...]
    figures: Figures
    table: TableVersion
    stages: tuple[TableStage, ...]
    notes: tuple[str, ...] = ()

    __repr__ = _action_summary

    @property
    def reading(self) -> ReadFragments | None:
        """The stage that reads fragments, None where nothing has to be read."""
        return next((stage for stage in self.stages if isinstance(stage, ReadFragments)), None)

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The fragments that are read."""
        return self.reading.scans if self.reading else ()

    @property
    def runs_on(self) -> RunsOn | None:
        """Where fragments are read, None where nothing has to be read."""
        return self.reading.runs_on if self.reading else None


@dataclass(frozen=True, slots=True)
class JoinAction:
    """Run a join: `analyze` where it has no usable result yet, else `refresh`.

    `sides` are the sizes of the whole sides, and `new_rows` the rows that a narrowed scope joins.
    `left` and `right` are remembered once it is done, and None where the sides are DataFrames.
    `known` is the accuracy of the last result, as far as the join goes on from it.
    """

    kind: ClassVar[str] = NodeKind.KNN_JOIN.value
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    runs_on: ClassVar[None] = None
    node: str
    verb: Verb
    reasons: tuple[Reason, ...]
    work: JoinWork
    sides: JoinSize
    decision: Decision
    stages: JoinStages
    left: InputRecord | None = None
    right: InputRecord | None = None
    new_rows: int | None = None
    known: Accuracy = UNMEASURED
    notes: tuple[str, ...] = ()

    __repr__ = _action_summary

    @property
    def figures(self) -> JoinFigures:
        """The counts that a plan shows."""
        decision = self.decision
        seconds = None if decision.seconds is None else round(decision.seconds, 1)
        return JoinFigures(
            strategy=decision.strategy.value,
            scope=self.work.scope.value,
            counts=JoinCounts(self.sides.left_rows, self.sides.right_rows, None, None),
            pairs=decision.pairs,
            accuracy=self.known,
            why=decision.why,
            estimated_seconds=seconds,
            groups=None if self.sides.groups is None else self.sides.groups.groups,
        )


@dataclass(frozen=True, slots=True)
class Deferred:
    """A node reads what joins of this plan are about to write, and is planned again after them."""

    error: ClassVar[None] = None
    figures: ClassVar[None] = None
    runs_on: ClassVar[None] = None
    stages: ClassVar[tuple[()]] = ()
    node: str
    kind: str
    verb: Verb
    reasons: tuple[Reason, ...]
    dependencies: tuple[str, ...]
    full_refresh: bool = False

    __repr__ = _action_summary

    @property
    def notes(self) -> tuple[str, ...]:
        """The joins that it depends on."""
        names = " and ".join(f"'{name}'" for name in self.dependencies)
        return (f"reads the result of {names}, and is planned in detail once that is there",)


def deferred(
    node: Node, dependencies: tuple[str, ...], *, is_known: bool, full_refresh: bool
) -> Deferred:
    """Defer a node to joins; `is_known` is set where an earlier run made the node."""
    verb: Verb = "refresh" if is_known else "analyze"
    reason = Reason.INPUT_CHANGED if is_known else Reason.NEW
    return Deferred(node.name, node.kind.value, verb, (reason,), dependencies, full_refresh)


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do. `kind` is the node's kind, and the figures are of that kind."""

    verb: ClassVar[Verb] = "skip"
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    runs_on: ClassVar[None] = None
    stages: ClassVar[tuple[()]] = ()
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures | JoinFigures
    notes: tuple[str, ...] = ()
    kind: str = "table"

    __repr__ = _action_summary


@dataclass(frozen=True, slots=True)
class Blocked:
    """The node cannot be planned; the error says why. `kind` is the node's kind."""

    verb: ClassVar[Verb] = "blocked"
    reasons: ClassVar[tuple[Reason, ...]] = ()
    notes: ClassVar[tuple[str, ...]] = ()
    dependencies: ClassVar[tuple[str, ...]] = ()
    figures: ClassVar[None] = None
    runs_on: ClassVar[None] = None
    stages: ClassVar[tuple[()]] = ()
    node: str
    kind: str
    error: LancestatError

    __repr__ = _action_summary


# All of them have `node`, `kind`, `verb`, `reasons`, `notes`, `stages`, `figures`, `runs_on`,
# `dependencies` and `error`, which is None unless the node is blocked.
Action = TableAction | JoinAction | Deferred | Skip | Blocked


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """What the sources of a project have, compared with what earlier runs knew.

    `found` counts all their tables. `new` names the planned ones that no run has taken up, `gone`
    the tables of the last runs that nothing declares or finds any more; None where a source could
    not be looked up. `notes` are sentences about patterns.
    """

    found: int
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] | None = ()
    notes: tuple[str, ...] = ()


def gone_words(sources: SourceFindings | None) -> str:
    """Return a sentence on the tables that are gone, empty where there are none or none known."""
    if sources is None or not sources.gone:
        return ""
    return f"Gone since the last run: {named(sources.gone)}; 'lancestat gc' drops their state."


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered, frozen actions; what `lancestat plan` prints is what `lancestat run` does.

    `full_refresh` is set where everything is made again on request, `sources` where the project has
    sources. `spark_start_seconds` estimates how long Spark takes to start, 0 where a run starts
    none, None where that is not known. It prints as `lancestat plan` does, and has a row per
    action.
    """

    project: str
    target: str
    actions: tuple[Action, ...]
    full_refresh: bool = False
    sources: SourceFindings | None = None
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    spark_start_seconds: float | None = field(default=0.0, compare=False)

    @property
    def join_seconds(self) -> float | None:
        """The estimated time of all joins, None if that of one is not known."""
        joins = [join_figures(action) for action in self.actions if _runs_join(action)]
        estimates = [None if join is None else join.estimated_seconds for join in joins]
        known = [seconds for seconds in estimates if seconds is not None]
        return sum(known) if len(known) == len(estimates) else None

    def __repr__(self) -> str:
        verbs = Counter(action.verb for action in self.actions)
        counts = [f"{verbs[verb]} {verb}" for verb in get_args(Verb) if verbs[verb]]
        what = ", ".join(counts) or "no nodes"
        return display.summary(self, f"{self.project}, target {self.target}: {what}")

    __str__ = display.as_text
    _repr_html_ = display.as_html
    to_arrow = display.to_arrow
    to_pandas = display.to_pandas
    to_polars = display.to_polars


def is_pending(action: Action) -> bool:
    """Whether a run would do something."""
    return not isinstance(action, Skip | Blocked)


def _runs_join(action: Action) -> bool:
    return is_join(action) and is_pending(action)


def needs_spark(action: Action) -> bool:
    """Whether a run would do something for which Spark has to be there."""
    return _runs_join(action) or action.runs_on is RunsOn.SPARK


def table_figures(action: Action) -> Figures | None:
    """The figures of an action on a table, None where it has none (yet)."""
    return action.figures if isinstance(action.figures, Figures) else None


def join_figures(action: Action) -> JoinFigures | None:
    """The figures of an action on a join, None where it has none (yet)."""
    return action.figures if isinstance(action.figures, JoinFigures) else None


def is_join(action: Action) -> bool:
    """Whether the node is a join, whatever is done about it."""
    return action.kind == JoinAction.kind
