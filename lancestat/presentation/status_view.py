"""What a line about a node says, for people: the same words in text and in Markdown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lancestat import redact
from lancestat.formats import age, count, duration, large
from lancestat.plan.node_result import NodeResult, Status
from lancestat.plan.table_status import Shown
from lancestat.redact import clean
from lancestat.report.values import Health, JoinReport, NodeReport, NodeRunReport, ProjectReport

SYMBOLS = {Health.OK: ".", Health.WARN: "?", Health.ERROR: "!"}
TONES = {Health.OK: "success", Health.WARN: "refresh", Health.ERROR: "error"}

# So many nodes that are well are still listed one by one.
WELL_LISTED = 30

# What a count of nodes is called.
_COUNTED = {
    Health.OK: ("ok", "ok"),
    Health.WARN: ("warning", "warnings"),
    Health.ERROR: ("error", "errors"),
}


@dataclass(frozen=True, slots=True)
class StatusCells:
    """One node: texts without colours, empty where there is nothing to tell.

    `verdict` is the word that matters most. `behind` counts versions and `changed` is the share of
    rows that changed since, where there are any. `columns` tells how many of the wanted ones have
    statistics. `age` is that of the statistics or of the join's result, `rows_age` that of the
    newest rows.
    """

    name: str
    health: Health
    verdict: str
    behind: str = ""
    changed: str = ""
    columns: str = ""
    age: str = ""
    rows_age: str = ""
    last_run: str = ""
    problems: tuple[str, ...] = ()


def status_cells(node: NodeReport, now: datetime) -> StatusCells:
    """The texts of one node."""
    cells = StatusCells(
        name=visible(node.spec.name),
        health=node.health,
        verdict=node.verdict,
        last_run=_last_run(node.runs[0], now) if node.runs else "",
        problems=tuple(visible(each) for each in node.problems),
    )
    if isinstance(node, JoinReport):
        return replace(cells, age=_since(node.record.finished_at if node.record else None, now))
    cells = replace(
        cells, verdict=node.reason.replace("_", " "), rows_age=_since(node.changed_at, now)
    )
    return cells if node.shown is None else _with_figures(cells, node.shown, now)


def _with_figures(cells: StatusCells, shown: Shown, now: datetime) -> StatusCells:
    behind, changed = shown.versions_behind, shown.changed_rows
    wanted = len(shown.missing) + len(shown.columns)
    return replace(
        cells,
        behind=count(behind) if behind else "",
        changed=share(changed) if behind and changed is not None else "",
        columns=f"{len(shown.columns)}/{wanted}",
        age=_since(shown.computed_at, now),
    )


def summary(report: ProjectReport) -> list[tuple[str, Health]]:
    """How many nodes are of each health, the best first: none of those that no node has."""
    found = Counter(node.health for node in report.nodes)
    return [(count(found[each], *_COUNTED[each]), each) for each in Health if found[each]]


def share(part: float) -> str:
    """A share as a percentage; what is not nothing is never shown as 0 %."""
    if part and part < 0.001:
        return "<0.1 %"
    return f"{part * 100:.1f} %" if 0 < part < 0.1 else f"{part * 100:.0f} %"


def visible(text: str) -> str:
    """A text on one line, without secrets, whose characters can all be seen."""
    return redact.visible(clean(text))


def _since(instant: datetime | None, now: datetime) -> str:
    """How long ago something was, in its largest unit."""
    if instant is None:
        return ""
    return " ".join(age(max(now - instant, timedelta())).split(" ")[:2])


def _last_run(run: NodeRunReport, now: datetime) -> str:
    """What it did, when, and what that took: `refresh 2 h ago, 250,000 rows, 1.2 s`."""
    result = run.result
    done = [f"{_outcome(result)} {_since(run.finished_at, now)} ago", *_reading(result)]
    if result.elapsed_seconds is not None and result.action != "skip":
        done.append(duration(result.elapsed_seconds))
    return ", ".join(done)


def _outcome(result: NodeResult) -> str:
    if result.status is Status.ERROR:
        return "failed"
    return "not run" if result.status is Status.SKIPPED else visible(result.action)


def _reading(result: NodeResult) -> list[str]:
    if result.status is not Status.SUCCESS or result.action == "skip":
        return []
    if result.join is not None:
        return [] if result.join.pairs is None else [f"{large(result.join.pairs)} pairs"]
    return [count(result.rows_scanned, "row")] if result.rows_scanned else ["nothing read"]
