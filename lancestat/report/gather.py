"""Gathers all that is known of the nodes of a project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any

from lancestat.nodes import NODE_TYPES
from lancestat.redact import Audience, Redactor
from lancestat.report.joins import JoinReporter
from lancestat.report.rows import NodeRuns, runs_by_node
from lancestat.report.tables import TableReporter
from lancestat.report.values import (
    NodeReport,
    ProjectReport,
    Reporter,
    ReportOptions,
)
from lancestat.runs.actions import Plan
from lancestat.runs.node import Observed
from lancestat.runs.observe import Observer, result_dependencies
from lancestat.runs.result import PastRun
from lancestat.spec.graph import dependencies
from lancestat.spec.model import Node, NodeKind, ProjectSpec
from lancestat.spec.redaction import redacted_node
from lancestat.state.values import StateReader

THREADS = 8
RUNS = 30
# How many nodes are prepared in one pass over the state.
_PREPARED_AT_ONCE = 64

REPORTERS: Mapping[str, Callable[[Plan, Observed, datetime, ReportOptions], Reporter]] = {
    NodeKind.TABLE.value: TableReporter,
    NodeKind.KNN_JOIN.value: JoinReporter,
}


def gather(
    spec: ProjectSpec,
    state: StateReader,
    clock: Callable[[], datetime],
    nodes: Sequence[Node],
    *,
    with_fragments: bool = False,
    with_histograms: bool = False,
    runs: int = RUNS,
) -> ProjectReport:
    """Gather what is known of some nodes of a project, in their order.

    A node that cannot be observed carries its error, and stops no other.

    Args:
        spec: The project under one target.
        state: What is remembered between runs.
        clock: Returns the present, against which ages are judged.
        nodes: Of the project.
        with_fragments: Also every fragment of every table, and what the state knows of it.
        with_histograms: Also the histograms of tables that ask for them.
        runs: How many runs of each node are read.

    Raises:
        StateError: the state cannot be reached.
    """
    plan, observed = Observer(spec, state, clock, NODE_TYPES, THREADS).observe(nodes)
    nodes, spec = observed.nodes, observed.spec
    outcomes = runs_by_node(state, spec.target.name, runs, NODE_TYPES) if nodes else {}
    now, options = clock(), ReportOptions(with_fragments, with_histograms)
    reporters = {kind: make(plan, observed, now, options) for kind, make in REPORTERS.items()}

    def report(node: Node) -> NodeReport:
        reporter = reporters[node.kind.value]
        node_report = reporter.report(node, outcomes.get(node.name, ()))
        return _without_secrets(node_report, spec.redactor)

    reports: list[NodeReport] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        for start in range(0, len(nodes), _PREPARED_AT_ONCE):
            some = nodes[start : start + _PREPARED_AT_ONCE]
            for reporter in reporters.values():
                reporter.prepare(some)
            reports += pool.map(report, some)
    return ProjectReport(
        spec.name,
        spec.target.name,
        now,
        tuple(reports),
        _reads(spec, nodes),
        spec.redactor,
        _former_runs(spec, nodes, outcomes),
        plan.sources,
    )


def _former_runs(
    spec: ProjectSpec, nodes: Sequence[Node], outcomes: NodeRuns
) -> tuple[PastRun, ...]:
    """Return the runs of nodes that a project no longer has, none if only some nodes are wanted."""
    names = {node.name for node in spec.nodes}
    if len(nodes) < len(names):
        return ()
    return tuple(run for name, runs in outcomes.items() if name not in names for run in runs)


def _without_secrets(report: NodeReport, redactor: Redactor) -> NodeReport:
    error = report.error
    return _changed(
        report,
        problems=tuple(redactor.text(text, Audience.PERSON) for text in report.problems),
        error=None if error is None else redactor.error(error, Audience.PERSON),
    )


def _changed(report: Any, **changes: object) -> NodeReport:
    changed: NodeReport = replace(report, **changes)
    return changed


def _reads(spec: ProjectSpec, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that each node reads among `nodes`, by name or by what they write."""
    named, written = dependencies(spec), result_dependencies(spec, spec.nodes)
    names = {node.name for node in nodes}
    return {
        node.name: tuple(
            other
            for other in dict.fromkeys((*named[node.name], *written[node.name]))
            if other in names
        )
        for node in nodes
    }


def redacted_report(
    report: ProjectReport, spec: ProjectSpec, audience: Audience = Audience.PUBLIC
) -> ProjectReport:
    """The same report with templates in place of what an audience must not see."""
    return replace(report, nodes=tuple(_redacted(node, spec, audience) for node in report.nodes))


def _redacted(node: NodeReport, spec: ProjectSpec, audience: Audience) -> NodeReport:
    origins = spec.origins.get(node.spec.name, {})
    problems = tuple(spec.redactor.text(problem, audience) for problem in node.problems)
    declared = redacted_node(node.spec, origins, audience)
    return _changed(node, spec=declared, problems=problems)
