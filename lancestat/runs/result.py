"""The result of a run, its progress, and what the newest run left undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from lancestat import display
from lancestat.errors import InternalError, Location, NodesFailed
from lancestat.formats import count
from lancestat.redact import EMPTY_REDACTOR, Redactor
from lancestat.runs.actions import SourceFindings
from lancestat.runs.node_result import ENDED_AS, NodeResult, Status
from lancestat.runs.stages import StageProgress
from lancestat.state.values import RunRecord, StateReader


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The fragments and bytes of a table that are to be read."""

    node: str
    fragments: int
    size_bytes: int


class Progress(Protocol):
    """Receives progress; calls may come from several threads."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Tables are about to be read, and joins to be run."""
        ...

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Totals read so far of one table."""
        ...

    def at_stage(self, node: str, progress: StageProgress) -> None:
        """A node has reached a stage of its action, or is further in it."""
        ...

    def finished(self, result: NodeResult) -> None:
        """A node ended, well or not."""
        ...

    def cancelling(self) -> None:
        """The run was interrupted, and stops what goes on."""
        ...


class SilentProgress:
    """Progress that is not shown."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        pass

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        pass

    def at_stage(self, node: str, progress: StageProgress) -> None:
        pass

    def finished(self, result: NodeResult) -> None:
        pass

    def cancelling(self) -> None:
        pass


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
class RunResult:
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

    def __repr__(self) -> str:
        counts = Counter(ENDED_AS.get(node.status, node.action) for node in self.nodes)
        what = ", ".join(f"{number} {end}" for end, number in counts.items()) or "no nodes"
        target = f"{self.project}, target {self.target}"
        return display.summary(self, f"{target}: {self.status.value}, {what}")

    __str__ = display.as_text
    _repr_html_ = display.as_html
    to_arrow = display.to_arrow
    to_pandas = display.to_pandas
    to_polars = display.to_polars

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


def unfinished(state: StateReader, target: str, declared: frozenset[str]) -> UnfinishedNodes:
    """Return them by the record of the newest run; only an idle run leaves no record.

    Args:
        state: Where runs are recorded.
        target: Whose runs count.
        declared: The names of all nodes of the project.
    """
    run = _newest(state, target)
    if run is None:
        return UnfinishedNodes(None)
    left = [node for node in run.nodes if node.result.get("status") in _LEFT]
    return UnfinishedNodes(
        run,
        tuple(node.node for node in left if node.node in declared),
        tuple(node.node for node in left if node.node not in declared),
        any(node.full_refresh for node in left),
    )


def _newest(state: StateReader, target: str) -> RunRecord | None:
    for limit in _LIMITS:
        runs = state.runs(limit)
        newest = next((run for run in runs if run.target == target), None)
        if newest is not None or len(runs) < limit:
            return newest
    return None
