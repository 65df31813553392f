"""The format `markdown`, for pull requests, chats and tickets.

Nothing that comes from a project is markup: it is shown as code or escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count, visible
from lancestat.presentation.registry import Format, Page
from lancestat.presentation.terminal import CONSOLE, ZERO_WIDTH_SPACE
from lancestat.presentation.text_diff import NOTHING
from lancestat.presentation.text_nodes import (
    HEALTH_SYMBOLS,
    WELL_LISTED,
    closing_words,
    source_lines,
)
from lancestat.presentation.views import (
    ActionView,
    DiffView,
    NodeDiffView,
    PlanView,
    PropertyView,
    QueryView,
    StatusView,
)

if TYPE_CHECKING:
    from lancestat.review.values import ColumnsChange, TablesChange

MAX_CHARACTERS = 65_000
"""Below what GitHub takes in one comment, so that a marker fits too."""

# Shares of the page: risks, owners, the table, then details.
_RISKS_END, _OWNERS_END, _TABLE_END = 16_000, 20_000, 40_000
_RESERVE = 200
_VALUE = 4_000
_CELL = 300
_MARKUP = re.compile(r"([\\`*_\[\]<|~$&#])")


def _write(lines: Iterable[str]) -> None:
    CONSOLE.markdown("\n".join(lines))


FORMAT: Format[Iterable[str]] = Format(_write, is_for_people=True, is_published=True)


@FORMAT.renders(PlanView)
def _plan(view: PlanView, page: Page) -> list[str]:
    """Return what will be read and why, and which staleness readers accept.

    Nodes that stay as they are are counted, not listed.
    """
    listed = [action for action in view.actions if action.verb != "skip"]
    lines = [f"### lancestat: {prose(view.project)}, target {prose(view.target)}", ""]
    if listed:
        lines += ["| | node | reads | why | readers accept |", "|:-:|---|---|---|---|"]
        lines += [_action(action, page) for action in listed]
        lines.append("")
    lines.append(_totals(view, len(listed)))
    sentences = (*source_lines(view), *closing_words(view))
    lines += (part for text in sentences for part in ("", prose(text)))
    notes = [
        f"- {cell(action.node)}: {prose(page.redacted(note))}"
        for action in listed
        for note in ([action.choice] if action.choice else []) + list(action.notes)
    ]
    return [*lines, "", *notes] if notes else lines


def _action(action: ActionView, page: Page) -> str:
    if action.error is not None:
        why = prose(page.redacted(action.error))
    else:
        why = ", ".join(map(cell, action.reasons))
    cells = (f"{cell(action.symbol)} {action.verb}", cell(action.node), action.reads, why)
    return f"| {' | '.join(cells)} | {prose(action.accepted)} |"


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
    yield f"### lancestat: {prose(view.project)}, target {prose(view.target)}"
    yield ""
    yield f"**{counts}.**" if counts else "No nodes declared."
    if view.gone:
        yield from ("", prose(view.gone))
    well = sum(words["health"] == "ok" for _, words in view.nodes)
    listed = [row for row in view.nodes if row[1]["health"] != "ok" or well <= WELL_LISTED]
    listed.sort(key=lambda row: _HEALTH_ORDER.index(row[1]["health"]))
    problems = [
        f"- {cell(words['name'])}: {prose(text)}"
        for node, words in listed
        for text in node.problems
    ]
    if problems:
        yield from ("", *problems)
    if listed:
        yield from ("", *_STATUS_HEAD, *(_status_row(words) for _, words in listed))
    if well > WELL_LISTED:
        yield ""
        yield f"{count(well, 'node is', 'nodes are')} well and not listed."


def _status_row(words: Mapping[str, str]) -> str:
    names = ("verdict", "behind", "changed", "columns", "age", "rows_age", "last_run")
    sign = f"{cell(HEALTH_SYMBOLS[words['health']])} {words['health']}"
    texts = (prose(words[name]) for name in names)
    return f"| {sign} | {cell(words['name'])} | {' | '.join(texts)} |"


@FORMAT.renders(QueryView)
def _query(view: QueryView, page: Page) -> list[str]:
    """Return a table with every value whole; an empty line where there is no result."""
    rows = list(view.cells)
    if not view.columns:
        return []
    rule = " | ".join("---:" if column.is_number else "---" for column in view.columns)
    head = _query_row(visible(column.name) for column in view.columns)
    return [head, f"| {rule} |", *map(_query_row, rows)]


def _query_row(cells: Iterable[str]) -> str:
    escaped = (text.replace("\\", "\\\\").replace("|", "\\|") for text in cells)
    return f"| {' | '.join(escaped)} |"


@FORMAT.renders(DiffView)
def _diff(view: DiffView, page: Page) -> list[str]:
    """Return at most `MAX_CHARACTERS`: a summary, risks, a table of nodes, then details folded."""
    return [_diff_page(view)]


def _diff_page(view: DiffView) -> str:
    diff = view.diff
    title = f"### lancestat: {prose(diff.project)}, target {prose(diff.target)}"
    base, head = _side(diff.base, view.base), _side(diff.head, view.head)
    if diff.is_empty:
        same = f"Nothing changes between {base} and {head}."
        return "\n".join([title, "", same, "", view.no_changes_mark])
    page = _LimitedText()
    page.lines(title, "", f"**{view.summary}**, {base} → {head}.")
    if view.settings:
        names = ", ".join(span(change.name) for change in view.settings)
        page.lines(f"The project or its target changes: {names}.")
    if view.cost is not None:
        page.lines(view.cost)
    page.some(_risks(view), _RISKS_END, "risk", start="\n**Risks**\n")
    owners = (f"- {span(owner)}: {_listed(names)}" for owner, names in view.owners.items())
    page.some(owners, _OWNERS_END, "owner", start="\n**Owners**\n")
    if view.nodes:
        table_head = "\n| | node | kind | changed | declared in |\n|:-:|---|---|---|---|"
        page.some(map(_row, view.nodes), _TABLE_END, "node", start=table_head)
    page.some(_details(view), MAX_CHARACTERS - _RESERVE, "detail", start="")
    return page.text


class _LimitedText:
    """Lines under a limit, with counts of what was left out."""

    def __init__(self) -> None:
        self.text = ""

    def lines(self, *lines: str) -> None:
        self.text += ("\n" if self.text else "") + "\n".join(lines)

    def some(self, blocks: Iterable[str], end: int, noun: str, *, start: str) -> None:
        """Add the blocks that fit below `end`, after `start`; without blocks add nothing."""
        listed = list(blocks)
        if listed:
            self.lines(start)
        left = 0
        for block in listed:
            if len(self.text) + len(block) + 1 > end:
                left += 1
            else:
                self.lines(block)
        if left:
            self.lines("", f"*{count(left, f'{noun} is', f'{noun}s are')} left out for length.*")


def _side(label: str, name: str) -> str:
    return span(name) if name == label else name


def _row(node: NodeDiffView) -> str:
    changed = [cell(change.name) for change in node.properties] if node.change == "changed" else []
    cells = (
        node.symbol,
        cell(node.name),
        node.kind,
        ", ".join(changed) or node.change,
        _linked(cell(node.location), node.url),
    )
    return f"| {' | '.join(cells)} |"


def _risks(view: DiffView) -> Iterator[str]:
    """Yield each risk once, those that lose the most first, with the nodes that take it."""
    for risk, sentences in view.risks:
        if len(sentences) == 1:
            [(sentence, names)] = sentences
            yield f"- {span(risk)} of {_listed(names)}: {prose(sentence)}"
            continue
        yield f"- {span(risk)}:"
        yield from (f"  - {_listed(names)}: {prose(sentence)}" for sentence, names in sentences)


def _linked(text: str, url: str | None) -> str:
    """Return code as a link; the URL is percent-encoded, and no markup."""
    return text if url is None else f"[{text}]({url})"


def _details(view: DiffView) -> Iterator[str]:
    if view.settings:
        yield _folded("project and target", _properties(view.settings, is_new=False))
    for node in view.nodes:
        name = f"{node.symbol} <code>{_html(node.name)}</code>"
        yield _folded(f"{name}, {node.change}", _node(node), is_html=True)
    if view.diff.notes:
        yield "\n".join(f"- {prose(note)}" for note in view.diff.notes)


def _folded(title: str, lines: Iterable[str], *, is_html: bool = False) -> str:
    summary = title if is_html else _html(title)
    body = "\n".join(lines)
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _node(node: NodeDiffView) -> Iterator[str]:
    yield f"{node.kind}, {_linked(span(node.location), node.url)}"
    yield ""
    yield from _properties(node.properties, is_new=node.change == "added")
    if node.columns is not None:
        yield from _columns(node.columns)
    if node.tables is not None:
        yield from _tables(node.tables)
    if node.cost:
        yield f"- first run reads about {node.cost}"
    yield from (f"- {prose(note)}" for note in node.notes)


def _columns(columns: ColumnsChange) -> Iterator[str]:
    what = "columns" if columns.are_names else "patterns"
    for verb, names in (("gain", columns.gained), ("lose", columns.lost)):
        if names:
            yield f"- {what} that {verb} statistics: {_listed(names)}"


def _tables(tables: TablesChange) -> Iterator[str]:
    for words, names in (("come", tables.gained), ("are lost", tables.lost)):
        if names:
            yield f"- tables that {words}: {_listed(names)}"


def _properties(changes: Sequence[PropertyView], *, is_new: bool) -> Iterator[str]:
    for change in changes:
        texts = [side for side in (change.old, change.new) if side is not None]
        if any("\n" in text or len(text) > _CELL for text in texts):
            yield f"- {span(change.name)}:"
            yield from (f"  {line}" for line in _block(change))
        elif is_new:
            yield f"- {span(change.name)}: {span(change.new or '')}"
        else:
            yield f"- {span(change.name)}: {_value(change.old)} → {_value(change.new)}"


def _value(text: str | None) -> str:
    return f"*{NOTHING}*" if text is None else span(text)


def _block(change: PropertyView) -> list[str]:
    text = "\n".join(change.lines())
    if len(text) > _VALUE:
        text = f"{text[:_VALUE]}\n... {count(len(text) - _VALUE, 'more character')}"
    fence = "`" * max(3, _longest_run(text) + 1)
    return ["", f"{fence}diff", *text.split("\n"), fence]


def _listed(names: Sequence[str]) -> str:
    spans = [span(name) for name in names[:30]]
    more = [f"{count(len(names) - 30)} more"] if len(names) > 30 else []
    return ", ".join([*spans, *more])


def span(text: str) -> str:
    """Text as inline code, cut where it is very long: nothing in it is markup or a mention."""
    line = " ".join(text.split())
    line = line if len(line) <= _CELL else f"{line[: _CELL - 3]}..."
    ticks = "`" * (_longest_run(line) + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{padding}{line}{padding}{ticks}" if line else "``` ```"


def cell(text: str) -> str:
    """Text as inline code in a cell of a table."""
    return span(text).replace("|", "\\|")


def prose(text: str) -> str:
    """Text that turns into no markup, link, mention or reference."""
    escaped = _MARKUP.sub(r"\\\1", " ".join(text.split()))
    for start, end in (("@", ""), ("\\#", ""), (":", "//"), ("www", ".")):
        escaped = escaped.replace(start + end, start + ZERO_WIDTH_SPACE + end)
    return escaped


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _html(text: str) -> str:
    return html.escape(" ".join(text.split())[:_CELL])
