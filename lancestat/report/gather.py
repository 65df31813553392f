"""Gathers all that is known of the nodes of a project."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

from typing_extensions import assert_never

from lancestat.errors import LakeError, LancestatError, SpecError
from lancestat.joins.measures import UNMEASURED
from lancestat.joins.observe import record_of
from lancestat.joins.record import JoinRecord
from lancestat.lake.fingerprint import field_key
from lancestat.lake.history import rows_changed_at
from lancestat.lake.open import pinned_history
from lancestat.lake.snapshot import Fragment, Snapshot
from lancestat.nodes import NODE_TYPES
from lancestat.query.groups import load_groups
from lancestat.redact import Audience, Redactor
from lancestat.report.health import (
    Problem,
    failed,
    freshness_of,
    lacking,
    outdated,
    problem,
    refused,
    uncovered,
    unmatched,
    unmatched_columns,
    unreadable,
    unsatisfying,
    worst,
)
from lancestat.report.rows import NodeRuns, results_by_join, runs_by_node
from lancestat.report.values import (
    FragmentReport,
    Health,
    JoinReport,
    NodeReport,
    NodeRunReport,
    ProjectReport,
    TableReport,
)
from lancestat.runs.actions import Action, Reason
from lancestat.runs.node import Observed
from lancestat.runs.observe import Observer, result_dependencies
from lancestat.spec.graph import dependencies
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table, tables_of
from lancestat.spec.redaction import redacted_node
from lancestat.state.identity import plain_key, table_identity
from lancestat.state.values import PartialIndex, StateReader
from lancestat.tables.assessment import TableAssessment
from lancestat.tables.coverage import cover
from lancestat.tables.observe import TableObserver, stored_groups
from lancestat.tables.statistics.histogram import Histogram, equi_height
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.table_status import table_status


@dataclass(frozen=True, slots=True)
class FragmentCoverage:
    """The wanted columns covered by fragment, and the fragments covered by column."""

    fragments: tuple[FragmentReport, ...]
    columns: Mapping[str, int]


def fragment_coverage(assessment: TableAssessment, index: PartialIndex) -> FragmentCoverage:
    """Count the stored content of a table; content that a compaction moved does not count."""
    by_fragment: Counter[int] = Counter()
    by_key: Counter[str] = Counter()
    for group, keys in cover(stored_groups(assessment), index, ()).missing:
        by_fragment[group.fragment_id] += len(keys)
        by_key.update(map(plain_key, keys))
    columns, fragments = assessment.columns, assessment.snapshot.fragments
    return FragmentCoverage(
        tuple(_report(fragment, len(columns) - by_fragment[fragment.id]) for fragment in fragments),
        {field.name: len(fragments) - by_key[field_key(field)] for field in columns},
    )


def _report(fragment: Fragment, covered: int) -> FragmentReport:
    sizes = [file.size_bytes for file in fragment.files]
    known = [size for size in sizes if size is not None]
    return FragmentReport(
        id=fragment.id,
        rows=fragment.rows,
        deleted_rows=fragment.deleted_rows,
        files=len(fragment.files),
        size_bytes=sum(known) if len(known) == len(sizes) else None,
        covered=covered,
    )


_log = logging.getLogger("lancestat.report")


@dataclass(frozen=True, slots=True)
class TableReporter:
    """Makes reports of tables from an observed plan; may be shared by threads."""

    observed: Observed
    now: datetime
    with_histograms: bool = False

    def report(
        self, table: Table, runs: tuple[NodeRunReport, ...], index: PartialIndex | None = None
    ) -> TableReport:
        """The report of one table, also of one that cannot be opened.

        Args:
            table: Which.
            runs: Its runs, newest first.
            index: What the state has stored; without it fragments are not reported.
        """
        try:
            return self._report(table, runs, index)
        except LancestatError as error:
            problems = [unreadable(error), *failed(runs, self.now, error)]
            return TableReport(
                spec=table,
                health=Health.ERROR,
                problems=tuple(problem.sentence for problem in problems),
                verdict="refuse",
                reason="blocked" if isinstance(error, SpecError) else "unreadable",
                status=None,
                error=error,
                runs=runs,
            )

    def _report(
        self, table: Table, runs: tuple[NodeRunReport, ...], index: PartialIndex | None
    ) -> TableReport:
        assessment = TableObserver(self.observed).assess(table)
        coverage = None if index is None else fragment_coverage(assessment, index)
        covered = coverage.columns if coverage else None
        status = table_status(assessment, self.now, covered, self.observed.spec.redactor)
        changed_at = self._changed_at(assessment.snapshot)
        problems = [
            *refused(status, assessment),
            *failed(runs, self.now),
            *outdated(table.freshness, changed_at, self.now),
            *uncovered(status),
            *lacking(status),
            *unmatched_columns(assessment),
        ]
        return TableReport(
            spec=table,
            health=worst(problems),
            problems=tuple(problem.sentence for problem in problems),
            verdict="use" if status.use else "refuse",
            reason=status.reason,
            status=status,
            changed_at=changed_at,
            freshness=freshness_of(table.freshness, changed_at, self.now),
            histograms=self._histograms(assessment),
            fragments=coverage.fragments if coverage else (),
            runs=runs,
        )

    def _changed_at(self, snapshot: Snapshot) -> datetime | None:
        options = self.observed.spec.options.of(snapshot.uri)
        try:
            with pinned_history(snapshot.pin, options) as dataset:
                return rows_changed_at(dataset)
        except LakeError as error:
            _log.warning("when rows last changed is not known: %s", error.message)
            return None

    def _histograms(self, assessment: TableAssessment) -> Mapping[str, Histogram]:
        if not (self.with_histograms and assessment.histograms):
            return {}
        known = load_groups(self.observed.state, assessment.identity, assessment.snapshot)
        names = [field.name for field in assessment.columns if field.name in assessment.histograms]
        known.load(names)
        made = {
            name: equi_height(_without_nan(partial), assessment.types[name])
            for name in names
            if (partial := known.partial(name)) is not None
        }
        return {name: histogram for name, histogram in made.items() if histogram is not None}


def _without_nan(partial: ColumnPartial) -> ColumnPartial:
    """The same column without NaN, which Spark takes for the largest number and people do not."""
    return replace(partial, rows=partial.rows - partial.nans, nans=0)


def join_report(
    join: KnnJoin,
    action: Action,
    record: JoinRecord | None,
    runs: tuple[NodeRunReport, ...],
    results: tuple[NodeRunReport, ...],
    now: datetime,
) -> JoinReport:
    """The report of a join, from what a run would do to it now and what the last ones did."""
    verdict = _verdict(action)
    problems = [
        *_shortcomings(action, verdict),
        *failed(runs, now, action.error),
        *unsatisfying(join, UNMEASURED if record is None else record.accuracy),
        *unmatched(results),
    ]
    return JoinReport(
        spec=join,
        health=worst(problems),
        problems=tuple(problem.sentence for problem in problems),
        verdict=verdict,
        reasons=tuple(reason.value for reason in action.reasons),
        record=record,
        error=action.error,
        runs=runs,
        results=results,
    )


def _verdict(action: Action) -> str:
    match action.verb:
        case "blocked":
            return "blocked"
        case "skip":
            return "current"
        case "analyze":
            # What has no usable result is analyzed.
            return "absent"
        case "refresh" | "restamp":
            return "behind"
        case _:
            assert_never(action.verb)


def _shortcomings(action: Action, verdict: str) -> list[Problem]:
    if action.error is not None:
        return [unreadable(action.error)]
    why = ", ".join(reason.value.replace("_", " ") for reason in action.reasons)
    if verdict == "behind":
        return [problem(Health.WARN, f"its result is behind: {why}")]
    if verdict == "absent":
        is_new = Reason.NEW in action.reasons
        text = "it has no result yet" if is_new else f"its result is not there: {why}"
        return [problem(Health.ERROR, text)]
    return []


THREADS = 8
RUNS = 30
# Runs of a join that wrote a result, of which pages draw lines.
RESULTS = 20
# How many tables' partials are indexed in one pass over the state.
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
    has_joins = any(isinstance(node, KnnJoin) for node in nodes)
    results = results_by_join(state, spec.target.name, RESULTS, NODE_TYPES) if has_joins else {}
    now = clock()
    tables = TableReporter(observed, now, with_histograms)
    actions = {action.node: action for action in plan.actions}
    indexes: Mapping[str, PartialIndex] = {}

    def report(node: Node) -> NodeReport:
        ended = outcomes.get(node.name, ())
        node_report: NodeReport
        match node:
            case Table():
                node_report = tables.report(node, ended, indexes.get(table_identity(node.uri)))
            case KnnJoin():
                record = record_of(observed, node)
                action, made = actions[node.name], results.get(node.name, ())
                node_report = join_report(node, action, record, ended, made, now)
            case _:
                assert_never(node)
        return _without_secrets(node_report, spec.redactor)

    reports: list[NodeReport] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        for start in range(0, len(nodes), _INDEXED_AT_ONCE):
            some = nodes[start : start + _INDEXED_AT_ONCE]
            if with_fragments:
                identities = frozenset(table_identity(table.uri) for table in tables_of(some))
                indexes = state.partial_indexes(identities)
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
) -> tuple[NodeRunReport, ...]:
    """Return the runs of nodes that a project no longer has, none if only some nodes are wanted."""
    names = {node.name for node in spec.nodes}
    if len(nodes) < len(names):
        return ()
    return tuple(run for name, runs in outcomes.items() if name not in names for run in runs)


def _without_secrets(report: NodeReport, redactor: Redactor) -> NodeReport:
    error = report.error
    return replace(
        report,
        problems=tuple(redactor.text(text, Audience.PERSON) for text in report.problems),
        error=None if error is None else redactor.error(error, Audience.PERSON),
    )


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
    match node:
        case TableReport():
            table = redacted_node(node.spec, origins, audience)
            return replace(node, spec=table, problems=problems)
        case JoinReport():
            join = redacted_node(node.spec, origins, audience)
            return replace(node, spec=join, problems=problems)
        case _:
            assert_never(node)
