"""The state of nodes as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lancestat.formats import count
from lancestat.presentation.registry import Page
from lancestat.presentation.terminal import cell_width, paint, table, wrapped
from lancestat.presentation.text_plan import gone_lines
from lancestat.presentation.views import StatusView

if TYPE_CHECKING:
    from lancestat.report.node_facts import NodeStatus

SYMBOLS = {"ok": ".", "warn": "?", "error": "!"}
# The most healthy nodes that are listed one by one.
WELL_LISTED = 30
_TONES = {"ok": "success", "warn": "refresh", "error": "error"}
_MARGIN = "  "
_INDENT = " " * 11

# Columns by what their cells are, with what they are called above them and in a sentence. Those at
# the end are the first to go below the line where the page is narrow.
COLUMNS = (
    ("name", "node", ""),
    ("verdict", "statistics", ""),
    ("behind", "behind", ""),
    ("changed", "changed", ""),
    ("columns", "columns", ""),
    ("age", "age", "statistics of {} ago"),
    ("rows_age", "data age", "rows of {} ago"),
)
_LAST_RUN = "last run"
RIGHT = frozenset({"behind", "changed", "columns"})
_KEPT = 5


def status_lines(view: StatusView, page: Page) -> list[str]:
    """Return a line per node, below it in sentences what is wrong, and a summary."""
    if not view.nodes:
        return ["No nodes declared.", *gone_lines(view, page)]
    well = sum(node.health == "ok" for node in view.nodes)
    is_folded = well > WELL_LISTED and not page.verbose
    nodes = [node for node in view.nodes if not (is_folded and node.health == "ok")]
    lines = [paint(f"Status of {view.project}, target {view.target}", "title"), ""]
    if nodes:
        lines += _listed(nodes, page.width)
    if is_folded:
        more = "more are well" if nodes else "are well"
        text = f"{SYMBOLS['ok']} ok     {count(well)} {more} (--verbose lists them)"
        lines.append(paint(f"{_MARGIN}{text}", "skip"))
    counts = ", ".join(paint(text, _TONES[health]) for text, health in view.counts)
    return [*lines, "", f"{counts}.", *gone_lines(view, page)]


def _listed(nodes: Sequence[NodeStatus], width: int) -> list[str]:
    """Return all about a node on its line as far as that has room, the rest below it."""
    columns = [column for column in COLUMNS if any(getattr(node, column[0]) for node in nodes)]
    beside = len(columns)
    least = sum(column in COLUMNS[:_KEPT] for column in columns)
    while beside > least and _breadth(_table(columns[:beside], nodes)) > width:
        beside -= 1
    head, *lines = _table(columns[:beside], nodes)
    breadth = _breadth([head, *lines])
    room = 0 if beside < len(columns) else width - breadth - len(_MARGIN)
    is_any_beside = any(0 < len(node.last_run) <= room for node in nodes)
    page = [_beside(head, breadth, paint(_LAST_RUN, "note")) if is_any_beside else head]
    for node, line in zip(nodes, lines, strict=True):
        rest = [
            phrase.format(text)
            for name, _, phrase in columns[beside:]
            if (text := getattr(node, name))
        ]
        if len(node.last_run) <= room:
            line = _beside(line, breadth, node.last_run)
        elif node.last_run:
            rest.append(f"{_LAST_RUN}: {node.last_run}")
        page.append(line)
        page += [paint(text, "note") for text in _below("; ".join(rest), width)]
        tone = _TONES[node.health]
        page += [paint(text, tone) for problem in node.problems for text in _below(problem, width)]
    return page


def _breadth(lines: Sequence[str]) -> int:
    return max(map(cell_width, lines))


def _beside(line: str, breadth: int, text: str) -> str:
    return f"{line}{' ' * (breadth - cell_width(line))}{_MARGIN}{text}".rstrip()


def _table(columns: Sequence[tuple[str, str, str]], nodes: Sequence[NodeStatus]) -> list[str]:
    head = ["", *(head for _, head, _ in columns)]
    rows = [[_sign(node), *(getattr(node, name) for name, _, _ in columns)] for node in nodes]
    right = [index for index, (name, _, _) in enumerate(columns, 1) if name in RIGHT]
    return table(rows, head=head, right=right, indent=_MARGIN)


def _sign(node: NodeStatus) -> str:
    return paint(f"{SYMBOLS[node.health]} {node.health:<5}", _TONES[node.health])


def _below(text: str, width: int) -> list[str]:
    return wrapped(text, max(width, 40), indent=_INDENT)
