"""The result of a run and of its nodes, and past runs as the state remembers them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lancestat import codec, display
from lancestat.errors import (
    InternalError,
    LancestatError,
    Location,
    NodesFailed,
    UnknownRun,
    error_text,
)
from lancestat.formats import StringEnum, count, duration, instant
from lancestat.redact import EMPTY_REDACTOR, Audience, Redactor
from lancestat.runs.actions import (
    STATE_LACKS,
    Action,
    NodeFigures,
    SourceFindings,
    own_figures,
    table_figures,
)
from lancestat.spec.model import Node, ProjectSpec, Table
from lancestat.state.store import StateReader
from lancestat.state.values import NodeRun, RunRecord

if TYPE_CHECKING:
    from lancestat.runs.node import NodeTypes


class Status(StringEnum):
    """The outcome of a node."""

    PLANNED = "planned"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of a plan or a run, field by field as the JSON shows it.

    `message` is what there is to say of a node that failed or was not run, in a sentence. A failure
    also has the error's `code` and `hint`, and as `location` that of the error or else of the
    node's declaration; `text` has all of it. `bytes_scanned` is an estimate of bytes on disk.
    `still_published` is set where a table holds statistics of earlier runs, though its declaration
    says `publish: none`. `runs_on` is where a table is read, `process` or `spark`. `notes` are
    sentences of the plan on what was declared. `figures` are set for nodes of kinds that have their
    own, such as joins, whose objects have the fields of these too.
    """

    name: str
    kind: str
    action: str
    reasons: tuple[str, ...]
    status: Status
    fragments_total: int | None = None
    fragments_scanned: int | None = None
    columns: int | None = None
    rows_total: int | None = None
    rows_scanned: int | None = None
    bytes_scanned: int | None = None
    version_read: int | None = None
    version_published: int | None = None
    still_published: bool | None = None
    elapsed_seconds: float | None = None
    message: str | None = None
    code: str | None = None
    hint: str | None = None
    location: Location | None = None
    runs_on: str | None = None
    notes: tuple[str, ...] = ()
    figures: NodeFigures | None = None

    def __repr__(self) -> str:
        return display.summary(self, f"{self.name}: {self.action}, {self.status.value}")

    @property
    def is_lacking(self) -> bool:
        """Whether the state lacks what only it has of a table that was left as it is."""
        return STATE_LACKS in self.notes

    @property
    def end(self) -> str:
        """What was done, or `failed`, `not run`, `deferred`; `stopped` if it was interrupted."""
        return ENDED_AS.get(self.status, self.action)

    @property
    def is_failed(self) -> bool:
        return self.status is Status.ERROR

    @property
    def is_idle(self) -> bool:
        """Whether it was left as it was."""
        is_skip = self.action == "skip" and not self.is_failed
        return is_skip or self.status in (Status.SKIPPED, Status.INTERRUPTED, Status.DEFERRED)

    @property
    def is_done(self) -> bool:
        """Whether it ended well and did something."""
        return not (self.is_failed or self.is_idle)

    @property
    def has_not_begun(self) -> bool:
        """Whether the run was interrupted before it came to the node."""
        return self.message == NOT_BEGUN

    @property
    def read(self) -> str:
        """What was read of a table: `1 of 17 fragments, 250,000 rows`; empty for nothing."""
        if not self.fragments_scanned:
            return ""
        total = count(self.fragments_total or 0, "fragment")
        rows = count(self.rows_scanned or 0, "row")
        return f"{count(self.fragments_scanned)} of {total}, {rows}"

    @property
    def took(self) -> str:
        """How long it took, empty where no time was taken."""
        return "" if self.elapsed_seconds is None else duration(self.elapsed_seconds)

    @property
    def quality(self) -> tuple[str, ...]:
        """What a reader of the result of a join should know of it."""
        return () if self.figures is None or self.action == "skip" else self.figures.quality

    @property
    def text(self) -> str:
        """All that there is to say of a node that failed or was not run, as people read it."""
        message = self.message or ""
        if self.code is None:
            return message
        return error_text(self.code, message, self.location, self.hint)

    @classmethod
    def from_json(cls, stored: Mapping[str, object], types: NodeTypes) -> NodeResult:
        """Return the result that a node's object shows; unknown keys are ignored."""
        try:
            result = codec.convert({**stored, "figures": None}, cls)
            type = types.get(result.kind)
            return result if type is None else replace(result, figures=type.figures_of(stored))
        except ValueError as error:
            raise ValueError(f"not the result of a node: {error}") from None

    def redacted(self, redactor: Redactor, audience: Audience) -> NodeResult:
        """The same result with what an audience may see of its message, hint and location."""
        message, hint, location = self.message, self.hint, self.location
        if location is not None:
            location = replace(location, file=redactor.text(location.file, audience))
        return replace(
            self,
            message=None if message is None else redactor.text(message, audience),
            hint=None if hint is None else redactor.text(hint, audience),
            location=location,
            notes=tuple(redactor.text(note, audience) for note in self.notes),
        )

    def to_json(self) -> dict[str, object]:
        """Return the node's object in the JSON of `plan` and `run`."""
        members = {
            **asdict(self),
            "reasons": list(self.reasons),
            "status": self.status.value,
            "notes": list(self.notes),
        }
        del members["figures"]
        return {**members, **(self.figures.to_json() if self.figures else {})}


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What is known of something that is expected of a node, after a run.

    `check` is an expectation or a monitor as its YAML has it, `freshness` or `recall`. One that did
    not pass is a finding, of the severity `warn` or `error`. `column` is the only one that it is
    about.
    """

    node: str
    check: str
    passed: bool
    severity: str
    detail: str
    column: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the members of a finding in JSON."""
        return {name: getattr(self, name) for name in ("node", "check", "severity", "detail")}


