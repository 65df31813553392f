"""The words and cells of the explanations of queries, which text and notebooks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count, duration, size, spoken
from lancestat.presentation.terminal import paint

if TYPE_CHECKING:
    from lancestat.query.estimates import ColumnEstimate, Explanation, PushDown
    from lancestat.query.sql.comparison import Comparison, PlanChange, Side
    from lancestat.query.sql.explanation import Operator, PlanExplanation, ScanLine

_WIDEST_FILTERS = 4
# The average length is what estimates are made from.
_NOT_SHOWN = frozenset({"maximum_length"})
_ORIGIN = "*"


def operator_table(
    explanation: PlanExplanation,
) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]], frozenset[int]]:
    """Return titles, the cells beside each operator, and which columns have numbers.

    Cells are of estimates, and of what operators did where the query was run.
    """
    if explanation.execution is None:
        head: tuple[str, ...] = ("rows", "bytes", "rests on")
        cells = [_planned_cells(operator) for operator in explanation.operators]
    else:
        head = ("rows", "true rows", "q-error", "time", "rests on")
        origin = explanation.origin
        cells = [_run_cells(op, at == origin) for at, op in enumerate(explanation.operators)]
    return head, cells, frozenset(range(len(head) - 1))


def _planned_cells(operator: Operator) -> tuple[str, ...]:
    return _rows(operator.rows), _size(operator), operator.evidence or ""


def _run_cells(operator: Operator, is_origin: bool) -> tuple[str, ...]:
    evidence = operator.evidence or ""
    error = _error(operator, is_origin)
    return _rows(operator.rows), _true_rows(operator), error, _time(operator), evidence


def _rows(rows: int | None) -> str:
    return "" if rows is None else count(rows)


def _size(operator: Operator) -> str:
    return "" if operator.size_bytes is None else size(operator.size_bytes)


def _true_rows(operator: Operator) -> str:
    return "" if operator.actual is None else _rows(operator.actual.rows)


def _error(operator: Operator, is_origin: bool) -> str:
    text = error_words(operator)
    return paint(f"{_ORIGIN} {text}", "error") if is_origin else text


def error_words(operator: Operator) -> str:
    """Return a q-error, and whether the estimate is under or over the true rows."""
    error = operator.q_error
    if error is None or operator.actual is None:
        return ""
    digits = f"{error:.2f}" if error < 9.995 else f"{error:,.0f}"
    if digits == "1.00":
        return "1"
    is_under = (operator.rows or 0) < (operator.actual.rows or 0)
    return f"{digits} {'under' if is_under else 'over'}"


def _time(operator: Operator) -> str:
    if operator.actual is None:
        return ""
    seconds = operator.actual.pipeline_seconds
    if seconds is None:
        seconds = operator.actual.seconds
    return "" if seconds is None else duration(seconds)


def execution_notes(explanation: PlanExplanation) -> Iterator[str]:
    """Yield sentences about the run of a query, none where it was not run."""
    done = explanation.execution
    if done is None:
        return
    rows = count(done.rows, "row")
    yield f"{rows} in {duration(done.seconds)}, planned in {duration(done.planning_seconds)}"
    if explanation.worst is not None and explanation.origin is not None:
        worst = explanation.operators[explanation.worst]
        origin = explanation.operators[explanation.origin]
        what = f"{error_words(origin)} ({origin.evidence}), {operator_text(origin)}"
        if worst == origin:
            yield f"{_ORIGIN} the worst estimate: {what}"
        else:
            yield f"{_ORIGIN} most of the error arises here: {what}"
            yield f"The worst estimate is {error_words(worst)}, {operator_text(worst)}"


def explanation_notes(explanation: PlanExplanation) -> Iterator[str]:
    """Yield sentences about the whole plan, painted."""
    for join in explanation.nearest_by:
        yield f"NEAREST BY {join.join}: {join.strategy}, since {join.reason}"
    if not explanation.is_cost_based:
        note = "spark.sql.cbo.enabled is false: row counts and column statistics are not looked at"
        yield paint(note, "error")
    if not explanation.reads_lance:
        yield "No scan is lancestat's: there are no statistics of Lance tables in this plan."


def operator_text(operator: Operator) -> str:
    """Return an operator with the number of its scan, or the side that its join broadcasts."""
    if operator.scan is not None:
        return f"{operator.text} [{operator.scan}]"
    if operator.join is not None and operator.join.build_side is not None:
        verb = "broadcasts" if operator.join.strategy.startswith("broadcast") else "hashes"
        return f"{operator.text}, {verb} its {operator.join.build_side}"
    return operator.text


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


def side_cells(name: str, side: Side) -> tuple[str, ...]:
    """Return the cells of one side of a comparison: its times, and its worst estimate."""
    plan, seconds = side.plan, side.all_seconds
    span = f"{duration(seconds[0])} to {duration(seconds[-1])}"
    times = (duration(side.seconds), span, duration(side.planning_seconds))
    if plan.worst is not None:
        return (name, *times, error_words(plan.operators[plan.worst]))
    return (name, *times, "none is wrong" if plan.is_cost_based else "no rows are estimated")


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield sentences about how a query was compared, and what came of it."""
    turns = count(len(comparison.with_statistics.turns), "turn")
    yield f"Medians of {turns} each, run alternately after one each that is not counted."
    ratio = comparison.time_ratio
    yield f"With statistics the query takes {ratio:.2f} of the time that it takes without."
    if not comparison.changes:
        yield "The plan is the same."


def change_words(change: PlanChange) -> str:
    """Return what differs between two plans: `join on a = b`, `fragments of orders`."""
    link = "on" if change.what == "join" else "of"
    what = spoken([change.what.value])
    return what if change.subject is None else f"{what} {link} {change.subject}"
