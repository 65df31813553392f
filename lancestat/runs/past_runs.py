"""Past runs, as the state remembers them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lancestat import display
from lancestat.errors import UnknownRun
from lancestat.formats import count, instant
from lancestat.runs.node import NodeTypes
from lancestat.runs.node_result import NodeResult, Status
from lancestat.state.values import RunRecord, StateReader

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

    @property
    def elapsed(self) -> timedelta | None:
        """How long it took."""
        return None if self.finished_at is None else self.finished_at - self.started_at

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes there are by what was done: an action, `error`, `skipped` and so on."""
        return dict(Counter(map(_outcome, self.nodes)).most_common())


def _outcome(node: NodeResult) -> str:
    is_as_planned = node.status in (Status.SUCCESS, Status.PLANNED)
    return node.action if is_as_planned else node.status.value


def past_runs(
    state: StateReader, target: str, limit: int | None, types: NodeTypes
) -> tuple[PastRun, ...]:
    """Return the newest runs of a target, newest first; at most `limit`, all when None.

    `types` decode the figures of nodes.

    Raises:
        StateError: the state cannot be reached.
    """
    running = [
        _past(run, types, is_running=True) for run in state.running() if run.target == target
    ]
    # Targets may share a state.
    ended = [_past(run, types) for run in state.runs(_ALL) if run.target == target]
    return tuple([*running, *ended][:limit])


def past_run(runs: Sequence[PastRun], run_id: str) -> PastRun:
    """Return the run whose id begins so.

    Raises:
        UnknownRun: there is none, or several.
    """
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


def _past(run: RunRecord, types: NodeTypes, *, is_running: bool = False) -> PastRun:
    nodes = []
    for node in run.nodes:
        try:
            result = NodeResult.from_json(node.result, types)
        except ValueError as error:
            _log.debug("a node of run %s is left out: %s", run.run_id, error)
        else:
            # The mark of a run tells what there is to say once its process has been killed.
            is_open = is_running and result.status is Status.INTERRUPTED
            planned = replace(result, status=Status.PLANNED, message=None)
            nodes.append(planned if is_open else result)
    was_killed = run.status == Status.INTERRUPTED.value and run.finished_at == run.started_at
    return PastRun(
        run.run_id,
        run.command,
        run.target,
        RUNNING if is_running else run.status,
        run.started_at,
        None if is_running or was_killed else run.finished_at,
        tuple(nodes),
    )
