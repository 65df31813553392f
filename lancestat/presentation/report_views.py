"""The views of what is known of nodes: `run`, `show`, `status` and `docs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from lancestat.formats import count, large, size
from lancestat.presentation.terminal import paint
from lancestat.presentation.views import (
    Answer,
    PastRunView,
    RunsView,
    RunView,
    ShowView,
    StatusView,
)
from lancestat.report.gather import STATISTICS, statistics_rows
from lancestat.report.tables import status_figures
from lancestat.report.values import (
    NodeRunFigures,
    health_counts,
    node_run,
    one_line,
    status_words,
)
from lancestat.runs.actions import gone_words
from lancestat.runs.result import Status

if TYPE_CHECKING:
    from datetime import datetime

    from lancestat.report.values import NodeReport, ProjectReport
    from lancestat.runs.result import PastRun, RunResult
    from lancestat.spec.model import ProjectSpec
    from lancestat.state.retention import GarbageReport
    from lancestat.tables.table_status import TableStatus


def show_view(status: TableStatus) -> ShowView:
    return ShowView(
        status,
        status_figures(status),
        tuple(STATISTICS.columns),
        tuple(statistics_rows(status)),
    )


def status_view(report: ProjectReport) -> StatusView:
    nodes = tuple(_status_row(node, report.made_at) for node in report.nodes)
    project, target = one_line(report.name), one_line(report.target)
    counts = health_counts(report.nodes)
    return StatusView(project, target, report, nodes, counts, gone_words(report.sources))


def _status_row(node: NodeReport, now: datetime) -> tuple[NodeReport, dict[str, str]]:
    shown = replace(node, problems=tuple(map(one_line, node.problems)))
    return shown, status_words(node, now)


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
    return RunsView(spec.name, spec.target.name, tuple(runs))


def past_run_view(spec: ProjectSpec, run: PastRun) -> PastRunView:
    return PastRunView(spec.name, run, tuple(map(node_run, run.nodes)))


def garbage_answer(report: GarbageReport, project: str = "", target: str = "") -> Answer:
    counts = asdict(report)
    members = {"project": project, "target": target, "dry_run": counts.pop("is_dry_run"), **counts}
    return Answer("gc", members, lambda page: _garbage_lines(report))


def _garbage_lines(report: GarbageReport) -> Iterator[str]:
    counts = [
        count(report.partials_dropped, "set of partials", "sets of partials"),
        count(report.runs_dropped, "run entry", "run entries"),
        count(report.generations_dropped, "superseded dataset"),
        count(report.scratch_dropped, "scratch folder"),
        count(report.indexes_dropped, "kept index", "kept indexes"),
    ]
    removed = [text for text in counts if not text.startswith("0 ")]
    verb = "would remove" if report.is_dry_run else "removed"
    yield f"{verb} {', '.join(removed)}: {size(report.bytes)}" if removed else "Nothing to remove."
    if report.scratch_left:
        left = count(report.scratch_left, "scratch folder")
        yield paint(f"left {left} that cannot be removed, see above", "note")


def _kinds(nodes: Sequence[NodeRunFigures]) -> str:
    joins = sum(node.result.figures is not None for node in nodes)
    tables = count(len(nodes) - joins, "table")
    if not joins:
        return tables
    return count(joins, "join") if joins == len(nodes) else f"{tables} and {count(joins, 'join')}"


def _all_read(done: Sequence[NodeRunFigures], stopped: Sequence[NodeRunFigures]) -> str:
    results = [node.result for node in done]
    rows = sum(result.rows_scanned or 0 for result in results)
    fragments = sum(result.fragments_scanned or 0 for result in results)
    pairs = sum(result.figures.pairs or 0 for result in results if result.figures is not None)
    parts = []
    if fragments:
        parts.append(f"Read {count(fragments, 'fragment')}, {count(rows, 'row')}.")
    if pairs:
        parts.append(f"Compared {large(pairs)} pairs.")
    if stored := sum(node.result.fragments_scanned or 0 for node in stopped):
        parts.append(f"Kept {count(stored, 'fragment')} of stopped tables, not to be read again.")
    # What a stopped node has read without keeping it is not known.
    return " ".join(parts) or ("Nothing was finished." if stopped else "No data was read.")
