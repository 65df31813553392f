"""Diffs as text: a block per changed node, then the sum of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lancestat.formats import count
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import paint, wrapped
from lancestat.presentation.views import DiffView, NodeDiffView, PropertyView

NOTHING = "nothing"
_TONES = {"added": "analyze", "changed": "refresh", "removed": "error"}
_INDENT = " " * 13
_NAMED = 30


def diff_lines(view: DiffView, page: Page) -> list[str]:
    diff, width = view.diff, max(page.width, 60)
    title = f"Diff of {diff.project}, target {diff.target}: {view.base} -> {view.head}"
    lines = [paint(title, "title"), ""]
    if view.settings:
        lines += [f"  {paint('~ project and target', 'refresh')}"]
        lines += [*_properties(view.settings, width), ""]
    for node in view.nodes:
        lines += [*_node(node, width), ""]
    lines += [
        paint(line, "note")
        for note in diff.notes
        for line in wrapped(f"note: {note}", width, indent=_INDENT)
    ]
    return [*lines, *_totals(view)]


def _totals(view: DiffView) -> Iterator[str]:
    if view.diff.is_empty:
        unchanged = count(view.diff.unchanged, "node")
        yield paint(f"No changes: both sides mean the same, {unchanged}.", "title")
        return
    yield view.summary
    if view.diff.risks:
        words = ", ".join(sorted(risk.value for risk in view.diff.risks))
        yield paint(f"Risks: {words}", "refresh")
    if view.cost is not None:
        yield paint(view.cost, "title")


def _node(node: NodeDiffView, width: int) -> Iterator[str]:
    word = paint(f"{node.symbol} {node.change:<8}", _TONES[node.change])
    about = ", ".join([node.kind, node.location, *node.owners])
    yield f"  {word} {node.name}  {paint(about, 'note')}"
    yield from _properties(node.properties, width, is_new=node.change == "added")
    if node.columns is not None:
        how = "" if node.columns.are_names else " by pattern"
        yield from _columns(f"gains{how}", node.columns.gained, "analyze", width)
        yield from _columns(f"loses{how}", node.columns.lost, "error", width)
    if node.tables is not None:
        yield from _columns("gains", _cut(node.tables.gained), "analyze", width)
        yield from _columns("loses", _cut(node.tables.lost), "error", width)
    for risk, sentence in node.risks:
        yield from _begun(f"! {risk}", f": {sentence}", "refresh", width)
    for note in node.notes:
        for line in wrapped(f"note: {note}", width, indent=_INDENT, hanging="  "):
            yield paint(line, "note")


def _properties(
    properties: Sequence[PropertyView], width: int, *, is_new: bool = False
) -> Iterator[str]:
    margin = max((len(change.name) for change in properties), default=0)
    for change in properties:
        head = f"{_INDENT}{change.name:<{margin}}  "
        old, new = (NOTHING if side is None else side for side in (change.old, change.new))
        short = change.new or "" if is_new else f"{old} -> {new}"
        if "\n" not in short and len(head) + len(short) <= width:
            yield head + short
        else:
            yield head.rstrip()
            yield from _lines(change, width)


def _lines(change: PropertyView, width: int) -> Iterator[str]:
    tones = {"-": "error", "+": "analyze"}
    for line in change.lines():
        tone = tones.get(line[:1])
        for part in wrapped(line, width, indent=_INDENT, hanging="  "):
            yield paint(part, tone) if tone else part


def _columns(word: str, names: Sequence[str], tone: str, width: int) -> Iterator[str]:
    if names:
        yield from _begun(word, f" {', '.join(names)}", tone, width)


def _cut(names: Sequence[str]) -> Sequence[str]:
    """Return names, of many only the first."""
    if len(names) <= _NAMED:
        return names
    return (*names[:_NAMED], f"and {count(len(names) - _NAMED)} more")


def _begun(word: str, rest: str, tone: str, width: int) -> Iterator[str]:
    """Yield wrapped lines, the first of which begins with a word in colour."""
    first, *others = wrapped(f"{word}{rest}", width, indent=_INDENT, hanging="  ")
    yield first.replace(word, paint(word, tone), 1)
    yield from others
