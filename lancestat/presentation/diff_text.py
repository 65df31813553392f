"""A diff for people at a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from lancestat.formats import count
from lancestat.review.values import Change, Diff, NodeDiff, PropertyChange
from lancestat.review.wording import (
    KINDS,
    NOTHING,
    SYMBOLS,
    cost,
    counts,
    line_diff,
    side_name,
    sides,
)

# Paints a text in the tone of an action's word, or of `note`, `title`.
Paint = Callable[[str, str], str]

_TONES = {Change.ADDED: "analyze", Change.CHANGED: "refresh", Change.REMOVED: "error"}
_INDENT = " " * 13


def plain(text: str, tone: str) -> str:
    """Paint nothing."""
    return text


def render_text(diff: Diff, *, paint: Paint = plain, width: int = 100) -> str:
    """The page that `lancestat diff` prints: a block per changed node, then the sum of all."""
    between = f"{side_name(diff.base)} -> {side_name(diff.head)}"
    title = f"Diff of {diff.project}, target {diff.target}: {between}"
    page = _Page(paint, width)
    lines = [paint(title, "title"), ""]
    if diff.settings:
        lines += [f"  {paint('~ project and target', 'refresh')}"]
        lines += [*page.properties(diff.settings), ""]
    for node in diff.nodes:
        lines += [*page.node(node), ""]
    lines += [
        paint(line, "note") for note in diff.notes for line in page.wrapped("note: " + note, "")
    ]
    return "\n".join([*lines, *_summary(diff, paint)])


def _summary(diff: Diff, paint: Paint) -> Iterator[str]:
    if diff.is_empty:
        unchanged = count(diff.unchanged, "node")
        yield paint(f"No changes: both sides mean the same, {unchanged}.", "title")
        return
    yield counts(diff)
    if diff.risks:
        words = ", ".join(sorted(risk.value for risk in diff.risks))
        yield paint(f"Risks: {words}", "refresh")
    told = cost(diff)
    if told is not None:
        yield paint(told, "title")


class _Page:
    def __init__(self, paint: Paint, width: int) -> None:
        self.paint = paint
        self.width = max(width, 60)

    def node(self, node: NodeDiff) -> Iterator[str]:
        tone = _TONES[node.change]
        word = f"{SYMBOLS[node.change]} {node.change.value:<8}"
        about = [KINDS[node.kind.value], f"{node.location.file}:{node.location.line}", *node.owners]
        yield f"  {self.paint(word, tone)} {node.name}  {self.paint(', '.join(about), 'note')}"
        if node.change is not Change.REMOVED:
            yield from self.properties(node.properties, is_new=node.change is Change.ADDED)
        if node.columns is not None:
            what = "" if node.columns.are_names else " by pattern"
            yield from self._columns(f"gains{what}", node.columns.gained, "analyze")
            yield from self._columns(f"loses{what}", node.columns.lost, "error")
        for note in node.risks:
            word = self.paint(f"! {note.risk.value}", "refresh")
            first, *rest = self.wrapped(f"! {note.risk.value}: {note.sentence}", "  ")
            yield first.replace(f"! {note.risk.value}", word, 1)
            yield from rest
        for line in (each for note in node.notes for each in self.wrapped(f"note: {note}", "  ")):
            yield self.paint(line, "note")

    def properties(
        self, changes: Sequence[PropertyChange], *, is_new: bool = False
    ) -> Iterator[str]:
        margin = max((len(change.name) for change in changes), default=0)
        for change in changes:
            old, new = sides(change)
            head = f"{_INDENT}{change.name:<{margin}}  "
            if is_new:
                short = new or ""
            else:
                short = f"{NOTHING if old is None else old} -> {NOTHING if new is None else new}"
            if "\n" not in short and len(head) + len(short) <= self.width:
                yield head + short
            else:
                yield head.rstrip()
                yield from self._lines(old, new)

    def _lines(self, old: str | None, new: str | None) -> Iterator[str]:
        tones = {"-": "error", "+": "analyze"}
        for line in line_diff(old, new):
            tone = tones.get(line[:1])
            for part in self.wrapped(line, "  "):
                yield self.paint(part, tone) if tone else part

    def _columns(self, word: str, names: Sequence[str], tone: str) -> Iterator[str]:
        if names:
            first, *rest = self.wrapped(f"{word} {', '.join(names)}", "  ")
            yield first.replace(word, self.paint(word, tone), 1)
            yield from rest

    def wrapped(self, text: str, hanging: str) -> list[str]:
        """Lines below a node's name, where those after the first hang."""
        return textwrap.wrap(
            text,
            self.width,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT + hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )
