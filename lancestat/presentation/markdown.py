"""The format `markdown`, for pull requests, chats and tickets.

Nothing that comes from a project is markup: it is shown as code or escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lancestat.formats import count, visible
from lancestat.presentation.markdown_diff import diff_page
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.text_plan import closing_words, source_lines
from lancestat.presentation.text_status import SYMBOLS, WELL_LISTED
from lancestat.presentation.views import ActionView, DiffView, PlanView, QueryView, StatusView

if TYPE_CHECKING:
    from lancestat.report.node_facts import NodeStatus


def _write(lines: Iterable[str]) -> None:
    CONSOLE.markdown("\n".join(lines))


FORMAT: Format[Iterable[str]] = Format(_write, is_for_people=True, is_published=True)


@FORMAT.renders(DiffView)
def _diff(view: DiffView, page: Page) -> list[str]:
    return [diff_page(view)]


@FORMAT.renders(PlanView)
def _plan(view: PlanView, page: Page) -> list[str]:
    """Return what will be read and why, and which staleness readers accept.

    Nodes that stay as they are are counted, not listed.
    """
    listed = [action for action in view.actions if action.verb != "skip"]
    lines = [f"### lancestat: {cell(view.project)}, target {cell(view.target)}", ""]
    if listed:
        lines += ["| | node | reads | why | readers accept |", "|:-:|---|---|---|---|"]
        lines += [_action(action, page) for action in listed]
        lines.append("")
    lines.append(_totals(view, len(listed)))
    sentences = (*source_lines(view), *closing_words(view))
    lines += (part for text in sentences for part in ("", cell(text)))
    notes = [
        f"- {code(action.node)}: {cell(page.redacted(note))}"
        for action in listed
        for note in ([action.choice] if action.choice else []) + list(action.notes)
    ]
    return [*lines, "", *notes] if notes else lines


def _action(action: ActionView, page: Page) -> str:
    if action.error is not None:
        why = cell(page.redacted(action.error))
    else:
        why = ", ".join(map(code, action.reasons))
    cells = (f"{code(action.symbol)} {action.verb}", code(action.node), action.reads, why)
    return f"| {' | '.join(cells)} | {cell(action.accepted)} |"


def _totals(view: PlanView, listed: int) -> str:
    idle = len(view.actions) - listed
    if view.pending:
        text = f"**{count(view.pending, 'change')}.** {view.total}"
    else:
        text = "Nothing else to do." if listed else "Nothing to do."
    return f"{text} {count(idle, 'node')} unchanged." if idle else text


_STATUS_HEAD = (
    "| | node | statistics | behind | changed | columns | age | data age | last run |",
    "|:-:|---|---|--:|--:|--:|---|---|---|",
)
_HEALTH_ORDER = ("error", "warn", "ok")


@FORMAT.renders(StatusView)
def _status(view: StatusView, page: Page) -> Iterator[str]:
    """Yield a summary, what is wrong, and a table of nodes, those in trouble first.

    Nodes that are well are counted where they are many.
    """
    counts = ", ".join(text for text, _ in view.counts)
    yield f"### lancestat: {cell(view.project)}, target {cell(view.target)}"
    yield ""
    yield f"**{counts}.**" if counts else "No nodes declared."
    if view.gone:
        yield from ("", cell(view.gone))
    well = sum(node.health == "ok" for node in view.nodes)
    listed = [node for node in view.nodes if node.health != "ok" or well <= WELL_LISTED]
    listed.sort(key=lambda node: _HEALTH_ORDER.index(node.health))
    problems = [f"- {code(node.name)}: {cell(text)}" for node in listed for text in node.problems]
    if problems:
        yield from ("", *problems)
    if listed:
        yield from ("", *_STATUS_HEAD, *map(_node, listed))
    if well > WELL_LISTED:
        yield ""
        yield f"{count(well, 'node is', 'nodes are')} well and not listed."


def _node(node: NodeStatus) -> str:
    texts = (
        node.verdict,
        node.behind,
        node.changed,
        node.columns,
        node.age,
        node.rows_age,
        node.last_run,
    )
    sign = f"{code(SYMBOLS[node.health])} {node.health}"
    return f"| {sign} | {code(node.name)} | {' | '.join(map(cell, texts))} |"


@FORMAT.renders(QueryView)
def _query(view: QueryView, page: Page) -> list[str]:
    """Return a table with every value whole; an empty line where there is no result."""
    rows = list(view.cells)
    if not view.columns:
        return []
    rule = " | ".join("---:" if column.is_number else "---" for column in view.columns)
    head = _row(visible(column.name) for column in view.columns)
    return [head, f"| {rule} |", *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    escaped = (text.replace("\\", "\\\\").replace("|", "\\|") for text in cells)
    return f"| {' | '.join(escaped)} |"


def code(text: str) -> str:
    """Return a text as inline code in a table's cell."""
    text = " ".join(text.replace("`", "'").replace("|", "\\|").split())
    return f"`{visible(text)}`"


def cell(text: str) -> str:
    """Return a text that cannot break out of a table's cell or turn into markup."""
    for char in "\\`*_[]<>|":
        text = text.replace(char, "\\" + char)
    return visible(" ".join(text.split()))