# What is said of a node that an interrupted run did not come to.
NOT_BEGUN = "the run was interrupted before it began"
# The word for nodes that did not end well.
ENDED_AS = {
    Status.ERROR: "failed",
    Status.SKIPPED: "not run",
    Status.INTERRUPTED: "stopped",
    Status.DEFERRED: "deferred",
}


def interrupted(result: NodeResult, why: str, fragments_stored: int | None = None) -> NodeResult:
    """Return the result of a node that its run did not end."""
    to_read = result.fragments_scanned
    if fragments_stored and to_read:
        why += f"; {count(fragments_stored)} of {count(to_read, 'fragment')} to read are stored"
    return replace(
        result,
        status=Status.INTERRUPTED,
        message=why,
        fragments_scanned=None if to_read is None else fragments_stored,
        rows_scanned=None,
        bytes_scanned=None,
    )


def deferred(result: NodeResult, why: str, fragments_stored: int | None = None) -> NodeResult:
    """Return the result of a node that the budget of its run left for later."""
    return replace(interrupted(result, why, fragments_stored), status=Status.DEFERRED)


def failed(result: NodeResult, error: LancestatError) -> NodeResult:
    """Return the result of a node that failed."""
    return replace(
        result,
        status=Status.ERROR,
        message=error.message,
        code=error.code,
        hint=error.hint,
        location=error.location,
    )


def planned(action: Action) -> NodeResult:
    """Return the node of a plan that an action stands for, before it is run."""
    result = NodeResult(
        name=action.node,
        kind=action.kind,
        action=action.verb,
        reasons=tuple(reason.value for reason in action.reasons),
        status=Status.PLANNED,
        runs_on=action.runs_on.value if action.runs_on else None,
        notes=action.notes,
        figures=own_figures(action),
    )
    if action.error is not None:
        result = failed(result, action.error)
    figures = table_figures(action)
    return result if figures is None else replace(result, **asdict(figures))


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A failure of a node in a run.

    Where the error has no location of its own, `location` is where the node is declared.
    """

    node: str
    code: str
    message: str
    hint: str | None = None
    location: Location | None = None

    def __repr__(self) -> str:
        return display.summary(self, f"{self.node}: {self.code}  {self.message}")

    @classmethod
    def of(cls, result: NodeResult) -> NodeFailure:
        """Return the failure of a node whose status is `error`."""
        code = result.code or InternalError.code
        return cls(result.name, code, result.message or "", result.hint, result.location)


@dataclass(frozen=True, slots=True)
class RunResult(display.Rows):
    """The result of a run, with one row for each node. It prints as `lancestat run` does.

    Attributes:
        project: The name of the project.
        target: The name of the target.
        nodes: The result of each node.
        command: What started the run, such as `run` or `retry`.
        run_id: The ID of the run in the state.
        started_at: When the run started, in UTC.
        finished_at: When it ended, in UTC.
        sources: What the sources of the project had when the run was planned, None without sources.
        checks: What is known after the run of what is expected of its nodes.
    """

    project: str
    target: str
    nodes: tuple[NodeResult, ...]
    command: str = "run"
    run_id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    redactor: Redactor = field(default=EMPTY_REDACTOR, repr=False, compare=False)
    sources: SourceFindings | None = None
    checks: tuple[NodeCheck, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(ENDED_AS.get(node.status, node.action) for node in self.nodes)
        what = ", ".join(f"{number} {end}" for end, number in counts.items()) or "no nodes"
        target = f"{self.project}, target {self.target}"
        return display.summary(self, f"{target}: {self.status.value}, {what}")

    @property
    def status(self) -> Status:
        """`interrupted` if the run was, `error` if any node failed, else `success`."""
        statuses = {node.status for node in self.nodes}
        worst = (Status.INTERRUPTED, Status.ERROR)
        return next((status for status in worst if status in statuses), Status.SUCCESS)

    @property
    def ok(self) -> bool:
        """Whether the run was not interrupted, and no node failed."""
        return self.status is Status.SUCCESS

    @property
    def findings(self) -> tuple[NodeCheck, ...]:
        """The checks that did not pass. They do not change the status of the run."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def failures(self) -> tuple[NodeFailure, ...]:
        """The nodes that failed, each with the code, message, hint and location of its error."""
        return tuple(NodeFailure.of(node) for node in self.nodes if node.status is Status.ERROR)

    def raise_for_status(self) -> None:
        """Raise an exception unless the result is `ok`.

        Raises:
            NodesFailed: Nodes failed, or were left by a run that was interrupted. The message has
                the first line of each failure.
        """
        hint = "`failures` of the result has all of each; `Project.retry` runs them again"
        if self.failures:
            raise nodes_failed(self.failures, len(self.nodes), hint)
        if not self.ok:
            left = sum(node.status is Status.INTERRUPTED for node in self.nodes)
            raise NodesFailed(
                f"the run was interrupted: {left} of {count(len(self.nodes), 'node')} did not end",
                hint="`Project.retry` runs them",
            )


