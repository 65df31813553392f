"""A query's plan and what its estimates stand on, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancestat.formats import count, size
from lancestat.presentation.terminal import CONSOLE, grid, paint
from lancestat.redact import visible

if TYPE_CHECKING:
    from lancestat.optimizer.estimates import ColumnEstimate, Explanation
    from lancestat.spark.sql.explain import Operator, PlanExplanation, ScanLine

_WIDEST_FILTERS = 4


def render_explanation(explanation: PlanExplanation, *, verbose: bool, width: int) -> list[str]:
    """Operators with estimated rows and bytes, then each scan with its statistics."""
    lines = _plan(explanation, width)
    if not explanation.is_cost_based:
        note = "spark.sql.cbo.enabled is false: row counts and column statistics are not looked at"
        lines += ["", paint(note, "error")]
    for number, scan in enumerate(explanation.scans, start=1):
        lines += ["", *_scan(number, scan, verbose=verbose)]
    return lines


def _plan(explanation: PlanExplanation, width: int) -> list[str]:
    rows = []
    room = max(40, width - 26)
    for operator in explanation.operators:
        # What is shortened must not hide a part of what may not be shown.
        text = "  " * operator.depth + visible(CONSOLE.text(_text(operator)))
        if len(text) > room:
            text = f"{text[: room - 3]}..."
        rows.append([_figure(operator.rows), _bytes(operator.size_bytes), text])
    return grid(["rows", "bytes", "operator"], rows, right=frozenset({0, 1}))


def _text(operator: Operator) -> str:
    if operator.scan is not None:
        return f"{operator.text} [{operator.scan}]"
    if operator.join is not None and operator.join.build_side is not None:
        verb = "broadcasts" if operator.join.strategy.startswith("broadcast") else "hashes"
        return f"{operator.text}, {verb} its {operator.join.build_side}"
    return operator.text


def _scan(number: int, scan: ScanLine, *, verbose: bool) -> list[str]:
    told = scan.told
    if told is None:
        what = "statistics as Spark has them"
        return [f"[{number}] {paint(scan.table, 'title')}", f"    {what}: {_read(scan)}"]
    verdict = told.verdict
    tone = "success" if verdict.use else "error"
    word = "used" if verdict.use else "refused"
    reason = verdict.reason.value.replace("_", " ")
    facts = [
        ("estimate", _read(scan)),
        *_truth(told),
        ("statistics", f"{paint(f'{word}: {reason}', tone)}, {verdict.detail}"),
    ]
    if told.filters:
        more = ", ..." if len(told.filters) > _WIDEST_FILTERS and not verbose else ""
        shown = told.filters if verbose else told.filters[:_WIDEST_FILTERS]
        facts.append(("filters", ", ".join(shown) + more))
    widest = max(len(name) for name, _ in facts)
    lines = [f"[{number}] {paint(scan.table, 'title')}, version {told.version}"]
    lines += [f"    {name:<{widest}}  {fact}" for name, fact in facts]
    if told.columns:
        lines += [f"    {line}" for line in _columns(told)]
    return lines


def _read(scan: ScanLine) -> str:
    rows = "unknown rows" if scan.rows is None else count(scan.rows, "row")
    return rows if scan.size_bytes is None else f"{rows}, {size(scan.size_bytes)}"


def _truth(told: Explanation) -> list[tuple[str, str]]:
    pruned = told.fragments - told.fragments_scanned
    fragments = count(told.fragments, "fragment")
    if pruned:
        fragments += f", {count(pruned)} of them ruled out by the filters"
    if told.table_rows is None:
        return [("table", fragments)]
    return [("table", f"{count(told.table_rows, 'row')} in {fragments}")]


def _columns(told: Explanation) -> list[str]:
    head = ["column", "nulls", "distinct", "min", "max", "avg length", "histogram"]
    rows = [_column(name, column) for name, column in told.columns.items()]
    used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    return grid(
        [head[i] for i in used],
        [[row[i] for i in used] for row in rows],
        right=frozenset(place for place, i in enumerate(used) if i in (1, 2, 5)),
    )


def _column(name: str, column: ColumnEstimate) -> list[str]:
    bins = count(len(column.histogram.bins), "bin") if column.histogram else ""
    return [
        name,
        _figure(column.nulls),
        _figure(column.distinct),
        column.minimum or "",
        column.maximum or "",
        _figure(column.average_length),
        bins,
    ]


def _figure(number: int | None) -> str:
    return "" if number is None else count(number)


def _bytes(number: int | None) -> str:
    return "" if number is None else size(number)
