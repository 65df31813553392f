"""The state of all nodes as Markdown, for chats and tickets."""

from __future__ import annotations

from lancestat.cli.status_cells import SYMBOLS, status_cells, summary, visible
from lancestat.plan.render_markdown import cell, code
from lancestat.report.values import Health, ProjectReport

_HEAD = (
    "| | node | statistics | behind | changed | columns | age | data age | last run |\n"
    "|:-:|---|---|--:|--:|--:|---|---|---|"
)


def render_markdown(report: ProjectReport) -> str:
    """A summary, what is wrong, and a table of all nodes, those in trouble first."""
    counts = ", ".join(text for text, _ in summary(report))
    lines = [
        f"### lancestat: {cell(visible(report.name))}, target {cell(visible(report.target))}",
        "",
    ]
    lines.append(f"**{counts}.**" if counts else "No nodes declared.")
    order = list(Health)
    cells = [status_cells(node, report.made_at) for node in report.nodes]
    cells.sort(key=lambda each: -order.index(each.health))
    told = [f"- {code(each.name)}: {cell(text)}" for each in cells for text in each.problems]
    lines += ["", *told] if told else []
    if cells:
        lines += ["", _HEAD]
    for each in cells:
        texts = (
            each.verdict,
            each.behind,
            each.changed,
            each.columns,
            each.age,
            each.rows_age,
            each.last_run,
        )
        sign = f"{code(SYMBOLS[each.health])} {each.health.value}"
        lines.append(f"| {sign} | {code(each.name)} | {' | '.join(map(cell, texts))} |")
    return "\n".join(lines)
