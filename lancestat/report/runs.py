"""What runs did to each node, as far as the state remembers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lancestat.report.values import NodeRunReport
from lancestat.run.result import NodeResult
from lancestat.state.values import NodeOutcome, StateReader

_log = logging.getLogger("lancestat.report")

# More than the state keeps.
ALL = 1_000_000

NodeRuns = Mapping[str, tuple[NodeRunReport, ...]]


def runs_by_node(state: StateReader, target: str, limit: int) -> NodeRuns:
    """By node, the newest runs under a target, newest first; what does not decode is left out.

    Args:
        state: Which may be that of several targets.
        target: Whose runs are of interest.
        limit: How many runs of a node are looked at.
    """
    found = state.outcomes(target, limit)
    return {node: _reports(outcomes) for node, outcomes in found.items()}


def _reports(outcomes: tuple[NodeOutcome, ...]) -> tuple[NodeRunReport, ...]:
    reports = []
    for each in outcomes:
        try:
            result = NodeResult.from_json(each.result)
        except ValueError as error:
            _log.debug("an outcome of run %s is passed by: %s", each.run_id, error)
            continue
        reports.append(
            NodeRunReport(each.run_id, each.command, each.target, each.finished_at, result)
        )
    return tuple(reports)
