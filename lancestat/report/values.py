"""Reports of nodes as values, and their facts in words, for every command and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import assert_never

from lancestat import display
from lancestat.errors import LancestatError
from lancestat.formats import StringEnum, age, count, format_instant, roughly, visible
from lancestat.nodes import NODE_TYPES
from lancestat.redact import EMPTY_REDACTOR, Redactor, redact_line
from lancestat.runs.actions import Action, Plan, Reason, SourceFindings
from lancestat.runs.node import Observed
from lancestat.runs.result import NodeCheck, PastRun, Status
from lancestat.spec.model import Node, ProjectSpec
from lancestat.state.history import HistoryPoint
from lancestat.state.store import StateReader


class Health(StringEnum):
    """Whether a node is well; `error` is outside of its policy, failed or unreadable."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What is known of a node; kinds of which more is known derive theirs.

    `problems` says in sentences what is wrong, and `health` sums it up. `verdict` is `current` (a
    run would skip it), `behind` (a run would do something, for `reasons` as plans spell them),
    `absent` (no result yet) or `blocked` (`error` says why). `runs` are the newest first, of this
    node alone, and `history` is what runs found of it, the oldest first, where it was asked for.
    """

    spec: Any
    health: Health
    problems: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...] = ()
    error: LancestatError | None = None
    runs: tuple[PastRun, ...] = ()
    history: tuple[HistoryPoint, ...] = ()

    def __repr__(self) -> str:
        what = ", ".join((self.health.value, *self.problems))
        return display.summary(self, f"{self.spec.name}: {what}")

    @property
    def made_at(self) -> datetime | None:
        """When what the node keeps was made."""
        return None

    @property
    def changed_at(self) -> datetime | None:
        """When rows last changed, as far as that is known of this kind of node."""
        return None

    def node_checks(self, now: datetime) -> Iterator[NodeCheck]:
        """Yield what is known of what is expected of the node; this kind expects nothing."""
        yield from ()

    @property
    def words(self) -> Mapping[str, str]:
        """The columns of `lancestat status` that this kind has: `verdict` and others."""
        return {"verdict": self.verdict}

    def cells(self) -> dict[str, object]:
        """Return the cells of the node's row that this kind has."""
        return {"reasons": list(self.reasons), "computed_at": self.made_at}

    def to_json(self, now: datetime) -> dict[str, object]:
        """Return the members of the node's object in the JSON of `status` that this kind has."""
        made_at = self.made_at
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "detail": self.error.message if self.error else None,
            "computed_at": format_instant(made_at) if made_at else None,
            "age_seconds": seconds_since(made_at, now),
        }


NodeRuns = Mapping[str, tuple[PastRun, ...]]


def runs_by_node(
    state: StateReader, spec: ProjectSpec, limit: int, kind: str | None = None
) -> NodeRuns:
    """Return the newest runs of each node, newest first, each with that node alone."""
    whose = spec.name, spec.target.name
    recorded = state.recorded(kind, *whose, limit) if kind else state.outcomes(*whose, limit)
    runs = {node: [PastRun.of(run, NODE_TYPES) for run in some] for node, some in recorded.items()}
    return {node: tuple(run for run in some if run.nodes) for node, some in runs.items()}


class Reporter:
    """Makes reports of nodes from an observed plan.

    A kind of which more is known than what a run would do has a reporter of its own. `histories`
    are those of nodes by the keys of their records, also where they are not to be in the report.
    `with_fragments` and `with_histograms` ask for those of tables, too.
    """

    def __init__(
        self,
        plan: Plan,
        observed: Observed,
        now: datetime,
        histories: Mapping[str, Sequence[HistoryPoint]],
        *,
        with_fragments: bool = False,
        with_histograms: bool = False,
    ) -> None:
        self.actions = {action.node: action for action in plan.actions}
        self.observed = observed
        self.now = now
        self.histories = histories
        self.with_fragments = with_fragments
        self.with_histograms = with_histograms

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read at once what the reports of some nodes need; called before they are made."""

    def look(self, node: Any) -> None:
        """Read what the report of one node needs; called for several nodes at once."""

    def report(self, node: Any, runs: tuple[PastRun, ...]) -> NodeReport:
        """Return the report of a node, with its runs, also of one that cannot be observed."""
        action = self.actions[node.name]
        problems = [*shortcomings(action), *failed(runs, self.now, action.error)]
        return NodeReport(**planned_facts(node, action, problems), runs=runs)


def planned_facts(node: Any, action: Action, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the members of a report that follow from what a run would do."""
    return {
        "spec": node,
        "health": worst(problems),
        "problems": tuple(sentence for _, sentence in problems),
        "verdict": verdict_of(action),
        "reasons": tuple(reason.value for reason in action.reasons),
        "error": action.error,
    }


def verdict_of(action: Action) -> str:
    """Return what an action says of a node's result."""
    match action.verb:
        case "blocked":
            return "blocked"
        case "skip":
            return "current"
        case "analyze":
            # What has no usable result is analyzed.
            return "absent"
        case "refresh" | "restamp" | "defer":
            return "behind"
        case _:
            assert_never(action.verb)


def shortcomings(action: Action) -> list[Problem]:
    """Return what is wrong with a node of which a run would do something."""
    if action.error is not None:
        return [unreadable(action.error)]
    why = ", ".join(reason.value.replace("_", " ") for reason in action.reasons)
    match verdict_of(action):
        case "behind":
            return [problem(Health.WARN, f"its result is behind: {why}")]
        case "absent":
            is_new = Reason.NEW in action.reasons
            text = "it has no result yet" if is_new else f"its result is not there: {why}"
            return [problem(Health.ERROR, text)]
    return []


