"""Turns the runs of nodes into chart data and rows for pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from lancestat.formats import count, duration, large
from lancestat.presentation.site.text import NOTHING
from lancestat.report.values import NodeRunFigures, ProjectReport, node_run
from lancestat.runs.result import NodeFailure, NodeResult, PastRun


def history(runs: Sequence[PastRun]) -> dict[str, object] | None:
    """Fragments, those that were scanned, and versions by time; None with less than two runs.

    Runs come the newest first, charts go the other way. Times are seconds since 1970.
    """
    counted = [run for run in reversed(runs) if run.result.fragments_total is not None]
    moments = {round(run.ended_at.timestamp()) for run in counted}
    if len(moments) < 2:
        return None
    return {
        "times": [round(run.ended_at.timestamp()) for run in counted],
        "fragments": [run.result.fragments_total for run in counted],
        "scanned": [run.result.fragments_scanned or 0 for run in counted],
        "versions": [run.result.version_published or run.result.version_read for run in counted],
    }


@dataclass(frozen=True, slots=True)
class NodeRunRow:
    """One run of one node, in words; `tone` is the colour of its end."""

    run_id: str
    finished_at: datetime
    name: str
    action: str
    tone: str
    reasons: str
    read: str
    version: str
    elapsed: str
    message: str | None
    failure: NodeFailure | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run: what it did, what it cost and why it left nodes alone.

    Nodes are worked on at once, so that the `slowest` says more about the run than their sum.
    """

    run_id: str
    command: str
    target: str
    finished_at: datetime
    done: int
    failed: int
    skipped: int
    skips: tuple[tuple[str, int], ...]
    read: str
    slowest: str
    nodes: tuple[NodeRunRow, ...]


def node_run_row(run: PastRun) -> NodeRunRow:
    """Return one run of a node."""
    facts = node_run(run.result)
    return NodeRunRow(
        run.run_id,
        run.ended_at,
        facts.name,
        facts.action,
        "error" if facts.is_failed else "idle" if facts.is_idle else "ok",
        facts.reasons,
        _read(facts),
        _version(run.result),
        facts.elapsed or NOTHING,
        run.result.message,
        NodeFailure.of(run.result) if facts.is_failed else None,
    )


def all_runs(report: ProjectReport) -> tuple[RunRow, ...]:
    """The runs that any node of a report took part in, the newest first."""
    by_run: dict[str, list[PastRun]] = {}
    for run in chain(*(node.runs for node in report.nodes), report.former_runs):
        by_run.setdefault(run.run_id, []).append(run)
    runs = [_run(parts) for parts in by_run.values()]
    return tuple(sorted(runs, key=lambda run: run.finished_at, reverse=True))


def _run(parts: Sequence[PastRun]) -> RunRow:
    results = [part.result for part in parts]
    facts = [node_run(result) for result in results]
    idle = [node for node in facts if node.is_idle]
    # What failed comes first, what was left alone last.
    order = sorted(zip(facts, parts, strict=True), key=lambda pair: _rank(pair[0]))
    return RunRow(
        run_id=parts[0].run_id,
        command=parts[0].command,
        target=parts[0].target,
        finished_at=max(part.ended_at for part in parts),
        done=sum(node.is_done for node in facts),
        failed=sum(node.is_failed for node in facts),
        skipped=len(idle),
        skips=tuple(Counter(map(_why, idle)).most_common()),
        read=_total(results),
        slowest=duration(max(result.elapsed_seconds or 0 for result in results)),
        nodes=tuple(node_run_row(part) for _, part in order),
    )


def _why(node: NodeRunFigures) -> str:
    return (node.reasons or "nothing to do") if node.action == "skip" else node.action


def _rank(node: NodeRunFigures) -> int:
    return 0 if node.is_failed else 2 if node.is_idle else 1


def _read(node: NodeRunFigures) -> str:
    if not node.is_done:
        return NOTHING
    figures = node.result.figures
    if figures is None:
        return node.read or "nothing"
    return ", ".join(filter(None, (figures.compared, figures.narrowed)))


def _version(result: NodeResult) -> str:
    read, published = result.version_read, result.version_published
    if published is None:
        return NOTHING if read is None else str(read)
    return str(published) if read is None else f"{read} \u2192 {published}"


def _total(results: Iterable[NodeResult]) -> str:
    rows = sum(result.rows_scanned or 0 for result in results)
    pairs = sum(result.figures.pairs or 0 for result in results if result.figures is not None)
    parts = [count(rows, "row")] if rows else []
    parts += [f"{large(pairs)} pairs"] if pairs else []
    return ", ".join(parts) or "nothing"
