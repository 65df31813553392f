"""The result of a run, its progress, and what the newest run left undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lancestat.plan.node_result import NodeResult, Status
from lancestat.plan.stages import StageProgress
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


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended; `status` is error when any node's is. `command` is what started it."""

    project: str
    target: str
    nodes: tuple[NodeResult, ...]
    command: str = "run"

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `success`."""
        failed = any(node.status is Status.ERROR for node in self.nodes)
        return Status.ERROR if failed else Status.SUCCESS


_LEFT = frozenset({Status.ERROR.value, Status.SKIPPED.value})
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
