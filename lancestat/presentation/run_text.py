"""What a run did, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lancestat.execution.result import RunResult
from lancestat.formats import count, duration, large
from lancestat.plan.actions import SYMBOLS, JoinFigures
from lancestat.plan.node_result import NodeResult, Status
from lancestat.presentation.plan_text import SKIPS_LISTED, indented
from lancestat.presentation.terminal import paint


def render_run(result: RunResult, *, verbose: bool, width: int) -> list[str]:
    """A line per node; failures with their cause; a summary."""
    is_retry = result.command == "retry"
    if not result.nodes:
        return ["Nothing to retry." if is_retry else "No nodes selected."]
    idle = sum(node.action == "skip" for node in result.nodes)
    fold = idle > SKIPS_LISTED and not verbose
    shown = [node for node in result.nodes if not (fold and node.action == "skip")]
    what = "Retry" if is_retry else "Run"
    lines = [paint(f"{what} of {result.project}, target {result.target}", "title"), ""]
    cells = [_cells(node) for node in shown]
    widths = [max((len(row[i]) for row in cells), default=0) for i in range(5)]
    for node, row in zip(shown, cells, strict=True):
        tone = _tone(node)
        head = paint(f"{_symbol(node)} {row[0]:<{max(widths[0], 8)}}", tone)
        if node.action == "skip":
            lines.append(f"  {head} {paint(f'{row[1]:<{widths[1]}}  {row[2]}', 'note')}")
        else:
            body = f"{row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]:<{widths[3]}}"
            lines.append(f"  {head} {body}  {row[4]:>{widths[4]}}".rstrip())
        if node.message:
            lines += indented(node.message, width)
        lines += [paint(line, "note") for text in _below(node) for line in indented(text, width)]
    if fold:
        text = f"  {SYMBOLS['skip']} skip     {count(idle)} unchanged (--verbose lists them)"
        lines.append(paint(text, "skip"))
    return [*lines, "", *_summary(result)]


def _cells(node: NodeResult) -> tuple[str, str, str, str, str]:
    """Action, name, what was read, what was published, how long it took."""
    if node.status is not Status.SUCCESS:
        word = "failed" if node.status is Status.ERROR else "not run"
        return word, node.name, "", "", ""
    if node.action == "skip":
        why = ", ".join(reason.replace("_", " ") for reason in node.reasons)
        return "skip", node.name, why, "", ""
    elapsed = duration(node.elapsed_seconds or 0)
    return node.action, node.name, _read(node), _published(node), elapsed


def _read(node: NodeResult) -> str:
    if node.join is not None:
        return _compared(node.join)
    if not node.fragments_scanned:
        return "nothing read"
    total = count(node.fragments_total or 0, "fragment")
    return f"{count(node.fragments_scanned)} of {total}, {count(node.rows_scanned or 0, 'row')}"


def _compared(join: JoinFigures) -> str:
    whole = f"{count(join.left_rows or 0)} x {count(join.right_rows or 0)} rows"
    rows = {"new_left": "new left rows", "new_right": "new right rows"}.get(join.scope or "", whole)
    return f"{join.strategy}, {rows}, {large(join.pairs or 0)} pairs"


def _below(node: NodeResult) -> list[str]:
    """What a reader of a join's result should know of it."""
    join = node.join
    if join is None or node.action == "skip":
        return []
    parts = []
    if join.unmatched_left_rows:
        parts.append(f"{count(join.unmatched_left_rows, 'left row')} without neighbours")
    if join.excluded_right_rows:
        parts.append(f"{count(join.excluded_right_rows, 'right row')} without a usable vector")
    if join.recall is not None and join.recall < 1:
        probes = f" with {count(join.nprobes, 'probe')}" if join.nprobes else ""
        parts.append(f"recall {join.recall:.3f} on a sample{probes}")
    return [", ".join(parts)] if parts else []


def _published(node: NodeResult) -> str:
    if node.join is not None:
        version = node.version_published
        return "written" if version is None else f"version {version}"
    if node.version_published is None:
        return f"version {node.version_read}"
    return f"version {node.version_read} -> {node.version_published}"


def _symbol(node: NodeResult) -> str:
    return SYMBOLS["blocked"] if node.status is Status.ERROR else SYMBOLS.get(node.action, " ")


def _tone(node: NodeResult) -> str:
    return {Status.ERROR: "error", Status.SKIPPED: "note"}.get(node.status, node.action)


def _summary(result: RunResult) -> Sequence[str]:
    statuses = Counter(node.status for node in result.nodes)
    done = [node for node in result.nodes if node.status is Status.SUCCESS]
    changed = [node for node in done if node.action != "skip"]
    parts = [f"{_kinds(changed)} brought up to date", f"{len(done) - len(changed)} unchanged"]
    text = paint(", ".join(parts), "success")
    if statuses[Status.SKIPPED]:
        text += paint(f", {statuses[Status.SKIPPED]} not run", "note")
    if statuses[Status.ERROR]:
        text += paint(f", {statuses[Status.ERROR]} failed", "error")
    return [f"{text}.", paint(_all_read(done), "title")]


def _kinds(nodes: Sequence[NodeResult]) -> str:
    joins = sum(node.join is not None for node in nodes)
    tables = count(len(nodes) - joins, "table")
    if not joins:
        return tables
    return count(joins, "join") if joins == len(nodes) else f"{tables} and {count(joins, 'join')}"


def _all_read(done: Sequence[NodeResult]) -> str:
    rows = sum(node.rows_scanned or 0 for node in done)
    fragments = sum(node.fragments_scanned or 0 for node in done)
    pairs = sum(node.join.pairs or 0 for node in done if node.join is not None)
    parts = []
    if fragments:
        parts.append(f"Read {count(fragments, 'fragment')}, {count(rows, 'row')}.")
    if pairs:
        parts.append(f"Compared {large(pairs)} pairs.")
    return " ".join(parts) or "No data was read."
