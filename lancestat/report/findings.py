"""What a run finds of its nodes beside what it does: late rows, refuted expectations, anomalies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from lancestat.formats import count, named
from lancestat.report.gather import gather
from lancestat.report.tables import TableReport
from lancestat.runs.result import NodeCheck, RunResult
from lancestat.spec.model import Node, ProjectSpec, expects_something
from lancestat.state.store import StateReader
from lancestat.tables.expectations import CheckResult, CheckVerdict


def checks_after(
    result: RunResult, spec: ProjectSpec, state: StateReader, clock: Callable[[], datetime]
) -> tuple[NodeCheck, ...]:
    """Return what is known of what is expected of the nodes that a run brought up to date.

    No rows are read. What was left as it was costs nothing: `lancestat status` tells of its age.

    Raises:
        LancestatError: The state cannot be read.
    """
    done = {node.name for node in result.nodes if node.is_done}
    nodes = [node for node in spec.nodes if node.name in done and _is_checked(node, spec)]
    if not nodes:
        return ()
    report = gather(spec, state, clock, nodes, runs=1)
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
    """Return verdicts without what was found, since values may be in that."""
    numbers = Counter(check.verdict for check in checks)
    counts = ", ".join(f"{count(numbers[each])} {each}" for each in CheckVerdict if numbers[each])
    refuted = [check.check for check in checks if check.verdict is CheckVerdict.REFUTED]
    which = f" ({named(refuted)})" if refuted else ""
    return f"of what BASE expects: {counts}{which}"


def _is_checked(node: Node, spec: ProjectSpec) -> bool:
    bounds = (getattr(node, name, None) for name in ("freshness", "recall"))
    return any(each is not None for each in bounds) or expects_something(node, spec.monitors)
