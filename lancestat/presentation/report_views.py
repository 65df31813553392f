"""The views of what is known of nodes: `run`, `show`, `status` and `docs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count, large
from lancestat.presentation.views import (
    PastRunView,
    RunsView,
    RunView,
    ShowView,
    SiteView,
    StatusView,
)
from lancestat.report.node_facts import (
    NodeRunFigures,
    health_counts,
    node_run,
    node_status,
    one_line,
    status_figures,
)
from lancestat.report.rows import STATISTICS, statistics_rows
from lancestat.runs.actions import gone_words
from lancestat.runs.node_result import Status

if TYPE_CHECKING:
    from lancestat.report.site.build import Site
    from lancestat.report.values import ProjectReport
    from lancestat.runs.past_runs import PastRun
    from lancestat.runs.result import RunResult
    from lancestat.spec.model import ProjectSpec
    from lancestat.tables.table_status import TableStatus


def show_view(status: TableStatus) -> ShowView:
    """Return the view of one table's statistics."""
    return ShowView(
        status,
        status_figures(status),
        tuple(STATISTICS.columns),
        tuple(statistics_rows(status)),
    )


def status_view(report: ProjectReport) -> StatusView:
    nodes = tuple(node_status(node, report.made_at) for node in report.nodes)
    project, target = one_line(report.name), one_line(report.target)
    counts = health_counts(report.nodes)
    return StatusView(project, target, report, nodes, counts, gone_words(report.sources))


def site_view(site: Site) -> SiteView:
    health = tuple((node.spec.name, node.health.value) for node in site.report.nodes)
    return SiteView(site.page, site.pages, site.size_bytes, health)


def run_view(result: RunResult) -> RunView:
    nodes = tuple(map(node_run, result.nodes))
    done = [node for node in nodes if node.result.status is Status.SUCCESS]
    changed = [node for node in done if node.action != "skip"]
    statuses = Counter(node.result.status for node in nodes)
    return RunView(
        result.command,
        result.project,
        result.target,
        result.status.value,
        nodes,
        _kinds(changed),
        len(done) - len(changed),
        statuses[Status.SKIPPED],
        statuses[Status.ERROR],
        _all_read(done, [node for node in nodes if node.result.status is Status.INTERRUPTED]),
        result.run_id,
        result.started_at,
        result.finished_at,
        statuses[Status.INTERRUPTED],
        result.sources,
        gone_words(result.sources),
    )


def runs_view(spec: ProjectSpec, runs: Sequence[PastRun]) -> RunsView:
    """Return the view of past runs."""
    return RunsView(spec.name, spec.target.name, tuple(runs))


def past_run_view(spec: ProjectSpec, run: PastRun) -> PastRunView:
    """Return the view of the nodes of a past run."""
    return PastRunView(spec.name, run, tuple(map(node_run, run.nodes)))


def _kinds(nodes: Sequence[NodeRunFigures]) -> str:
    joins = sum(node.result.join is not None for node in nodes)
    tables = count(len(nodes) - joins, "table")
    if not joins:
        return tables
    return count(joins, "join") if joins == len(nodes) else f"{tables} and {count(joins, 'join')}"


def _all_read(done: Sequence[NodeRunFigures], stopped: Sequence[NodeRunFigures]) -> str:
    results = [node.result for node in done]
    rows = sum(result.rows_scanned or 0 for result in results)
    fragments = sum(result.fragments_scanned or 0 for result in results)
    pairs = sum(result.join.pairs or 0 for result in results if result.join is not None)
    parts = []
    if fragments:
        parts.append(f"Read {count(fragments, 'fragment')}, {count(rows, 'row')}.")
    if pairs:
        parts.append(f"Compared {large(pairs)} pairs.")
    if stored := sum(node.result.fragments_scanned or 0 for node in stopped):
        parts.append(f"Kept {count(stored, 'fragment')} of stopped tables, not to be read again.")
    # What a stopped node has read without keeping it is not known.
    return " ".join(parts) or ("Nothing was finished." if stopped else "No data was read.")
