"""The view of what a change of the project means."""

from __future__ import annotations

from collections.abc import Iterator

from lancestat.formats import count, size
from lancestat.presentation.views import DiffView, NodeDiffView, PropertyView
from lancestat.review.sides import WORK_TREE, FileLinks, line_url
from lancestat.review.values import NO_CHANGES, SEVERITY, Change, Diff, NodeDiff, PropertyChange

_SYMBOLS = {Change.ADDED: "+", Change.REMOVED: "-", Change.CHANGED: "~"}
_KINDS = {"knn_join": "KNN join"}


def diff_view(diff: Diff) -> DiffView:
    owners: dict[str, tuple[str, ...]] = {}
    for node in diff.nodes:
        for owner in node.owners:
            owners[owner] = (*owners.get(owner, ()), node.name)
    counts = {change.value: len(list(diff.of(change))) for change in Change}
    return DiffView(
        diff,
        _side_name(diff.base),
        _side_name(diff.head),
        counts,
        ", ".join(_totals(counts, diff.unchanged)),
        _cost(diff),
        tuple(map(_property, diff.settings)),
        tuple(_node(node, diff.links) for node in diff.nodes),
        tuple(_by_risk(diff)),
        owners,
        NO_CHANGES,
    )


def _node(node: NodeDiff, links: FileLinks) -> NodeDiffView:
    root = links[0] if node.change is Change.REMOVED else links[1]
    file, line = node.location.file, node.location.line
    return NodeDiffView(
        node.name,
        _SYMBOLS[node.change],
        node.change.value,
        _KINDS.get(node.kind_word, node.kind_word),
        f"{file}:{line}",
        node.owners,
        () if node.change is Change.REMOVED else tuple(map(_property, node.properties)),
        node.columns,
        tuple((note.risk.value, note.sentence) for note in node.risks),
        node.notes,
        size(node.cost_bytes) if node.cost_bytes else None,
        node.tables,
        None if root is None else line_url(root, file, line),
    )


def _property(change: PropertyChange) -> PropertyView:
    old = None if change.old is None else change.old.text
    new = None if change.new is None else change.new.text
    if change.looks_alike and new is not None:
        is_hidden = change.new is not None and change.new.is_hidden
        new = f"{new} with {'another value' if is_hidden else 'other spaces'}"
    return PropertyView(change, old, new)


def _side_name(label: str) -> str:
    return "the work tree" if label == WORK_TREE else label


def _totals(counts: dict[str, int], unchanged: int) -> Iterator[str]:
    if not any(counts.values()):
        yield "no node changes"
    yield from (f"{count(number)} {word}" for word, number in counts.items() if number)
    if unchanged:
        yield f"{count(unchanged)} unchanged"


def _cost(diff: Diff) -> str | None:
    """Return what the first run reads for the changes, None where that is nothing."""
    known = sum(node.cost_bytes or 0 for node in diff.nodes)
    if diff.cost_bytes is None:
        more = f"about {size(known)} and an unknown amount" if known else "an unknown amount"
        return f"For these changes the first run reads {more} more."
    return f"For these changes the first run reads about {size(known)}." if known else None


def _by_risk(diff: Diff) -> Iterator[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]]:
    for risk in SEVERITY:
        names: dict[str, list[str]] = {}
        for node in diff.nodes:
            for note in node.risks:
                if note.risk is risk:
                    names.setdefault(note.sentence, []).append(node.name)
        if names:
            yield risk.value, tuple((sentence, tuple(nodes)) for sentence, nodes in names.items())
