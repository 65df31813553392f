"""Gather what is known of nodes: datasets are looked at once, the state is read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from lancestat.plan.join_reads import awaited_joins
from lancestat.plan.observe import Observer
from lancestat.redact import Audience, Redactor
from lancestat.report.join import join_report
from lancestat.report.runs import runs_by_node
from lancestat.report.table import TableReporter
from lancestat.report.values import NodeReport, ProjectReport
from lancestat.spec.graph import dependencies
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table
from lancestat.state.identity import table_identity
from lancestat.state.values import PartialIndex, StateReader

THREADS = 8
RUNS = 30
# One pass over the state tells of so many tables what it knows of their fragments.
_INDEXED_AT_ONCE = 64


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
    """What is known of some nodes of a project, in their order.

    A node that cannot be looked at says why, and stops no other.

    Args:
        spec: The project under one target.
        state: What is remembered between runs.
        clock: The present, against which ages are judged.
        nodes: Of the project.
        with_fragments: Also every fragment of every table, and what the state knows of it.
        with_histograms: Also the histograms of tables that ask for them.
        runs: How many runs of each node are looked at.

    Raises:
        StateError: the state cannot be reached.
    """
    observer = Observer(spec, state, clock, THREADS)
    survey = observer.survey(nodes)
    outcomes = runs_by_node(state, spec.target.name, runs) if nodes else {}
    now = clock()
    tables = TableReporter(observer, survey, now, with_histograms)
    actions = {action.node: action for action in survey.plan.actions}
    indexes: Mapping[str, PartialIndex] = {}

    def report(node: Node) -> NodeReport:
        ended = outcomes.get(node.name, ())
        if isinstance(node, KnnJoin):
            record = survey.joins.get(node.name)
            found: NodeReport = join_report(node, actions[node.name], record, ended, now)
        else:
            found = tables.report(node, ended, indexes.get(table_identity(node.uri)))
        return _without_secrets(found, spec.redactor)

    reports: list[NodeReport] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        for start in range(0, len(nodes), _INDEXED_AT_ONCE):
            some = nodes[start : start + _INDEXED_AT_ONCE]
            if with_fragments:
                uris = (node.uri for node in some if isinstance(node, Table))
                indexes = state.partial_indexes(frozenset(map(table_identity, uris)))
            reports += pool.map(report, some)
    return ProjectReport(spec.name, spec.target.name, now, tuple(reports), _reads(spec, nodes))


def _without_secrets(report: NodeReport, redactor: Redactor) -> NodeReport:
    error = report.error
    return replace(
        report,
        problems=tuple(redactor.text(text, Audience.PERSON) for text in report.problems),
        error=None if error is None else redactor.error(error, Audience.PERSON),
    )


def _reads(spec: ProjectSpec, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """What each node reads among `nodes`: those it names, and those that write what it reads."""
    named, awaited = dependencies(spec), awaited_joins(spec, spec.nodes)
    names = {node.name for node in nodes}
    return {
        node.name: tuple(
            other
            for other in dict.fromkeys((*named[node.name], *awaited[node.name]))
            if other in names
        )
        for node in nodes
    }
