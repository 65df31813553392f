"""What a run finds of its nodes beside what it does: late rows, refuted expectations, anomalies."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from lancestat.errors import LancestatError
from lancestat.formats import count, named
from lancestat.report.gather import gather
from lancestat.report.tables import TableReport
from lancestat.runs.result import NodeCheck, RunResult, Status
from lancestat.spec.model import Node, ProjectSpec, Table, expects_something
from lancestat.spec.monitors import FreshnessAnomalies, with_shared
from lancestat.state.store import StateReader
from lancestat.tables.expectations import CheckResult, CheckVerdict

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


def checks_in_words(
    spec: ProjectSpec,
    nodes: Sequence[Node],
    state: StateReader,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Mapping[str, str]:
    """Return a sentence on each table that something is expected of, by its name.

    Raises:
        LancestatError: The state cannot be read.
    """
    reports = gather(spec, state, clock, nodes, runs=1).nodes
    return {
        report.spec.name: _sentence(report.checks)
        for report in reports
        if isinstance(report, TableReport) and report.checks
    }


def _sentence(checks: Sequence[CheckResult]) -> str:
    numbers = Counter(check.verdict for check in checks)
    counts = [f"{count(numbers[each])} {each}" for each in CheckVerdict if numbers[each]]
    refuted = [
        f"{check.check} ({check.detail})"
        for check in checks
        if check.verdict is CheckVerdict.REFUTED
    ]
    words = f"of what BASE expects: {', '.join(counts)}"
    return f"{words}, {named(refuted)}" if refuted else words


def _is_checked(node: Node, spec: ProjectSpec, *, is_left: bool) -> bool:
    if not isinstance(node, Table):
        return getattr(node, "recall", None) is not None and not is_left
    monitors = with_shared(node.monitors, spec.monitors)
    if node.freshness is not None or any(
        isinstance(monitor.watched, FreshnessAnomalies) for monitor in monitors
    ):
        return True
    return expects_something(node, spec.monitors) and not is_left
