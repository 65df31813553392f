"""The state of all nodes, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from lancestat.formats import count
from lancestat.presentation.status_view import (
    SYMBOLS,
    TONES,
    WELL_LISTED,
    StatusCells,
    status_cells,
    summary,
    visible,
)
from lancestat.presentation.terminal import grid, paint, unpainted
from lancestat.report.values import Health, ProjectReport

_MARGIN = "  "
_INDENT = " " * 11

# Columns by what their cells are, with what they are called above them and in a sentence. Those at
# the end are the first to go below the line where the page is narrow.
_COLUMNS = (
    ("name", "node", ""),
    ("verdict", "statistics", ""),
    ("behind", "behind", ""),
    ("changed", "changed", ""),
    ("columns", "columns", ""),
    ("age", "age", "statistics of {} ago"),
    ("rows_age", "data age", "rows of {} ago"),
)
_LAST_RUN = "last run"
_RIGHT = frozenset({"behind", "changed", "columns"})
_KEPT = 5


def render_status(report: ProjectReport, *, verbose: bool, width: int) -> list[str]:
    """A line per node, below it in sentences what is wrong, and a summary."""
    if not report.nodes:
        return ["No nodes declared."]
    cells = [status_cells(node, report.made_at) for node in report.nodes]
    well = sum(each.health is Health.OK for each in cells)
    fold = well > WELL_LISTED and not verbose
    listed = [each for each in cells if not (fold and each.health is Health.OK)]
    title = f"Status of {visible(report.name)}, target {visible(report.target)}"
    lines = [paint(title, "title"), ""]
    if listed:
        lines += _listed(listed, width)
    if fold:
        more = "more are well" if listed else "are well"
        text = f"{SYMBOLS[Health.OK]} ok     {count(well)} {more} (--verbose lists them)"
        lines.append(paint(f"{_MARGIN}{text}", "skip"))
    counts = ", ".join(paint(text, TONES[health]) for text, health in summary(report))
    return [*lines, "", f"{counts}."]


def _listed(cells: Sequence[StatusCells], width: int) -> list[str]:
    """Everything about a node on its line as far as that has room, the rest below it."""
    told = [column for column in _COLUMNS if any(getattr(each, column[0]) for each in cells)]
    kept = len(told)
    least = sum(column in _COLUMNS[:_KEPT] for column in told)
    while kept > least and _breadth(_table(told[:kept], cells)) > width:
        kept -= 1
    head, *lines = _table(told[:kept], cells)
    breadth = _breadth([head, *lines])
    room = 0 if kept < len(told) else width - breadth - len(_MARGIN)
    is_any_beside = any(0 < len(each.last_run) <= room for each in cells)
    page = [_beside(head, breadth, paint(_LAST_RUN, "note")) if is_any_beside else head]
    for each, line in zip(cells, lines, strict=True):
        rest = [
            phrase.format(text) for name, _, phrase in told[kept:] if (text := getattr(each, name))
        ]
        if len(each.last_run) <= room:
            line = _beside(line, breadth, each.last_run)
        elif each.last_run:
            rest.append(f"{_LAST_RUN}: {each.last_run}")
        page.append(line)
        page += [paint(text, "note") for text in _wrapped("; ".join(rest), width)]
        tone = TONES[each.health]
        page += [paint(text, tone) for said in each.problems for text in _wrapped(said, width)]
    return page


def _breadth(lines: Sequence[str]) -> int:
    return max(len(unpainted(line)) for line in lines)


def _beside(line: str, breadth: int, text: str) -> str:
    return f"{line}{' ' * (breadth - _breadth([line]))}{_MARGIN}{text}".rstrip()


def _table(columns: Sequence[tuple[str, str, str]], cells: Sequence[StatusCells]) -> list[str]:
    head = ["", *(head for _, head, _ in columns)]
    rows = [[_sign(each), *(getattr(each, name) for name, _, _ in columns)] for each in cells]
    right = frozenset(place for place, (name, _, _) in enumerate(columns, 1) if name in _RIGHT)
    return [f"{_MARGIN}{line}" for line in grid(head, rows, right=right)]


def _sign(cells: StatusCells) -> str:
    return paint(f"{SYMBOLS[cells.health]} {cells.health.value:<5}", TONES[cells.health])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
