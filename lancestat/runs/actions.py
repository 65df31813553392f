"""Actions: what a plan does about each node, why, and in which stages.

A kind of node has stages and an action of its own (`tables.action`, `joins.action`), and figures of
its own where those of `Figures` do not suit it. What is here is the same for every kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, get_args

from lancestat import display
from lancestat.arguments import check, check_selectors
from lancestat.errors import InvalidArgument, LancestatError
from lancestat.formats import StringEnum, named, spoken
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.spec.budget import NO_BUDGET, Budget


class Stage:
    """A stage: a frozen dataclass that derives from this class."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def detail(self) -> str:
        """What progress says beside the name, such as a strategy; may be empty."""
        return ""

    @property
    def words(self) -> str:
        """What a plan says of the stage; empty where there is nothing to say."""
        return ""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The stage that a node has reached, and how far it is.

    `rows_done` of `rows_total` rows (None where they are not counted yet) are done; when probing,
    these are left rows times the parts of the right side that they meet, and `pairs_per_second`
    is the rate at which distances are computed. `note` is a sentence about what is being done.
    """

    stage: Stage
    rows_done: int = 0
    rows_total: int | None = None
    pairs_per_second: float | None = None
    note: str | None = None


OnStage = Callable[[StageProgress], None]


def ignore_progress(progress: StageProgress) -> None:
    """Ignore progress."""


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


Verb = Literal["analyze", "refresh", "restamp", "skip", "defer", "blocked"]


_LACKS = (
    "the state lacks what only it has of this table: bounds of strings and binary, and what rules "
    "out fragments and answers aggregates, come back with"
)
# Notes on tables whose published statistics are left as they are; `UNRECORDED` where it has not
# been looked whether partials are stored.
STATE_LACKS = f"{_LACKS} --full-refresh"
UNRECORDED = f"{_LACKS} the next run where their partials are stored, and else with --full-refresh"


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that a plan shows of what it reads of a table.

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


class NodeFigures(Protocol):
    """The figures of a kind of node that has its own, in plans and in results of runs."""

    @property
    def pairs(self) -> int | None:
        """How many comparisons are made, None where that is not known."""

    @property
    def estimated_seconds(self) -> float | None:
        """How long a run takes, as far as a plan can tell."""

    @property
    def compared(self) -> str:
        """What a run compared, in words."""

    @property
    def done(self) -> str:
        """What a run did, in words."""

    @property
    def narrowed(self) -> str:
        """The part of what there is that a run did, in words; empty where that is all."""

    @property
    def quality(self) -> tuple[str, ...]:
        """What a reader of the result should know of it, in words."""

    def to_json(self) -> dict[str, object]:
        """Return the figures as members of a node's object in the JSON of `plan` and `run`."""


class RunsOn(StringEnum):
    """Where fragments are read; their spelling is a contract."""

    PROCESS = "process"
    SPARK = "spark"


