"""What a run finds of its nodes beside what it does: late rows, refuted expectations, anomalies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from lancestat.errors import LancestatError
from lancestat.report.gather import gather
from lancestat.runs.result import NodeCheck, RunResult, Status
from lancestat.spec.model import Node, ProjectSpec, Table
from lancestat.spec.monitors import FreshnessAnomalies, with_shared
from lancestat.state.store import StateReader

_log = logging.getLogger("lancestat.report")


def checks_after(
    result: RunResult, spec: ProjectSpec, state: StateReader, clock: Callable[[], datetime]
) -> tuple[NodeCheck, ...]:
    """Return what is known now of what is expected of the nodes of a run. Reads no rows.

    Nodes that were left as they were are looked at only where time alone can change the answer.
    """
    ended = {node.name: node for node in result.nodes if node.status is Status.SUCCESS}
    nodes = [
        node
        for node in spec.nodes
        if node.name in ended and _is_checked(node, spec, is_left=ended[node.name].is_idle)
    ]
    if not nodes:
        return ()
    try:
        report = gather(spec, state, clock, nodes, runs=1)
    except LancestatError as error:
        # What the run has done stands.
        _log.warning("whether all is as expected after the run is not known: %s", error.message)
        return ()
    return tuple(check for node in report.nodes for check in node.node_checks(report.made_at))


def _is_checked(node: Node, spec: ProjectSpec, *, is_left: bool) -> bool:
    if not isinstance(node, Table):
        return node.recall is not None and not is_left
    monitors = with_shared(node.monitors, spec.monitors)
    if node.freshness is not None or any(
        isinstance(monitor.watched, FreshnessAnomalies) for monitor in monitors
    ):
        return True
    return bool(node.expect or monitors) and not is_left
