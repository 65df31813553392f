"""Results and plans of queries as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancestat.formats import count, size, spoken
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import cell_width, paint, table
from lancestat.presentation.views import ExplanationView, QueryView
from lancestat.redact import visible

if TYPE_CHECKING:
    from lancestat.optimizer.estimates import ColumnEstimate, Explanation
    from lancestat.spark.sql.explain import Operator, PlanExplanation, ScanLine

_WIDEST_CELL = 60
_WIDEST_FILTERS = 4


def query_lines(view: QueryView, page: Page) -> list[str]:
    """Return columns under each other; long cells are shortened unless the page is verbose."""
    rows = list(view.cells)
    if not view.columns:
        return []
    if not page.verbose:
        view.is_shortened = any(cell_width(cell) > _WIDEST_CELL for row in rows for cell in row)
        rows = [list(map(_shortened, row)) for row in rows]
    head = [visible(column.name) for column in view.columns]
    right = [place for place, column in enumerate(view.columns) if column.is_number]
    return table(rows, head=head, right=right)


def _shortened(cell: str) -> str:
    if cell_width(cell) <= _WIDEST_CELL:
        return cell
    from rich.cells import set_cell_size

    return f"{set_cell_size(cell, _WIDEST_CELL - 3).rstrip()}..."


def explanation_lines(view: ExplanationView, page: Page) -> list[str]:
    """Return operators with estimated rows and bytes, then each scan with its statistics."""
    explanation = view.explanation
    lines = _plan(explanation, page)
    if not explanation.is_cost_based:
        note = "spark.sql.cbo.enabled is false: row counts and column statistics are not looked at"
        lines += ["", paint(note, "error")]
    for number, scan in enumerate(explanation.scans, start=1):
        lines += ["", *_scan(number, scan, verbose=page.verbose)]
    return lines


def _plan(explanation: PlanExplanation, page: Page) -> list[str]:
    rows = []
    room = max(40, page.width - 26)
    for operator in explanation.operators:
        # What is shortened must not hide a part of what may not be shown.
        text = "  " * operator.depth + visible(page.redacted(_text(operator)))
        if len(text) > room:
            text = f"{text[: room - 3]}..."
        rows.append([_figure(operator.rows), _bytes(operator.size_bytes), text])
    return table(rows, head=["rows", "bytes", "operator"], right={0, 1})


def _text(operator: Operator) -> str:
    if operator.scan is not None:
        return f"{operator.text} [{operator.scan}]"
    if operator.join is not None and operator.join.build_side is not None:
        verb = "broadcasts" if operator.join.strategy.startswith("broadcast") else "hashes"
        return f"{operator.text}, {verb} its {operator.join.build_side}"
    return operator.text


def _scan(number: int, scan: ScanLine, *, verbose: bool) -> list[str]:
    told = scan.explanation
    if told is None:
        what = "statistics as Spark has them"
        return [f"[{number}] {paint(scan.table, 'title')}", f"    {what}: {_read(scan)}"]
    verdict = told.verdict
    tone = "success" if verdict.use else "error"
    word = "used" if verdict.use else "refused"
    reason = spoken([verdict.reason.value])
    facts = [
        ("estimate", _read(scan)),
        *_truth(told),
        ("statistics", f"{paint(f'{word}: {reason}', tone)}, {verdict.detail}"),
    ]
    if told.filters:
        more = ", ..." if len(told.filters) > _WIDEST_FILTERS and not verbose else ""
        shown = told.filters if verbose else told.filters[:_WIDEST_FILTERS]
        facts.append(("filters", ", ".join(shown) + more))
    lines = [f"[{number}] {paint(scan.table, 'title')}, version {told.version}"]
    lines += table(facts, indent="    ")
    return [*lines, *_columns(told)] if told.columns else lines


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
    return table(
        [[row[i] for i in used] for row in rows],
        head=[head[i] for i in used],
        right=[place for place, i in enumerate(used) if i in (1, 2, 5)],
        indent="    ",
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