def nodes_failed(failures: Sequence[NodeFailure], nodes: int, hint: str) -> NodesFailed:
    """Return the error for failures, of so many nodes in all."""
    lines = [f"{len(failures)} of {count(nodes, 'node')} failed"]
    for failure in failures[:_FAILURES_NAMED]:
        [first, *_] = failure.message.splitlines() or [""]
        lines.append(f"{failure.node}: {failure.code}  {first}")
    if more := [failure.node for failure in failures[_FAILURES_NAMED:]]:
        lines.append(f"and {', '.join(more)}")
    return NodesFailed("\n      ".join(lines), hint=hint)


class RunInterrupted(KeyboardInterrupt):
    """A run was interrupted, and has been recorded as far as it got.

    `result` has the nodes that ended and those that did not. The text says what was kept.
    """

    def __init__(self, result: RunResult) -> None:
        super().__init__(kept_of(result))
        self.result = result


def kept_of(result: RunResult) -> str:
    """Return what is kept of an interrupted run, and how it goes on."""
    done = sum(node.status is Status.SUCCESS and node.action != "skip" for node in result.nodes)
    parts = [count(done, "node")] if done else []
    read = [
        (node.name, node.fragments_scanned)
        for node in result.nodes
        if node.status is Status.INTERRUPTED and node.fragments_scanned
    ]
    parts += [f"{count(fragments, 'fragment')} of {name}" for name, fragments in read[:_NAMED]]
    if more := read[_NAMED:]:
        fragments = sum(number for _, number in more)
        parts.append(f"{count(fragments, 'fragment')} of {count(len(more), 'other table')}")
    if not parts:
        return "nothing was stored yet; lancestat retry begins again"
    return f"kept: {', '.join(parts)}; lancestat retry goes on"


_NAMED = 3
# Failures that the message of an exception quotes.
_FAILURES_NAMED = 5

