"""A diff as Markdown, for the comment on a pull request.

All that comes from specifications is shown as code or escaped: no pipe, tag, link or `@name` of
theirs does anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from lancestat.formats import count, size
from lancestat.review.comment import NO_CHANGES
from lancestat.review.values import Change, ColumnsChange, Diff, NodeDiff, PropertyChange
from lancestat.review.wording import (
    KINDS,
    NOTHING,
    SYMBOLS,
    by_risk,
    cost,
    counts,
    line_diff,
    risk_words,
    side_name,
    sides,
    what_changed,
)

MAX_CHARACTERS = 65_000
"""Below what GitHub takes in one comment, so that a marker fits too."""

# Shares of the page: risks, owners, the table, then details.
_RISKS_END, _OWNERS_END, _TABLE_END = 16_000, 20_000, 40_000
_RESERVE = 200
_VALUE = 4_000
_CELL = 300
_UNSEEN = "\u200b"
_MARKUP = re.compile(r"([\\`*_\[\]<|~$&#])")


def render_markdown(diff: Diff) -> str:
    """At most `MAX_CHARACTERS` characters: a summary, risks, a table of nodes, details folded."""
    title = f"### lancestat: {prose(diff.project)}, target {prose(diff.target)}"
    if diff.is_empty:
        told = f"Nothing changes between {_side(diff.base)} and {_side(diff.head)}."
        return "\n".join([title, "", told, "", NO_CHANGES])
    page = _Page()
    page.lines(title, "", f"**{counts(diff)}**, {_side(diff.base)} → {_side(diff.head)}.")
    if diff.settings:
        names = ", ".join(span(change.name) for change in diff.settings)
        page.lines(f"The project or its target changes: {names}.")
    told_cost = cost(diff)
    if told_cost is not None:
        page.lines(told_cost)
    page.some(_risks(diff), _RISKS_END, "risk", start="\n**Risks**\n")
    page.some(_owners(diff), _OWNERS_END, "owner", start="\n**Owners**\n")
    if diff.nodes:
        head = "\n| | node | kind | changed | risks |\n|:-:|---|---|---|---|"
        page.some(map(_row, diff.nodes), _TABLE_END, "node", start=head)
    page.some(_details(diff), MAX_CHARACTERS - _RESERVE, "detail", start="")
    return page.text


class _Page:
    """Lines under a limit, with counts of what was left out."""

    def __init__(self) -> None:
        self.text = ""

    def lines(self, *lines: str) -> None:
        self.text += ("\n" if self.text else "") + "\n".join(lines)

    def some(self, blocks: Iterable[str], end: int, noun: str, *, start: str) -> None:
        """As many blocks as fit below `end`; none of them, and no start, where there are none."""
        found = list(blocks)
        if found:
            self.lines(start)
        left = 0
        for block in found:
            if len(self.text) + len(block) + 1 > end:
                left += 1
            else:
                self.lines(block)
        if left:
            self.lines("", f"*{count(left, f'{noun} is', f'{noun}s are')} left out for length.*")


def _side(label: str) -> str:
    called = side_name(label)
    return span(called) if called == label else called


def _risks(diff: Diff) -> Iterator[str]:
    for risk, sentence, names in by_risk(diff):
        yield f"- {span(risk.value)} of {_listed(names)}: {prose(sentence)}"


def _owners(diff: Diff) -> Iterator[str]:
    owned: dict[str, list[str]] = {}
    for node in diff.nodes:
        for owner in node.owners:
            owned.setdefault(owner, []).append(node.name)
    for owner, names in owned.items():
        yield f"- {span(owner)}: {_listed(names)}"


def _row(node: NodeDiff) -> str:
    cells = (
        SYMBOLS[node.change],
        cell(node.name),
        KINDS[node.kind.value],
        ", ".join(map(cell, what_changed(node))) or node.change.value,
        ", ".join(map(cell, risk_words(node))),
    )
    return f"| {' | '.join(cells)} |"


def _details(diff: Diff) -> Iterator[str]:
    if diff.settings:
        yield _folded("project and target", _properties(diff.settings, is_new=False))
    for node in diff.nodes:
        name = f"{SYMBOLS[node.change]} <code>{_html(node.name)}</code>"
        yield _folded(f"{name}, {node.change.value}", _node(node), is_html=True)
    if diff.notes:
        yield "\n".join(f"- {prose(note)}" for note in diff.notes)


def _folded(title: str, lines: Iterable[str], *, is_html: bool = False) -> str:
    summary = title if is_html else _html(title)
    body = "\n".join(lines)
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _node(node: NodeDiff) -> Iterator[str]:
    place = f"{node.location.file}:{node.location.line}"
    yield f"{KINDS[node.kind.value]}, {span(place)}"
    yield ""
    if node.change is not Change.REMOVED:
        yield from _properties(node.properties, is_new=node.change is Change.ADDED)
    if node.columns is not None:
        yield from _columns(node.columns)
    if node.cost_bytes:
        yield f"- first run reads about {size(node.cost_bytes)}"
    yield from (f"- {prose(note)}" for note in node.notes)


def _columns(columns: ColumnsChange) -> Iterator[str]:
    what = "columns" if columns.are_names else "patterns"
    for verb, names in (("gain", columns.gained), ("lose", columns.lost)):
        if names:
            yield f"- {what} that {verb} statistics: {_listed(names)}"


def _properties(changes: Sequence[PropertyChange], *, is_new: bool) -> Iterator[str]:
    for change in changes:
        old, new = sides(change)
        long = any(side is not None and ("\n" in side or len(side) > _CELL) for side in (old, new))
        if long:
            yield f"- {span(change.name)}:"
            yield from (f"  {line}" for line in _block(old, new))
        elif is_new:
            yield f"- {span(change.name)}: {span(new or '')}"
        else:
            yield f"- {span(change.name)}: {_value(old)} → {_value(new)}"


def _value(text: str | None) -> str:
    return f"*{NOTHING}*" if text is None else span(text)


def _block(old: str | None, new: str | None) -> list[str]:
    text = "\n".join(line_diff(old, new))
    if len(text) > _VALUE:
        text = f"{text[:_VALUE]}\n... {count(len(text) - _VALUE, 'more character')}"
    fence = "`" * max(3, _longest_run(text) + 1)
    return ["", f"{fence}diff", *text.split("\n"), fence]


def _listed(names: Sequence[str]) -> str:
    shown = [span(name) for name in names[:30]]
    more = [f"{count(len(names) - 30)} more"] if len(names) > 30 else []
    return ", ".join([*shown, *more])


def span(text: str) -> str:
    """Text as inline code, cut where it is very long: nothing in it is markup, nobody is called."""
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
    escaped = escaped.replace("@", f"@{_UNSEEN}").replace("\\#", f"\\#{_UNSEEN}")
    return escaped.replace("://", f":{_UNSEEN}//").replace("www.", f"www{_UNSEEN}.")


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _html(text: str) -> str:
    return html.escape(" ".join(text.split())[:_CELL])
