"""What `unpublish` removes, as text: a line per node, then the sum and what the next run does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count, named, visible
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import paint, table, wrapped
from lancestat.presentation.text_plan import SKIPS_LISTED, folded, indented
from lancestat.presentation.views import UnpublishView

if TYPE_CHECKING:
    from lancestat.tables.unpublish_plan import UnpublishedNode

_SYMBOLS = {"unpublish": "-", "skip": ".", "blocked": "!"}
_TONES = {"unpublish": "refresh", "skip": "skip", "blocked": "blocked"}
_KEPT = {
    "absent": "nothing is published",
    "other_writer": "the statistics of another writer stay",
    "newer_release": "what a newer release of lancestat wrote stays",
    "not_a_table": "the result of a join stays as it is",
}


def unpublish_lines(view: UnpublishView, page: Page) -> list[str]:
    """Return the page that `lancestat unpublish` prints."""
    result = view.result
    idle = sum(node.action == "skip" for node in result.nodes)
    is_folded = idle > SKIPS_LISTED and not page.verbose
    nodes = [node for node in result.nodes if not (is_folded and node.action == "skip")]
    what = "Dry run of unpublish" if result.is_dry_run else "Unpublish"
    lines = [paint(f"{what} for {result.project}, target {result.target}", "title"), ""]
    for line, node in zip(table(map(_cells, nodes), indent="  "), nodes, strict=True):
        lines += [line, *indented(node.error.text() if node.error else "", page.width)]
        lines += [paint(text, "note") for text in indented(_unknown(node), page.width)]
    if is_folded:
        lines.append(folded(f"{count(idle)} left as they are", 9))
    return [*lines, "", *_totals(view, idle), *_next_run(view, page)]


def _cells(node: UnpublishedNode) -> tuple[str, ...]:
    """Return symbol, action and name; what goes, and the versions before and after."""
    action = "failed" if node.error else node.action
    head = paint(f"{_SYMBOLS[node.action]} {action:<9}", _TONES[node.action])
    if node.reason is None:
        return f"{head} {node.name}", ""
    reason = _KEPT.get(node.reason.value, "")
    if node.action != "unpublish":
        return f"{head} {node.name}", paint(reason, "note")
    what = count(node.entries or 0, "entry", "entries")
    what += f" of {count(node.columns, 'column')}" if node.columns else f"; {reason}"
    landed = node.version_committed
    version = f"version {node.version_read}" + ("" if landed is None else f" -> {landed}")
    return f"{head} {node.name}", what, version


def _unknown(node: UnpublishedNode) -> str:
    """Return which of the entries that go lancestat did not write; empty where it wrote all."""
    return (
        f"among them not lancestat's: {named([*map(visible, node.unknown)])}"
        if node.unknown
        else ""
    )


def _totals(view: UnpublishView, idle: int) -> Iterator[str]:
    result = view.result
    removed = [node for node in result.nodes if node.action == "unpublish"]
    failed = sum(node.error is not None for node in result.nodes)
    entries = count(sum(node.entries or 0 for node in removed), "entry", "entries")
    where = f"from {count(len(removed), 'table')}"
    removal = "Would remove" if result.is_dry_run else "Removed"
    text = f"{removal} {entries} {where}" if removed else "Nothing to remove"
    parts = [f"{count(idle)} left as they are"] if idle else []
    parts += [paint(f"{count(failed)} failed", "error")] if failed else []
    yield "".join(f", {part}" if index else part for index, part in enumerate([text, *parts])) + "."


def _next_run(view: UnpublishView, page: Page) -> Iterator[str]:
    """Yield the lines on tables whose statistics the next run publishes, or confirms."""
    for text in _next_run_words(view):
        yield from (paint(line, "note") for line in wrapped(text, max(page.width, 40), indent=""))


def _next_run_words(view: UnpublishView) -> Iterator[str]:
    again: Sequence[str] = [node.name for node in view.result.nodes if node.is_published_again]
    if again:
        yield (
            f"The next run publishes the statistics of {named(again)} again, without reading what "
            "the state has stored; 'publish: none' keeps them out."
        )
    kept: Sequence[str] = [node.name for node in view.result.nodes if node.is_behind]
    if kept:
        yield (
            f"What the state keeps of {named(kept)} describes an earlier version until the next "
            "run, which confirms it without reading."
        )
