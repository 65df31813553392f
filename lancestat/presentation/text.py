"""The format `text`, for people at a terminal; colours are dropped elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lancestat.formats import age, count, instant, visible
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.terminal import CONSOLE, paint, table
from lancestat.presentation.text_diff import diff_lines
from lancestat.presentation.text_nodes import (
    past_run_lines,
    plan_lines,
    run_lines,
    runs_lines,
    status_lines,
    unpublish_lines,
)
from lancestat.presentation.text_sql import explanation_lines, query_lines
from lancestat.presentation.views import (
    Answer,
    DiffView,
    ExplanationView,
    ListView,
    PastRunView,
    PlanView,
    QueryView,
    RunsView,
    RunView,
    ShowView,
    StatusView,
    UnpublishView,
)
from lancestat.redact import redact_line

if TYPE_CHECKING:
    from lancestat.tables.wire import PublishedColumn

_LONGEST_BOUND = 28


def _write(lines: Iterable[str]) -> None:
    CONSOLE.out(*lines)


FORMAT: Format[Iterable[str]] = Format(_write, is_for_people=True)

FORMAT.renders(PlanView)(plan_lines)
FORMAT.renders(RunView)(run_lines)
FORMAT.renders(RunsView)(runs_lines)
FORMAT.renders(PastRunView)(past_run_lines)
FORMAT.renders(DiffView)(diff_lines)
FORMAT.renders(StatusView)(status_lines)
FORMAT.renders(UnpublishView)(unpublish_lines)
FORMAT.renders(QueryView)(query_lines)
FORMAT.renders(ExplanationView)(explanation_lines)


@FORMAT.renders(Answer)
def _answer(view: Answer, page: Page) -> Iterable[str]:
    return view.lines(page)


@FORMAT.renders(ListView)
def _list(view: ListView, page: Page) -> list[str]:
    if not view.nodes and not view.sources:
        return ["No nodes declared." if view.is_empty else "No nodes selected."]
    head = ["name", "kind", "tags", "file", *(["description"] if page.verbose else [])]
    rows = []
    for node in view.nodes:
        location = paint(f"{node.location.file}:{node.location.line}", "note")
        row = [node.name, node.kind.value, " ".join(node.tags), location, node.description or ""]
        rows.append(row[: len(head)])
    for source in view.sources:
        location = paint(f"{source.location.file}:{source.location.line}", "note")
        row = [f"source:{source.label}", "source", " ".join(source.defaults.tags), location, ""]
        rows.append(row[: len(head)])
    lines = table(rows, head=head, page=page)
    if view.sources:
        which = "this source" if len(view.sources) == 1 else "these sources"
        lines += ["", paint(f"--discover lists the tables of {which} too.", "note")]
    return lines


@FORMAT.renders(ShowView)
def _show(view: ShowView, page: Page) -> list[str]:
    status = view.status
    lines = [f"{paint(status.table, 'title')}  {paint(redact_line(status.uri), 'note')}", ""]
    lines += table(show_facts(view), indent="  ", page=page)
    lines += ["", *_columns(status.columns, page)] if status.columns else []
    if status.kept:
        kept = ", ".join(visible(name) for name in status.columns if name in status.kept)
        lines += ["", f"  kept in the state alone, since Spark cannot plan with it: {kept}"]
    if status.unbounded:
        lines += ["", f"  {status.unbounded_words}"]
    if status.missing:
        lines += ["", f"  without statistics: {', '.join(status.missing)}"]
    notes = [*(f"ignored: {name}, {why}" for name, why in status.dropped.items()), *status.skipped]
    if notes:
        lines += ["", *(paint(f"  {note}", "note") for note in notes)]
    return lines


def show_facts(view: ShowView) -> Iterator[tuple[str, str]]:
    """Yield what is known of a table and its statistics: terms and painted texts."""
    status, figures = view.status, view.figures
    verdict = paint(figures.verdict, "success" if status.use else "error")
    yield "statistics", f"{verdict}, {status.detail}"
    yield "table", f"version {status.version}, {figures.rows}"
    yield "size", figures.size
    if status.computed_at is not None:
        ago = f", {age(status.age)} ago" if status.age is not None else ""
        yield "computed", f"{instant(status.computed_at, with_seconds=True)}{ago}"
    if status.columns:
        covered = f"{count(len(status.columns))} of {count(status.analyzable)}"
        yield "columns", f"{covered} that can have statistics"
    if figures.behind:
        changed = f", {figures.changed} of the rows" if figures.changed else ""
        yield "behind", f"{figures.behind}{changed}"
    if status.policy:
        yield "policy", status.policy


def _columns(columns: Mapping[str, PublishedColumn], page: Page) -> list[str]:
    [first, *_] = columns.values()
    statistics = [statistic for statistic, _ in first.items()]
    rows = [
        [name, *(_shortened(statistic.text(value)) for statistic, value in column.items())]
        for name, column in columns.items()
    ]
    head = ["column", *(statistic.label for statistic in statistics)]
    right = [index for index, statistic in enumerate(statistics, start=1) if not statistic.is_bound]
    return table(rows, head=head, right=right, indent="  ", page=page)


def _shortened(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= _LONGEST_BOUND else f"{line[: _LONGEST_BOUND - 3]}..."
