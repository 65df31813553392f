"""Results and plans of queries as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lancestat.formats import PAINT, count, size, spoken, visible
from lancestat.presentation.terminal import cell_width, fitting_columns, paint, table
from lancestat.presentation.views import ExplanationView, Page, QueryView

if TYPE_CHECKING:
    from lancestat.query.estimates import ColumnEstimate, Explanation, PushDown
    from lancestat.query.sql.explain import Operator, PlanExplanation, ScanLine

_WIDEST_CELL = 60
_WIDEST_FILTERS = 4
# The average length is what estimates are made from.
_NOT_SHOWN = frozenset({"maximum_length"})


def query_lines(view: QueryView, page: Page) -> list[str]:
    """Return columns under each other; long cells are shortened unless the page is verbose."""
    rows = list(view.cells)
    if not view.columns:
        return []
    if not page.verbose:
        view.is_shortened = any(cell_width(cell) > _WIDEST_CELL for row in rows for cell in row)
        rows = [list(map(_shortened, row)) for row in rows]
    head = [visible(column.name) for column in view.columns]
    kept: list[int | None] = [*range(len(head))]
    if page.limit is not None and not page.verbose:
        kept = _fitting(len(head), fitting_columns(page.limit))
        view.is_shortened |= None in kept
    head = ["..." if index is None else head[index] for index in kept]
    rows = [["..." if index is None else row[index] for index in kept] for row in rows]
    numbers = {index for index, column in enumerate(view.columns) if column.is_number}
    right = [place for place, index in enumerate(kept) if index in numbers]
    return table(rows, head=head, right=right, page=None if page.verbose else page)


def _fitting(columns: int, room: int) -> list[int | None]:
    """Return the indexes of the columns that have room, None in place of those in the middle."""
    if columns <= room:
        return [*range(columns)]
    first, last = room // 2, room - room // 2 - 1
    return [*range(first), None, *range(columns - last, columns)]


def _shortened(cell: str) -> str:
    if cell_width(cell) <= _WIDEST_CELL:
        return cell
    from rich.cells import set_cell_size

    return f"{set_cell_size(cell, _WIDEST_CELL - 3).rstrip()}..."


def explanation_lines(view: ExplanationView, page: Page) -> list[str]:
    """Return operators with estimated rows and bytes, then each scan with its statistics."""
    explanation = view.explanation
    lines = _plan(explanation, page)
    for note in explanation_notes(explanation):
        lines += ["", visible(page.redacted(note), keep=PAINT)]
    for number, scan in enumerate(explanation.scans, start=1):
        lines += ["", *_scan(number, scan, verbose=page.verbose)]
    return lines


def explanation_notes(explanation: PlanExplanation) -> Iterator[str]:
    """Yield sentences about the whole plan, painted."""
    for join in explanation.nearest_by:
        yield f"NEAREST BY {join.join}: {join.strategy}, since {join.reason}"
    if not explanation.is_cost_based:
        note = "spark.sql.cbo.enabled is false: row counts and column statistics are not looked at"
        yield paint(note, "error")
    if not explanation.reads_lance:
        yield "No scan is lancestat's: there are no statistics of Lance tables in this plan."


def _plan(explanation: PlanExplanation, page: Page) -> list[str]:
    rows = []
    room = max(40, page.width - 26)
    for operator in explanation.operators:
        # Redacted before it is shortened, which could leave a part of a secret.
        text = "  " * operator.depth + visible(page.redacted(operator_text(operator)))
        if len(text) > room:
            text = f"{text[: room - 3]}..."
        rows.append([*operator_figures(operator), text])
    return table(rows, head=["rows", "bytes", "operator"], right={0, 1})


def operator_figures(operator: Operator) -> tuple[str, str]:
    """Return the estimated rows and bytes of an operator, empty where there is no estimate."""
    rows = "" if operator.rows is None else count(operator.rows)
    return rows, "" if operator.size_bytes is None else size(operator.size_bytes)


def operator_text(operator: Operator) -> str:
    """Return an operator with the number of its scan, or the side that its join broadcasts."""
    if operator.scan is not None:
        return f"{operator.text} [{operator.scan}]"
    if operator.join is not None and operator.join.build_side is not None:
        verb = "broadcasts" if operator.join.strategy.startswith("broadcast") else "hashes"
        return f"{operator.text}, {verb} its {operator.join.build_side}"
    return operator.text


def _scan(number: int, scan: ScanLine, *, verbose: bool) -> list[str]:
    explanation = scan.explanation
    title = f"[{number}] {paint(scan.table, 'title')}"
    if explanation is None:
        lines = [title, f"    {scan_summary(scan)}"]
        return lines if scan.note is None else [*lines, f"    {scan.note}"]
    lines = [f"{title}, {scan_summary(scan)}"]
    lines += table(scan_facts(scan, explanation, verbose=verbose), indent="    ")
    if explanation.columns:
        head, rows, right = estimates(explanation.columns)
        lines += table(rows, head=head, right=right, indent="    ")
    return lines


def scan_summary(scan: ScanLine) -> str:
    """Return the version of a Lance table, or what Spark itself knows of another one."""
    if scan.explanation is None:
        return f"statistics as Spark has them: {_read(scan)}"
    return f"version {scan.explanation.version}"


def scan_facts(scan: ScanLine, explanation: Explanation, *, verbose: bool) -> list[tuple[str, str]]:
    """Return what is known of a scan of a Lance table: terms and painted texts."""
    verdict = explanation.verdict
    tone = "success" if verdict.use else "error"
    word = "used" if verdict.use else "refused"
    reason = spoken([verdict.reason.value])
    facts = [
        ("estimate", _read(scan)),
        *_truth(explanation),
        ("statistics", f"{paint(f'{word}: {reason}', tone)}, {verdict.detail}"),
    ]
    facts += _filters(explanation, verbose=verbose)
    if explanation.aggregates is not None:
        facts.append(("aggregates", _aggregates(explanation.aggregates)))
    return facts


def _filters(explanation: Explanation, *, verbose: bool) -> list[tuple[str, str]]:
    facts = []
    for title, filters in (
        ("filters", explanation.filters),
        ("Spark's own", explanation.other_filters),
    ):
        if filters:
            more = ", ..." if len(filters) > _WIDEST_FILTERS and not verbose else ""
            shown = filters if verbose else filters[:_WIDEST_FILTERS]
            facts.append((title, ", ".join(shown) + more))
    if explanation.is_covered:
        facts.append(("", "every row that is left is proven to pass them"))
    pruning = explanation.pruning
    if pruning is not None and not pruning.use and facts:
        facts.append(("pruning", f"none: {spoken([pruning.reason.value])}, {pruning.detail}"))
    return facts


def _aggregates(decision: PushDown) -> str:
    reason = f"{spoken([decision.reason.value])}, {decision.detail}"
    functions = f"{', '.join(decision.functions)} " if decision.functions else ""
    if decision.use:
        return paint(f"{functions}answered without reading: {reason}", "success")
    return f"{functions}left to Spark: {reason}"


def _read(scan: ScanLine) -> str:
    rows = "unknown rows" if scan.rows is None else count(scan.rows, "row")
    return rows if scan.size_bytes is None else f"{rows}, {size(scan.size_bytes)}"


def _truth(explanation: Explanation) -> list[tuple[str, str]]:
    pruned = explanation.fragments - explanation.fragments_scanned
    fragments = count(explanation.fragments, "fragment")
    if explanation.aggregates is not None and explanation.aggregates.use:
        fragments += ", none of them read"
    elif pruned:
        fragments += f", {count(pruned)} of them ruled out by the filters"
    if explanation.table_rows is None:
        return [("table", fragments)]
    return [("table", f"{count(explanation.table_rows, 'row')} in {fragments}")]


def estimates(
    columns: Mapping[str, ColumnEstimate],
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the estimates of columns: titles, a row per column, and which are numbers."""
    [first, *_] = columns.values()
    statistics = [statistic for statistic, _ in first.items() if statistic.name not in _NOT_SHOWN]
    head = ["column", *(statistic.label for statistic in statistics), "histogram"]
    rows = [
        [name, *(statistic.text(statistic.of(column)) for statistic in statistics), _bins(column)]
        for name, column in columns.items()
    ]
    numbers = {
        index for index, statistic in enumerate(statistics, start=1) if not statistic.is_bound
    }
    used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    return (
        [head[i] for i in used],
        [[row[i] for i in used] for row in rows],
        [index for index, i in enumerate(used) if i in numbers],
    )


def _bins(column: ColumnEstimate) -> str:
    return count(len(column.histogram.bins), "bin") if column.histogram else ""
