"""Gathers all that is known of the nodes of a project, also as rows for the system views."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from lancestat.arguments import check, check_names
from lancestat.formats import StringEnum
from lancestat.joins.action import JoinFigures
from lancestat.joins.duplicates.action import COUNTS, DuplicatesFigures
from lancestat.joins.record import Accuracy, JoinCounts
from lancestat.lake.snapshot import Snapshot
from lancestat.nodes import NODE_TYPES
from lancestat.redact import Audience, Redactor
from lancestat.report.checks import CheckReport
from lancestat.report.duplicates import DuplicatesReporter
from lancestat.report.history import HISTORY, history_rows, recorded_history
from lancestat.report.joins import JoinReporter
from lancestat.report.monitors import monitors_of
from lancestat.report.rows import CellType, Row, RowShape
from lancestat.report.tables import TableReport, TableReporter
from lancestat.report.values import NodeReport, NodeRuns, ProjectReport, Reporter, runs_by_node
from lancestat.runs.node import Observed
from lancestat.runs.observe import Observer, result_dependencies
from lancestat.runs.result import NodeResult, PastRun
from lancestat.spec.graph import dependencies
from lancestat.spec.model import Node, NodeKind, ProjectSpec, Table
from lancestat.spec.redaction import redacted_node
from lancestat.state.history import HistoryPoint, spread
from lancestat.state.store import StateReader
from lancestat.tables.statistics.column_statistics import BOUNDS_FIRST
from lancestat.tables.table_status import TableStatus

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger("lancestat.report")

# More than the state keeps.
ALL = 1_000_000

_TEXT, _TEXTS, _COUNT = CellType.TEXT, CellType.TEXTS, CellType.COUNT
_NUMBER, _FLAG, _INSTANT = CellType.NUMBER, CellType.FLAG, CellType.INSTANT

STATISTICS = RowShape(
    {
        "table": _TEXT,
        "column": _TEXT,
        "type": _TEXT,
        **{
            statistic.sql_name: {str: _TEXT, int: _COUNT, float: _NUMBER}[statistic.type]
            for statistic in BOUNDS_FIRST
        },
        "rows": _COUNT,
        "version": _COUNT,
        "computed_at": _INSTANT,
        "versions_behind": _COUNT,
        "changed_rows": _NUMBER,
        "fragments": _COUNT,
        "fragments_covered": _COUNT,
        "verdict": _TEXT,
        "reason": _TEXT,
        "detail": _TEXT,
        "policy": _TEXT,
    }
)

# What a run's row begins with, and what only plans have.
_MEASURES = {"counts": JoinCounts, "accuracy": Accuracy}
_ELSEWHERE = frozenset({"name", "kind", "figures", "why", "estimated_seconds"})
_CELLS = {
    "int": _COUNT,
    "Rows": _COUNT,
    "float": _NUMBER,
    "bool": _FLAG,
    "tuple[str, ...]": _TEXTS,
}


def _result_columns() -> Iterator[tuple[str, CellType]]:
    """Return the members of a node in the JSON of runs, less those of the columns before them."""
    for field in (*fields(NodeResult), *fields(JoinFigures)):
        for member in fields(_MEASURES[field.name]) if field.name in _MEASURES else (field,):
            if member.name not in _ELSEWHERE:
                # Annotations are texts here.
                yield member.name, _CELLS.get(str(member.type).removesuffix(" | None"), _TEXT)
    yield from dict.fromkeys(COUNTS, _COUNT).items()


RESULTS = RowShape({"node": _TEXT, "kind": _TEXT, **dict(_result_columns())})

RUNS = RowShape(
    {
        "run_id": _TEXT,
        "command": _TEXT,
        "target": _TEXT,
        "finished_at": _INSTANT,
        **RESULTS.columns,
    }
)

STATUS = RowShape(
    {
        "node": _TEXT,
        "kind": _TEXT,
        "status": _TEXT,
        "problems": _TEXTS,
        "verdict": _TEXT,
        "reasons": _TEXTS,
        "computed_at": _INSTANT,
        "rows": _COUNT,
        "version": _COUNT,
        "versions_behind": _COUNT,
        "changed_rows": _NUMBER,
        "rows_changed_at": _INSTANT,
        "columns_covered": _COUNT,
        "columns_wanted": _COUNT,
        "last_run_at": _INSTANT,
        "last_run": _TEXT,
    }
)

FRAGMENTS = RowShape(
    {
        "table": _TEXT,
        "fragment": _COUNT,
        "rows": _COUNT,
        "deleted_rows": _COUNT,
        "files": _COUNT,
        "size_bytes": _COUNT,
        "columns": _COUNT,
        "columns_covered": _COUNT,
    }
)


CHECKS = RowShape(
    {
        "node": _TEXT,
        "check": _TEXT,
        "verdict": _TEXT,
        "severity": _TEXT,
        "detail": _TEXT,
        "location": _TEXT,
    }
)


def check_rows(checked: CheckReport) -> Iterator[Row]:
    """A row per expectation of a table."""
    for node, result in checked.checks:
        yield {"node": node, **result.to_json()}


def statistics_rows(status: TableStatus) -> Iterator[Row]:
    """A row per column that has statistics or is wanted to; figures that are not known are null."""
    whole: Row = {
        "table": status.table,
        "rows": status.rows,
        "version": status.version,
        "computed_at": status.computed_at,
        "versions_behind": status.versions_behind,
        "changed_rows": status.changed_rows,
        "fragments": status.fragments,
        "verdict": "use" if status.use else "refuse",
        "reason": status.reason,
        "detail": status.detail,
        "policy": status.policy,
    }
    for name in (*status.columns, *status.missing):
        column = status.columns.get(name)
        yield {
            **whole,
            "column": name,
            "type": status.types.get(name),
            **{
                statistic.sql_name: None if column is None else statistic.of(column)
                for statistic in BOUNDS_FIRST
            },
            "fragments_covered": (status.covered or {}).get(name),
        }


def result_row(result: NodeResult) -> Row:
    """A node of a plan or a run."""
    return {
        **DuplicatesFigures().to_json(),
        **result.to_json(),
        "location": None if result.location is None else str(result.location),
        "node": result.name,
        "kind": result.kind,
    }


def run_rows(runs: Iterable[PastRun]) -> Iterator[Row]:
    """A row per run of a node."""
    for run in runs:
        yield {
            **result_row(run.result),
            "run_id": run.run_id,
            "command": run.command,
            "target": run.target,
            "finished_at": run.ended_at,
        }


def status_rows(report: ProjectReport) -> Iterator[Row]:
    """A row per node; figures that are not known, or that its kind does not have, are null."""
    for node in report.nodes:
        last = node.runs[0] if node.runs else None
        yield {
            "node": node.spec.name,
            "kind": node.spec.kind.value,
            "status": node.health.value,
            "problems": list(node.problems),
            "verdict": node.verdict,
            **node.cells(),
            "last_run_at": last.ended_at if last else None,
            "last_run": last.result.status.value if last else None,
        }


def fragment_rows(table: TableReport) -> Iterator[Row]:
    """A row per fragment of a table that could be opened."""
    status = table.status
    column_count = None if status is None or status.covered is None else len(status.covered)
    for fragment in table.fragments:
        yield {
            "table": table.spec.name,
            "fragment": fragment.id,
            "rows": fragment.rows,
            "deleted_rows": fragment.deleted_rows,
            "files": fragment.files,
            "size_bytes": fragment.size_bytes,
            "columns": column_count,
            "columns_covered": fragment.covered,
        }


class ReportTable(StringEnum):
    """The system views, by their names in SQL."""

    STATISTICS = "statistics"
    RUNS = "runs"
    FRAGMENTS = "fragments"
    HISTORY = "history"


SHAPES = {
    ReportTable.STATISTICS: STATISTICS,
    ReportTable.RUNS: RUNS,
    ReportTable.FRAGMENTS: FRAGMENTS,
    ReportTable.HISTORY: HISTORY,
}


def named_tables(wanted: Collection[str]) -> frozenset[ReportTable]:
    """Return tables by the names that callers of the Python interface pass.

    Raises:
        InvalidArgument: There is no such table, or it is no list of names.
    """
    names = [table.value for table in ReportTable]
    check_names("wanted", wanted)
    for name in wanted:
        check("wanted has an item that", name, name in names, f"one of: {', '.join(names)}")
    return frozenset(map(ReportTable, wanted))


def report_tables_of(
    spec: ProjectSpec,
    state: StateReader,
    clock: Callable[[], datetime],
    requested: Collection[ReportTable],
) -> dict[str, pa.Table]:
    """Return the requested tables about all nodes of a project, by name."""
    return report_tables(
        requested,
        report=lambda: gather(spec, state, clock, spec.tables, with_fragments=True, runs=0),
        runs=lambda: runs_by_node(state, spec, ALL),
        history=lambda: chain.from_iterable(recorded_history(state).values()),
    )


def report_tables(
    requested: Collection[ReportTable],
    report: Callable[[], ProjectReport],
    runs: Callable[[], NodeRuns],
    history: Callable[[], Iterable[HistoryPoint]],
) -> dict[str, pa.Table]:
    """The requested ones by name; only what they need is gathered."""
    by_name: dict[str, pa.Table] = {}
    if ReportTable.RUNS in requested:
        ended = [run for node_runs in runs().values() for run in node_runs]
        ended.sort(key=lambda run: run.ended_at, reverse=True)
        by_name[ReportTable.RUNS.value] = RUNS.table(run_rows(ended))
    if ReportTable.HISTORY in requested:
        by_name[ReportTable.HISTORY.value] = HISTORY.table(history_rows(history()))
    if {ReportTable.STATISTICS, ReportTable.FRAGMENTS}.isdisjoint(requested):
        return by_name
    tables = [node for node in report().nodes if isinstance(node, TableReport)]
    if ReportTable.STATISTICS in requested:
        statuses = (table.status for table in tables if table.status is not None)
        rows = (row for status in statuses for row in statistics_rows(status))
        by_name[ReportTable.STATISTICS.value] = STATISTICS.table(rows)
    if ReportTable.FRAGMENTS in requested:
        rows = (row for table in tables for row in fragment_rows(table))
        by_name[ReportTable.FRAGMENTS.value] = FRAGMENTS.table(rows)
    return by_name


THREADS = 8
# Points of history of each node; charts are no wider.
_POINTS_SHOWN = 32
RUNS_READ = 30
# Nodes are prepared in one pass over the state that have at most so many fragments together.
_FRAGMENTS_AT_ONCE = 16_384

REPORTERS: Mapping[str, type[Reporter]] = {
    NodeKind.TABLE.value: TableReporter,
    NodeKind.KNN_JOIN.value: JoinReporter,
    NodeKind.DUPLICATES.value: DuplicatesReporter,
}


def gather(
    spec: ProjectSpec,
    state: StateReader,
    clock: Callable[[], datetime],
    nodes: Sequence[Node],
    *,
    with_fragments: bool = False,
    with_histograms: bool = False,
    with_history: bool = False,
    runs: int = RUNS_READ,
) -> ProjectReport:
    """Gather what is known of some nodes of a project, in their order.

    A node that cannot be observed carries its error, and stops no other.
    """
    observer = Observer(spec, state, clock, NODE_TYPES, THREADS)
    # Of what is known of tables, nothing follows from what a run would do.
    plan, observed = observer.observe(nodes, kinds=NODE_TYPES.keys() - {NodeKind.TABLE.value})
    nodes, spec = observed.nodes, observed.spec
    outcomes = runs_by_node(state, spec, runs) if nodes else {}
    now = clock()
    of_interest = [node for node in nodes if with_history or monitors_of(node, spec)]
    keys = [NODE_TYPES[node.kind.value].record_key(node) for node in of_interest]
    histories = state.history(keys) if keys else {}
    reporters = {
        kind: REPORTERS.get(kind, Reporter)(
            plan,
            observed,
            now,
            histories,
            with_fragments=with_fragments,
            with_histograms=with_histograms,
        )
        for kind in NODE_TYPES
    }

    def report(node: Node) -> NodeReport:
        reporter = reporters[node.kind.value]
        node_report = reporter.report(node, outcomes.get(node.name, ()))
        if with_history:
            key = NODE_TYPES[node.kind.value].record_key(node)
            points = spread(histories.get(key, ()), _POINTS_SHOWN)
            node_report = replace(node_report, history=points)
        return _without_secrets(node_report, spec.redactor)

    reports: list[NodeReport] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        for some in _portions(nodes, observed):
            for reporter in reporters.values():
                reporter.prepare(some)
            deque(pool.map(lambda node: reporters[node.kind.value].look(node), some), maxlen=0)
            # Threads that wait for nothing only get in each other's way.
            reports += map(report, some)
    names = {node.name for node in spec.nodes}
    # Those of nodes that the project no longer has, none where only some nodes are wanted.
    former = () if len(nodes) < len(names) else outcomes.keys() - names
    return ProjectReport(
        spec.name,
        spec.target.name,
        now,
        tuple(reports),
        _reads(spec, nodes),
        spec.redactor,
        tuple(run for name in former for run in outcomes[name]),
        plan.sources,
    )


def _portions(nodes: Sequence[Node], observed: Observed) -> Iterator[Sequence[Node]]:
    """Yield nodes, as many at a time as can be prepared in one pass over the state."""
    some: list[Node] = []
    room = _FRAGMENTS_AT_ONCE
    for node in nodes:
        snapshot = observed.snapshots.get(node.uri) if isinstance(node, Table) else None
        fragments = (len(snapshot.fragments) if isinstance(snapshot, Snapshot) else 0) or 1
        if some and fragments > room:
            yield some
            some, room = [], _FRAGMENTS_AT_ONCE
        some.append(node)
        room -= fragments
    if some:
        yield some


def _without_secrets(report: NodeReport, redactor: Redactor) -> NodeReport:
    error = report.error
    shown = _shown(report, redactor, Audience.PERSON)
    return replace(shown, error=None if error is None else redactor.error(error, Audience.PERSON))


def _shown(report: NodeReport, redactor: Redactor, audience: Audience) -> NodeReport:
    """Return a report whose sentences an audience may see."""
    if isinstance(report, TableReport):
        checks = (
            replace(check, detail=redactor.text(check.detail, audience)) for check in report.checks
        )
        report = replace(report, checks=tuple(checks))
    problems = (redactor.text(problem, audience) for problem in report.problems)
    return replace(report, problems=tuple(problems))


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
    declared = redacted_node(node.spec, origins, audience)
    return replace(_shown(node, spec.redactor, audience), spec=declared)
