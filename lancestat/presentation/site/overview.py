"""The first page: what needs attention, then every node on a line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from lancestat.formats import count, size, spoken
from lancestat.presentation.site.runs import NodeRunRow, node_run_row
from lancestat.presentation.site.text import NOTHING, ago
from lancestat.report.joins import JoinReport
from lancestat.report.tables import TableReport, status_figures, verdict_words
from lancestat.report.values import Health, NodeReport, ProjectReport, node_run
from lancestat.tables.table_status import TableStatus


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table on a line; `coverage` is a share of the wanted columns."""

    report: TableReport
    verdict: str
    behind: Markup
    coverage: float | None
    coverage_words: str
    rows: str
    size: str
    freshness: str
    run: NodeRunRow | None
    ran: str


@dataclass(frozen=True, slots=True)
class JoinRow:
    """A join on a line."""

    report: JoinReport
    verdict: str
    strategy: str
    rows: str
    made: str
    run: NodeRunRow | None
    ran: str


def problem_nodes(report: ProjectReport) -> list[NodeReport]:
    """The nodes that are not well, the worst first."""
    order = list(Health)
    unwell = [node for node in report.nodes if node.health is not Health.OK]
    return sorted(unwell, key=lambda node: -order.index(node.health))


def nodes_by_health(report: ProjectReport) -> dict[str, int]:
    """Count the nodes in each state of health."""
    counts = Counter(node.health for node in report.nodes)
    return {health.value: counts[health] for health in Health}


def column_counts(report: ProjectReport) -> tuple[int, int]:
    """Columns with statistics that may be used, also kept ones, and all that are wanted."""
    statuses = [
        node.status for node in report.nodes if isinstance(node, TableReport) and node.status
    ]
    used = sum(len(status.columns) for status in statuses if status.use)
    return used, sum(len(status.columns) + len(status.missing) for status in statuses)


def last_skips(report: ProjectReport) -> list[tuple[str, int]]:
    """Count the nodes that their last run skipped, by the reason."""
    last = [node_run(node.runs[0].result) for node in report.nodes if node.runs]
    idle = Counter(run.reasons or "nothing to do" for run in last if run.is_idle)
    return idle.most_common()


def table_row(report: TableReport) -> TableRow:
    status = report.status
    coverage, words = coverage_of(report)
    run = report.runs[0] if report.runs else None
    return TableRow(
        report=report,
        verdict=verdict_words(report.verdict == "use", report.reason),
        behind=_behind(status) if status else Markup(),
        coverage=coverage,
        coverage_words=words,
        rows=count(status.rows) if status else NOTHING,
        size=size(status.disk_bytes) if status else "",
        freshness=freshness_words(report),
        run=node_run_row(run) if run else None,
        ran=ago(run.ended_at) if run else "never",
    )


def join_row(report: JoinReport) -> JoinRow:
    record = report.record
    run = report.runs[0] if report.runs else None
    return JoinRow(
        report=report,
        verdict=result_words(report),
        strategy=spoken([record.strategy]) if record else NOTHING,
        rows=count(record.result.rows) if record else NOTHING,
        made=ago(record.finished_at) if record else "never",
        run=node_run_row(run) if run else None,
        ran=ago(run.ended_at) if run else "never",
    )


def coverage_of(report: TableReport) -> tuple[float | None, str]:
    """The share of the columns to analyze that have statistics, and both numbers."""
    status = report.status
    if status is None:
        return None, NOTHING
    total = len(status.columns) + len(status.missing)
    if not total:
        return None, "no columns"
    return len(status.columns) / total, f"{count(len(status.columns))} of {count(total)}"


def freshness_words(report: TableReport) -> str:
    """Return when rows last changed, as far as it is known."""
    if report.changed_at is None:
        return NOTHING
    return Markup("rows changed {}").format(ago(report.changed_at))


def result_words(report: JoinReport) -> str:
    """Whether a join's result holds, and why it does not."""
    if report.verdict == "current" or not report.reasons:
        return report.verdict
    return f"{report.verdict}: {spoken(report.reasons)}"


def _behind(status: TableStatus) -> Markup:
    figures = status_figures(status)
    parts = [f"{figures.behind} behind"] if figures.behind else []
    parts += [f"{figures.changed} of rows"] if figures.changed else []
    parts += [Markup("of {}").format(ago(status.computed_at))] if status.computed_at else []
    return Markup(", ").join(parts)
