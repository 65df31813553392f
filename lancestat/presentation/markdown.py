"""The format `markdown`, for pull requests, chats and tickets.

Nothing that comes from a project is markup: it is shown as code or escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count, cut, size, visible
from lancestat.presentation import views, words
from lancestat.presentation.advice import HEAD, advice_notes, advice_title, proposal_cells
from lancestat.presentation.terminal import CONSOLE, ZERO_WIDTH_SPACE

if TYPE_CHECKING:
    from lancestat.review.values import Diff, NodeDiff, PropertyChange
    from lancestat.runs.actions import Action, Plan
    from lancestat.spec.model import Policy

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


FORMAT: views.Format[Iterable[str]] = views.Format(_write, is_for_people=True, is_published=True)


@FORMAT.renders(views.PlanView)
def _plan(view: views.PlanView, page: views.Page) -> list[str]:
    """Return what will be read and why; nodes that stay as they are are counted, not listed."""
    from lancestat.runs.actions import is_idle

    plan = view.plan
    listed = [action for action in plan.actions if not is_idle(action)]
    lines = [f"### lancestat: {prose(plan.project)}, target {prose(plan.target)}", ""]
    if listed:
        lines += ["| | node | reads | why | readers accept |", "|:-:|---|---|---|---|"]
        lines += [_action(action, view.policies.get(action.node), page) for action in listed]
        lines.append("")
    lines.append(_totals(plan, len(listed)))
    closing = words.closing_words(words.planned_results(plan))
    lines += (
        part for text in (*words.source_lines(plan.sources), *closing) for part in ("", prose(text))
    )
    notes = [
        f"- {cell(action.node)}: {prose(page.redacted(note))}"
        for action in listed
        for note in ([action.choice] if action.choice else []) + list(action.notes)
    ]
    return [*lines, "", *notes] if notes else lines


def _action(action: Action, policy: Policy | None, page: views.Page) -> str:
    if action.error is not None:
        why = prose(page.redacted(action.error.text()))
    else:
        why = ", ".join(cell(reason.value) for reason in action.reasons)
    accepted = (policy.template or policy.accepted_staleness) if policy else ""
    sign = f"{cell(words.SYMBOLS[action.verb])} {action.verb}"
    return f"| {' | '.join((sign, cell(action.node), action.reads, why, prose(accepted)))} |"


def _totals(plan: Plan, listed: int) -> str:
    idle = len(plan.actions) - listed
    if changes := words.pending(plan):
        text = f"**{count(changes, 'change')}.** {words.plan_total(plan)}"
    elif not (text := words.tidied_words(plan)):
        text = "Nothing else to do." if listed else "Nothing to do."
    return f"{text} {count(idle, 'node')} unchanged." if idle else text


_STATUS_HEAD = (
    "| | node | statistics | behind | changed | columns | age | data age | last run |",
    "|:-:|---|---|--:|--:|--:|---|---|---|",
)
_HEALTH_ORDER = ("error", "warn", "ok")


@FORMAT.renders(views.StatusView)
def _status(view: views.StatusView, page: views.Page) -> Iterator[str]:
    """Yield a summary, what is wrong, and a table of nodes; many that are well are counted."""
    counts = ", ".join(text for text, _ in view.counts)
    yield f"### lancestat: {prose(view.project)}, target {prose(view.target)}"
    yield ""
    yield f"**{counts}.**" if counts else "No nodes declared."
    if view.gone:
        yield from ("", prose(view.gone))
    well = sum(texts["health"] == "ok" for _, texts in view.nodes)
    listed = [row for row in view.nodes if row[1]["health"] != "ok" or well <= words.WELL_LISTED]
    listed.sort(key=lambda row: _HEALTH_ORDER.index(row[1]["health"]))
    problems = [
        f"- {cell(texts['name'])}: {prose(text)}"
        for node, texts in listed
        for text in node.problems
    ]
    if problems:
        yield from ("", *problems)
    if listed:
        yield from ("", *_STATUS_HEAD, *(_status_row(texts) for _, texts in listed))
    if well > words.WELL_LISTED:
        yield ""
        yield f"{count(well, 'node is', 'nodes are')} well and not listed."


def _status_row(texts: Mapping[str, str]) -> str:
    names = ("verdict", "behind", "changed", "columns", "age", "rows_age", "last_run")
    sign = f"{cell(words.HEALTH_SYMBOLS[texts['health']])} {texts['health']}"
    cells = " | ".join(prose(texts[name]) for name in names)
    return f"| {sign} | {cell(texts['name'])} | {cells} |"


@FORMAT.renders(views.QueryView)
def _query(view: views.QueryView, page: views.Page) -> list[str]:
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


@FORMAT.renders(views.DiffView)
def _diff(view: views.DiffView, page: views.Page) -> list[str]:
    """Return at most `MAX_CHARACTERS`: a summary, risks, a table of nodes, then details folded."""
    from lancestat.review.values import NO_CHANGES

    diff = view.diff
    title = f"### lancestat: {prose(diff.project)}, target {prose(diff.target)}"
    base, head = _side(diff.base), _side(diff.head)
    if diff.is_empty:
        return [title, "", f"Nothing changes between {base} and {head}.", "", NO_CHANGES]
    text = _LimitedText()
    text.lines(title, "", f"**{words.diff_summary(diff)}**, {base} → {head}.")
    if diff.settings:
        names = ", ".join(span(change.name) for change in diff.settings)
        text.lines(f"The project or its target changes: {names}.")
    if (cost := words.diff_cost(diff)) is not None:
        text.lines(cost)
    text.some(_risks(diff), _RISKS_END, "risk", start="\n**Risks**\n")
    owned: dict[str, list[str]] = {}
    for node in diff.nodes:
        for owner in node.owners:
            owned.setdefault(owner, []).append(node.name)
    owners = (f"- {span(owner)}: {_listed(names)}" for owner, names in owned.items())
    text.some(owners, _OWNERS_END, "owner", start="\n**Owners**\n")
    if diff.nodes:
        table_head = "\n| | node | kind | changed | declared in |\n|:-:|---|---|---|---|"
        rows = (_row(node, diff) for node in diff.nodes)
        text.some(rows, _TABLE_END, "node", start=table_head)
    text.some(_details(diff), MAX_CHARACTERS - _RESERVE, "detail", start="")
    return [text.text]


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


@FORMAT.renders(views.AdviceView)
def _advice(view: views.AdviceView, page: views.Page) -> list[str]:
    """Return the proposals with their evidence, what is not in the diff, and the diff, folded."""
    advice = view.advice
    lines = [f"### lancestat: advice for {prose(advice.project)}", "", advice_title(advice), ""]
    if advice.proposals:
        lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * (len(HEAD) - 1)}--:|"]
        for proposal in advice.proposals:
            table, change, columns, evidence, read = proposal_cells(proposal)
            lines.append(f"| {cell(table)} | {change} | {cell(columns)} | {evidence} | {read} |")
    else:
        lines.append("Nothing to change.")
    for note in advice_notes(view):
        lines += ["", prose(page.redacted(note))]
    if advice.diff:
        diff = visible(page.redacted(advice.diff), keep="\n").split("\n")
        fence = "`" * max(3, _longest_run(advice.diff) + 1)
        lines += ["", _folded("the change", [f"{fence}diff", *diff, fence])]
    return lines


def _side(label: str) -> str:
    name = words.side_name(label)
    return span(name) if name == label else name


def _row(node: NodeDiff, diff: Diff) -> str:
    change = node.change.value
    changed = [cell(part.name) for part in node.properties] if change == "changed" else []
    cells = (
        words.CHANGE_SYMBOLS[change],
        cell(node.name),
        words.kind_name(node.kind_word),
        ", ".join(changed) or change,
        _linked(cell(words.declared_in(node)), node, diff),
    )
    return f"| {' | '.join(cells)} |"


def _risks(diff: Diff) -> Iterator[str]:
    """Yield each risk once, those that lose the most first, with the nodes that take it."""
    from lancestat.review.values import SEVERITY

    for risk in SEVERITY:
        sentences: dict[str, list[str]] = {}
        for node in diff.nodes:
            for note in node.risks:
                if note.risk is risk:
                    sentences.setdefault(note.sentence, []).append(node.name)
        if len(sentences) == 1:
            [(sentence, names)] = sentences.items()
            yield f"- {span(risk.value)} of {_listed(names)}: {prose(sentence)}"
        elif sentences:
            yield f"- {span(risk.value)}:"
            for sentence, names in sentences.items():
                yield f"  - {_listed(names)}: {prose(sentence)}"


def _linked(text: str, node: NodeDiff, diff: Diff) -> str:
    """Return code as a link to where a node is declared; the URL is percent-encoded, no markup."""
    from lancestat.review.sides import line_url

    root = diff.links[0] if node.change.value == "removed" else diff.links[1]
    if root is None:
        return text
    return f"[{text}]({line_url(root, node.location.file, node.location.line)})"


def _details(diff: Diff) -> Iterator[str]:
    if diff.settings:
        yield _folded("project and target", _properties(diff.settings, is_new=False))
    for node in diff.nodes:
        change = node.change.value
        name = f"{words.CHANGE_SYMBOLS[change]} <code>{_html(node.name)}</code>"
        yield _folded(f"{name}, {change}", _node(node, diff))
    if diff.notes:
        yield "\n".join(f"- {prose(note)}" for note in diff.notes)


def _folded(summary: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _node(node: NodeDiff, diff: Diff) -> Iterator[str]:
    yield f"{words.kind_name(node.kind_word)}, {_linked(span(words.declared_in(node)), node, diff)}"
    yield ""
    yield from _properties(words.shown_properties(node), is_new=node.change.value == "added")
    listed: list[tuple[str, Sequence[str]]] = []
    if columns := node.columns:
        what = "columns" if columns.are_names else "patterns"
        listed += [(f"{what} that gain statistics", columns.gained)]
        listed += [(f"{what} that lose statistics", columns.lost)]
    if tables := node.tables:
        listed += [("tables that come", tables.gained), ("tables that are lost", tables.lost)]
    yield from (f"- {what}: {_listed(names)}" for what, names in listed if names)
    if node.cost_bytes:
        yield f"- first run reads about {size(node.cost_bytes)}"
    yield from (f"- {prose(note)}" for note in node.notes)


def _properties(changes: Sequence[PropertyChange], *, is_new: bool) -> Iterator[str]:
    for change in changes:
        old, new = words.property_texts(change)
        if any("\n" in text or len(text) > _CELL for text in (old or "", new or "")):
            yield f"- {span(change.name)}:"
            yield from (f"  {line}" for line in _block(change))
        elif is_new:
            yield f"- {span(change.name)}: {span(new or '')}"
        else:
            yield f"- {span(change.name)}: {_value(old)} → {_value(new)}"


def _value(text: str | None) -> str:
    return f"*{words.NOTHING}*" if text is None else span(text)


def _block(change: PropertyChange) -> list[str]:
    text = "\n".join(words.property_lines(change))
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
    line = cut(" ".join(text.split()), _CELL)
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
