"""What the last run left to do: nodes that failed, and those that were not run for that."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.run.result import Status
from lancestat.state.values import RunRecord, StateReader

_LEFT = frozenset({Status.ERROR.value, Status.SKIPPED.value})
# How many of the newest runs are read, one attempt after the other: targets may share a state.
_LOOKS = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What the newest run of a target left to do.

    `run` is None where none is recorded, `nodes` are declared, `gone` are not any more.
    `full_refresh` tells that the run was to make everything again.
    """

    run: RunRecord | None
    nodes: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    full_refresh: bool = False


def unfinished(state: StateReader, target: str, declared: frozenset[str]) -> Unfinished:
    """Find it in the record of the newest run, which every run but an idle one leaves at its end.

    Args:
        state: Where runs are recorded.
        target: Whose runs count.
        declared: The names of all nodes of the project.
    """
    run = _newest(state, target)
    if run is None:
        return Unfinished(None)
    left = [node for node in run.nodes if node.result.get("status") in _LEFT]
    return Unfinished(
        run,
        tuple(node.node for node in left if node.node in declared),
        tuple(node.node for node in left if node.node not in declared),
        any(node.full_refresh for node in left),
    )


def _newest(state: StateReader, target: str) -> RunRecord | None:
    for limit in _LOOKS:
        runs = state.runs(limit)
        found = next((run for run in runs if run.target == target), None)
        if found is not None or len(runs) < limit:
            return found
    return None