class Action(Protocol):
    """What a run does about one node."""

    @property
    def node(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def verb(self) -> Verb: ...
    @property
    def reasons(self) -> tuple[Reason, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def figures(self) -> Figures | NodeFigures | None: ...
    @property
    def stages(self) -> Iterable[Stage]: ...
    @property
    def dependencies(self) -> tuple[str, ...]:
        """The nodes of the plan whose results it reads."""

    @property
    def error(self) -> LancestatError | None:
        """Why the node is blocked, None unless it is."""

    @property
    def runs_on(self) -> RunsOn | None: ...
    @property
    def reads(self) -> str:
        """What it reads or compares, in words; empty where that is nothing or not known."""

    @property
    def choice(self) -> str | None:
        """How it is done where there are several ways, and why, in words."""

    @property
    def shows_choice(self) -> bool:
        """Whether the choice is worth a line of a plan."""

    def part(self, size_bytes: int) -> Action | None:
        """Return what can be done of it by reading so many bytes, None where nothing can."""


class NodeAction:
    """What the actions of a kind need not say."""

    __slots__ = ()

    @property
    def runs_on(self) -> RunsOn | None:
        return None

    @property
    def reads(self) -> str:
        return ""

    @property
    def choice(self) -> str | None:
        return None

    @property
    def shows_choice(self) -> bool:
        return True

    def part(self, size_bytes: int) -> Action | None:
        return None


def action_summary(action: Action) -> str:
    """Return the `repr` of an action."""
    why = action.error.code if action.error else spoken(reason.value for reason in action.reasons)
    return display.summary(action, f"{action.verb} {action.node}: {why}")


@dataclass(frozen=True, slots=True)
class Dependent(NodeAction):
    """A node reads what others of this plan are about to write, and is planned again after them."""

    error: ClassVar[None] = None
    stages: ClassVar[tuple[()]] = ()
    node: str
    kind: str
    verb: Verb
    reasons: tuple[Reason, ...]
    dependencies: tuple[str, ...]
    full_refresh: bool = False
    figures: NodeFigures | None = None

    __repr__ = action_summary

    @property
    def notes(self) -> tuple[str, ...]:
        """The nodes that it depends on."""
        names = " and ".join(f"'{name}'" for name in self.dependencies)
        return (f"reads the result of {names}, and is planned in detail once that is there",)


@dataclass(frozen=True, slots=True)
class Skip(NodeAction):
    """Nothing to do. `kind` is the node's kind, and the figures are of that kind.

    `stages` are those that tidy up what the state has of the node.
    """

    verb: ClassVar[Verb] = "skip"
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    node: str
    reasons: tuple[Reason, ...]
    figures: Figures | NodeFigures | None
    notes: tuple[str, ...] = ()
    kind: str = "table"
    stages: tuple[Stage, ...] = ()

    __repr__ = action_summary


@dataclass(frozen=True, slots=True)
class Deferred(NodeAction):
    """The budget of the run leaves the node for later. `reasons` are why it is to be run.

    `why` completes the sentence "deferred: ...".
    """

    NOT_DIGESTED: ClassVar[frozenset[str]] = frozenset({"why"})
    verb: ClassVar[Verb] = "defer"
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    stages: ClassVar[tuple[()]] = ()
    node: str
    kind: str
    reasons: tuple[Reason, ...]
    figures: Figures | NodeFigures | None
    why: str

    __repr__ = action_summary

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"deferred: {self.why}",)


@dataclass(frozen=True, slots=True)
class Blocked(NodeAction):
    """The node cannot be planned; the error says why. `kind` is the node's kind."""

    verb: ClassVar[Verb] = "blocked"
    reasons: ClassVar[tuple[Reason, ...]] = ()
    notes: ClassVar[tuple[str, ...]] = ()
    dependencies: ClassVar[tuple[str, ...]] = ()
    stages: ClassVar[tuple[()]] = ()
    node: str
    kind: str
    error: LancestatError
    figures: NodeFigures | None = None

    __repr__ = action_summary


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
class Plan(display.Rows):
    """Ordered, frozen actions; what `lancestat plan` prints is what `lancestat run` does.

    `full_refresh` is set where everything is made again on request, `sources` where the project has
    sources. `spark_start_seconds` estimates how long Spark takes to start, 0 where a run starts
    none, None where that is not known. Under a `budget`, nodes are begun in the order of `ranks`,
    lowest first. It prints as `lancestat plan` does, and has a row per action.
    """

    project: str
    target: str
    actions: tuple[Action, ...]
    full_refresh: bool = False
    sources: SourceFindings | None = None
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    spark_start_seconds: float | None = field(default=0.0, compare=False)
    budget: Budget = NO_BUDGET
    ranks: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def join_seconds(self) -> float | None:
        """The estimated time of all joins, None if that of one is not known."""
        figures = map(own_figures, filter(is_pending, self.actions))
        estimates = [joins.estimated_seconds for joins in figures if joins is not None]
        known = [seconds for seconds in estimates if seconds is not None]
        return sum(known) if len(known) == len(estimates) else None

    def __repr__(self) -> str:
        verbs = Counter(action.verb for action in self.actions)
        counts = [f"{verbs[verb]} {verb}" for verb in get_args(Verb) if verbs[verb]]
        what = ", ".join(counts) or "no nodes"
        return display.summary(self, f"{self.project}, target {self.target}: {what}")


def is_pending(action: Action) -> bool:
    """Whether a run would do something."""
    return not isinstance(action, Skip | Blocked | Deferred)


def is_idle(action: Action) -> bool:
    """Whether a node stays as it is, and what the state has of it, too."""
    return action.verb == "skip" and not any(action.stages)


def has_work(action: Action) -> bool:
    """Whether a run would do something, if only to what the state has of a node that is skipped."""
    return is_pending(action) or any(action.stages)


def needs_spark(action: Action) -> bool:
    """Whether a run would do something for which Spark has to be there."""
    if not is_pending(action) or action.runs_on is RunsOn.PROCESS:
        return False
    return own_figures(action) is not None or action.runs_on is RunsOn.SPARK


def table_figures(action: Action) -> Figures | None:
    """The figures of what an action reads of a table, None where it has none (yet)."""
    return action.figures if isinstance(action.figures, Figures) else None


def own_figures(action: Action) -> NodeFigures | None:
    """The figures that nodes of a kind have in place of those of tables, None for tables."""
    return None if isinstance(action.figures, Figures) else action.figures


def check_plan(plan: object, select: object, exclude: object, *budget: object) -> None:
    """Refuse what is no plan, and what goes without one.

    Raises:
        InvalidArgument: An argument is of a wrong kind, or conflicts with the plan.
    """
    hint = f"select={plan!r}" if isinstance(plan, str) else None
    is_right = plan is None or isinstance(plan, Plan)
    check("plan", plan, is_right, "what `plan` or `load_plan` returns", hint=hint)
    check_selectors(select=select, exclude=exclude)
    if plan is not None and not (select is None and exclude is None):
        raise InvalidArgument("select and exclude go without a plan, which has its nodes already")
    if plan is not None and any(bound is not None for bound in budget):
        raise InvalidArgument("max_bytes and max_minutes go without a plan, which has its budget")