_LEFT = frozenset({Status.ERROR.value, Status.SKIPPED.value, Status.INTERRUPTED.value})
# How many of the newest runs are read, one attempt after the other: targets may share a state.
_LIMITS = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class UnfinishedNodes:
    """The nodes that the newest run of a target did not finish.

    `run` is None where none is recorded, `nodes` are declared, `gone` are no longer declared.
    `full_refresh` is set where the run was to make everything again.
    """

    run: RunRecord | None
    nodes: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    full_refresh: bool = False

    def __repr__(self) -> str:
        nodes = count(len(self.nodes), "node")
        run = f"of run {self.run.run_id}" if self.run else "and no recorded run"
        names = f": {', '.join(self.nodes)}" if self.nodes else ""
        return display.summary(self, f"{nodes} {run}{names}")

    def among(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Return those of some nodes, and the tables of sources that could not be looked up."""
        failed = {name.removeprefix("source:") for name in self.nodes if ":" in name}
        return tuple(
            node
            for node in nodes
            if node.name in self.nodes or (isinstance(node, Table) and node.source in failed)
        )


def unfinished(state: StateReader, spec: ProjectSpec) -> UnfinishedNodes:
    """Return them by the record of the newest run; only an idle run leaves no record."""
    run = _newest(state, spec)
    if run is None:
        return UnfinishedNodes(None)
    declared = {node.name for node in spec.nodes}
    declared |= {f"source:{source.label}" for source in spec.sources}
    left = [node for node in run.nodes if _is_left(run, node)]
    return UnfinishedNodes(
        run,
        tuple(node.node for node in left if node.node in declared),
        tuple(node.node for node in left if node.node not in declared),
        any(node.full_refresh for node in left),
    )


def _is_left(run: RunRecord, node: NodeRun) -> bool:
    """Whether a retry is to run a node of a run. Most that was deferred is planned anyway."""
    status = node.result.get("status")
    is_forgotten = node.full_refresh or run.command == "retry"
    return status in _LEFT or (status == Status.DEFERRED.value and is_forgotten)


def _newest(state: StateReader, spec: ProjectSpec) -> RunRecord | None:
    for limit in _LIMITS:
        runs = state.runs(limit)
        newest = next(_own(spec, runs), None)
        if newest is not None or len(runs) < limit:
            return newest
    return None


RUNNING = "running"

_log = logging.getLogger("lancestat.runs")


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a target, or one that goes on.

    `status` is `success`, `error`, `interrupted` or `running`. Of a run that goes on, and of one
    whose process was killed, `finished_at` is None, and `nodes` are those it was to do something
    with.
    """

    run_id: str
    command: str
    target: str
    status: str
    started_at: datetime
    finished_at: datetime | None
    nodes: tuple[NodeResult, ...]

    def __repr__(self) -> str:
        counts = [f"{number} {outcome}" for outcome, number in self.counts.items()]
        what = ", ".join([self.status, *counts])
        return display.summary(
            self, f"{self.command} {self.run_id} of {instant(self.started_at)}: {what}"
        )

    @classmethod
    def of(cls, run: RunRecord, types: NodeTypes, *, is_running: bool = False) -> PastRun:
        """Return a run of its record, less the nodes whose results do not decode."""
        nodes = []
        for node in run.nodes:
            try:
                result = NodeResult.from_json(node.result, types)
            except ValueError as error:
                _log.debug("a node of run %s is left out: %s", run.run_id, error)
                continue
            if is_running and result.status is Status.INTERRUPTED:
                # The mark of a run tells what there is to say once its process has been killed.
                result = replace(result, status=Status.PLANNED, message=None)
            nodes.append(result)
        was_killed = run.status == Status.INTERRUPTED.value and run.finished_at == run.started_at
        return cls(
            run.run_id,
            run.command,
            run.target,
            RUNNING if is_running else run.status,
            run.started_at,
            None if is_running or was_killed else run.finished_at,
            tuple(nodes),
        )

    @property
    def result(self) -> NodeResult:
        """The result of the node, of a run that is looked at for one node alone."""
        [result] = self.nodes
        return result

    @property
    def ended_at(self) -> datetime:
        """When it ended; when it started if its process was killed, or if it goes on."""
        return self.finished_at or self.started_at

    @property
    def elapsed(self) -> timedelta | None:
        """How long it took."""
        return None if self.finished_at is None else self.finished_at - self.started_at

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes there are by what was done: an action, `error`, `skipped` and so on."""
        as_planned = (Status.SUCCESS, Status.PLANNED)
        done = (n.action if n.status in as_planned else n.status.value for n in self.nodes)
        return dict(Counter(done).most_common())


def past_runs(
    state: StateReader, spec: ProjectSpec, limit: int | None, types: NodeTypes
) -> tuple[PastRun, ...]:
    """Return the newest runs of the target, newest first; at most `limit`, all when None.

    `types` decode the figures of nodes.
    """
    running = [PastRun.of(run, types, is_running=True) for run in _own(spec, state.running())]
    ended = [PastRun.of(run, types) for run in _own(spec, state.runs(_ALL))]
    return tuple([*running, *ended][:limit])


def _own(spec: ProjectSpec, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    # Projects and targets may share a state.
    return (run for run in runs if run.is_of(spec.name, spec.target.name))


def past_run(runs: Sequence[PastRun], run_id: str) -> PastRun:
    """Return the run whose id begins so."""
    if not run_id:
        raise UnknownRun("the ID of a run is empty", hint="lancestat runs lists them")
    named = [run for run in runs if run.run_id.startswith(run_id)]
    if len(named) == 1:
        return named[0]
    if not named:
        raise UnknownRun(f"no run '{run_id}' is recorded", hint="lancestat runs lists them")
    ids = ", ".join(run.run_id[:_ID_SHOWN] for run in named[:_IDS_LISTED])
    raise UnknownRun(f"{count(len(named), 'run')} begin with '{run_id}'", hint=f"they are {ids}")


# More than the state keeps.
_ALL = 1_000_000
_ID_SHOWN = 12
_IDS_LISTED = 5
