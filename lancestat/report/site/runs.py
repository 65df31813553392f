"""What became of a table from run to run, for a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lancestat.formats import count, duration, large
from lancestat.plan.node_result import NodeResult, Status
from lancestat.report.site.text import NOTHING, spoken
from lancestat.report.values import NodeReport, NodeRunReport


def history(runs: Sequence[NodeRunReport]) -> dict[str, object] | None:
    """Fragments, those that were scanned, and versions by time; None with less than two runs.

    Runs come the newest first, charts go the other way. Times are seconds since 1970.
    """
    told = [run for run in reversed(runs) if run.result.fragments_total is not None]
    moments = {round(run.finished_at.timestamp()) for run in told}
    if len(moments) < 2:
        return None
    return {
        "times": [round(run.finished_at.timestamp()) for run in told],
        "fragments": [run.result.fragments_total for run in told],
        "scanned": [run.result.fragments_scanned or 0 for run in told],
        "versions": [run.result.version_published or run.result.version_read for run in told],
    }


@dataclass(frozen=True, slots=True)
class NodeRunRow:
    """What one run did to one node, in words; `tone` is the colour of its end."""

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


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run: what it did, what it cost and why it left nodes alone.

    Nodes are worked on at once, so that the `slowest` tells more of the run than their sum.
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


def node_run(run: NodeRunReport) -> NodeRunRow:
    """One run of a node."""
    result = run.result
    return NodeRunRow(
        run.run_id,
        run.finished_at,
        result.name,
        _action(result),
        _tone(result),
        spoken(result.reasons),
        _read(result),
        _version(result),
        NOTHING if result.elapsed_seconds is None else duration(result.elapsed_seconds),
        result.message,
    )


def all_runs(nodes: Iterable[NodeReport]) -> tuple[RunRow, ...]:
    """The runs that any of the nodes took part in, the newest first."""
    found: dict[str, list[NodeRunReport]] = {}
    for node in nodes:
        for run in node.runs:
            found.setdefault(run.run_id, []).append(run)
    runs = [_run(parts) for parts in found.values()]
    return tuple(sorted(runs, key=lambda run: run.finished_at, reverse=True))


def _run(parts: Sequence[NodeRunReport]) -> RunRow:
    results = [part.result for part in parts]
    skipped = [result for result in results if _is_skip(result)]
    failed = [result for result in results if result.status is Status.ERROR]
    reasons = Counter(_why(result) for result in skipped)
    # What failed comes first, what was left alone last.
    order = sorted(parts, key=lambda part: _rank(part.result))
    return RunRow(
        run_id=parts[0].run_id,
        command=parts[0].command,
        target=parts[0].target,
        finished_at=max(part.finished_at for part in parts),
        done=len(results) - len(skipped) - len(failed),
        failed=len(failed),
        skipped=len(skipped),
        skips=tuple(reasons.most_common()),
        read=_total(results),
        slowest=duration(max(result.elapsed_seconds or 0 for result in results)),
        nodes=tuple(node_run(part) for part in order),
    )


def _is_skip(result: NodeResult) -> bool:
    return result.status is Status.SKIPPED or (
        result.action == "skip" and result.status is Status.SUCCESS
    )


def _why(result: NodeResult) -> str:
    if result.action == "skip":
        return spoken(result.reasons) or "nothing to do"
    return "not run"


def _rank(result: NodeResult) -> int:
    return 0 if result.status is Status.ERROR else 2 if _is_skip(result) else 1


def _action(result: NodeResult) -> str:
    if result.status is Status.ERROR:
        return "failed"
    return "not run" if result.status is Status.SKIPPED else result.action


def _tone(result: NodeResult) -> str:
    if result.status is Status.ERROR:
        return "error"
    return "idle" if _is_skip(result) else "ok"


def _read(result: NodeResult) -> str:
    if _is_skip(result) or result.status is Status.ERROR:
        return NOTHING
    if result.join is not None:
        scope = spoken([result.join.scope]) if result.join.scope else ""
        pairs = f"{large(result.join.pairs or 0)} pairs"
        return f"{pairs}, {scope}" if scope and scope != "all" else pairs
    if not result.fragments_scanned:
        return "nothing"
    total = count(result.fragments_total or 0, "fragment")
    return f"{count(result.fragments_scanned)} of {total}, {count(result.rows_scanned or 0, 'row')}"


def _version(result: NodeResult) -> str:
    read, published = result.version_read, result.version_published
    if published is None:
        return NOTHING if read is None else str(read)
    return str(published) if read is None else f"{read} \u2192 {published}"


def _total(results: Iterable[NodeResult]) -> str:
    rows = sum(result.rows_scanned or 0 for result in results)
    pairs = sum(result.join.pairs or 0 for result in results if result.join is not None)
    parts = [count(rows, "row")] if rows else []
    parts += [f"{large(pairs)} pairs"] if pairs else []
    return ", ".join(parts) or "nothing"
