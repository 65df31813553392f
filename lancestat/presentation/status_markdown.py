"""The state of all nodes as Markdown, for chats and tickets."""

from __future__ import annotations

from lancestat.formats import count
from lancestat.presentation.plan_markdown import cell, code
from lancestat.presentation.status_view import (
    SYMBOLS,
    WELL_LISTED,
    StatusCells,
    status_cells,
    summary,
    visible,
)
from lancestat.report.values import Health, ProjectReport

_HEAD = (
    "| | node | statistics | behind | changed | columns | age | data age | last run |",
    "|:-:|---|---|--:|--:|--:|---|---|---|",
)


def render_markdown(report: ProjectReport) -> str:
    """A summary, what is wrong, and a table of nodes, those in trouble first.

    Nodes that are well are counted where they are many.
    """
    name, target = cell(visible(report.name)), cell(visible(report.target))
    counts = ", ".join(text for text, _ in summary(report))
    lines = [f"### lancestat: {name}, target {target}", ""]
    lines.append(f"**{counts}.**" if counts else "No nodes declared.")
    cells = [status_cells(node, report.made_at) for node in report.nodes]
    well = sum(each.health is Health.OK for each in cells)
    if well > WELL_LISTED:
        cells = [each for each in cells if each.health is not Health.OK]
    order = list(Health)
    cells.sort(key=lambda each: -order.index(each.health))
    told = [f"- {code(each.name)}: {cell(text)}" for each in cells for text in each.problems]
    lines += ["", *told] if told else []
    lines += ["", *_HEAD, *map(_row, cells)] if cells else []
    if well > WELL_LISTED:
        lines += ["", f"{count(well, 'node is', 'nodes are')} well and not listed."]
    return "\n".join(lines)


def _row(cells: StatusCells) -> str:
    texts = (
        cells.verdict,
        cells.behind,
        cells.changed,
        cells.columns,
        cells.age,
        cells.rows_age,
        cells.last_run,
    )
    sign = f"{code(SYMBOLS[cells.health])} {cells.health.value}"
    return f"| {sign} | {code(cells.name)} | {' | '.join(map(cell, texts))} |"