@dataclass(frozen=True, slots=True)
class ProjectReport(display.Rows):
    """A project under one target, at one moment; `reads` names the nodes that each node reads.

    `former_runs` are runs of nodes that the project no longer has, none where nodes were selected.
    `sources` is what the sources of the project have, None where it has none. It prints as
    `lancestat status` does, and has a row per node.
    """

    name: str
    target: str
    made_at: datetime
    nodes: tuple[NodeReport, ...]
    reads: Mapping[str, tuple[str, ...]]
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    former_runs: tuple[PastRun, ...] = ()
    sources: SourceFindings | None = None

    def __repr__(self) -> str:
        numbers = Counter(node.health for node in self.nodes)
        counts = [f"{numbers[health]} {health.value}" for health in Health if numbers[health]]
        what = ", ".join(counts) or "no nodes"
        return display.summary(self, f"{self.name}, target {self.target}: {what}")

    @property
    def health(self) -> Health:
        """The worst of all nodes."""
        order = list(Health)
        return max((node.health for node in self.nodes), key=order.index, default=Health.OK)


# Something that is wrong, and how bad it is.
Problem = tuple[Health, str]


def problem(health: Health, text: str) -> Problem:
    """Return a problem on one line that begins and ends like a sentence."""
    line = " ".join(text.split())
    end = "" if line.endswith((".", "!", "?")) else "."
    return health, f"{line[:1].upper()}{line[1:]}{end}"


def worst(problems: Iterable[Problem]) -> Health:
    """The health of a node with these problems."""
    order = list(Health)
    return max((health for health, _ in problems), key=order.index, default=Health.OK)


def unreadable(error: LancestatError) -> Problem:
    """Return the problem of a node that cannot be observed."""
    location = f" {error.location}" if error.location else ""
    hint = f" ({error.hint})" if error.hint else ""
    return problem(Health.ERROR, f"{error.code}{location}: {error.message}{hint}")


def failed(
    runs: Sequence[PastRun], now: datetime, error: LancestatError | None = None
) -> list[Problem]:
    """A last run that failed, unless it failed of what is still wrong: `error`.

    One that was interrupted or deferred is a warning: nothing says that the node is wrong.
    """
    if runs and runs[0].result.status in (Status.INTERRUPTED, Status.DEFERRED):
        ago = age(max(now - runs[0].ended_at, timedelta()))
        text = f"its last run was {runs[0].result.status.value} {ago} ago: {runs[0].result.message}"
        return [problem(Health.WARN, text)]
    if not runs or runs[0].result.status is not Status.ERROR:
        return []
    if error is not None and error.message in (runs[0].result.message or ""):
        return []
    ago = age(max(now - runs[0].ended_at, timedelta()))
    lines = runs[0].result.text.splitlines() or ["it did not say why"]
    return [problem(Health.ERROR, f"its last run failed {ago} ago: {lines[0]}")]


def seconds_since(instant: datetime | None, now: datetime) -> float | None:
    """Return an age as JSON has it."""
    return None if instant is None else max(0.0, (now - instant).total_seconds())


# What a count of nodes is called.
_COUNTED = {
    Health.OK: ("ok", "ok"),
    Health.WARN: ("warning", "warnings"),
    Health.ERROR: ("error", "errors"),
}


def status_words(node: NodeReport, now: datetime) -> dict[str, str]:
    """Return the texts of one node on a line, by column, without secrets; empty for nothing.

    `verdict` is the word that matters most. `behind` counts versions and `changed` is the share of
    rows that changed since, where there are any. `columns` tells how many of the wanted ones have
    statistics. `age` is that of the statistics or of the join's result, `rows_age` that of the
    newest rows.
    """
    return {
        "name": one_line(node.spec.name),
        "health": node.health.value,
        **{"behind": "", "changed": "", "columns": "", **node.words},
        "age": _since(node.made_at, now),
        "rows_age": _since(node.changed_at, now),
        "last_run": _last_run(node.runs[0], now) if node.runs else "",
    }


def health_counts(nodes: Iterable[NodeReport]) -> tuple[tuple[str, str], ...]:
    """Return how many nodes are of each health that a node has, the best first."""
    numbers = Counter(node.health for node in nodes)
    return tuple(
        (count(numbers[health], *_COUNTED[health]), health.value)
        for health in Health
        if numbers[health]
    )


def one_line(text: str) -> str:
    """Return a text on one line, without secrets, whose characters can all be seen."""
    return visible(redact_line(text))


def _since(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else roughly(now - moment)


def _last_run(run: PastRun, now: datetime) -> str:
    """Return what it did, when, and how long it took: `refresh 2 h ago, 250,000 rows, 1.2 s`."""
    result, figures = run.result, run.result.figures
    parts = [f"{visible(result.end)} {_since(run.ended_at, now)} ago"]
    if result.is_done and figures is None:
        rows = count(result.rows_scanned or 0, "row")
        parts.append(rows if result.rows_scanned else "nothing read")
    elif result.is_done and figures and figures.compared and figures.pairs is not None:
        parts.append(figures.compared)
    if result.took and result.action != "skip":
        parts.append(result.took)
    return ", ".join(parts)
