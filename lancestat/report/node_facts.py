"""Facts about tables, joins and their runs in words, built once for every command and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lancestat.formats import count, duration, roughly, spoken, visible
from lancestat.redact import redact_line
from lancestat.report.values import Health, NodeReport
from lancestat.runs.result import ENDED_AS, NOT_BEGUN, NodeResult, PastRun, Status


@dataclass(frozen=True, slots=True)
class NodeRunFigures:
    """The outcome of one run for one node.

    `action` is what was done, `failed`, `stopped` where the run was interrupted, or `not run`; an
    idle node was left as it was. `fragments`
    and `rows` tell what was read of a table, `pairs` what was compared by a join; None where that
    is nothing. `elapsed` is None where no time was taken. `quality` is what a reader of a join's
    result should know of it.
    """

    result: NodeResult
    action: str
    is_failed: bool
    is_idle: bool
    reasons: str
    fragments: str | None
    rows: str
    pairs: str | None
    elapsed: str | None
    quality: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.result.name

    @property
    def is_done(self) -> bool:
        """Whether it ended well and did something."""
        return not (self.is_failed or self.is_idle)

    @property
    def has_not_begun(self) -> bool:
        """Whether the run was interrupted before it came to the node."""
        return self.result.message == NOT_BEGUN

    @property
    def read(self) -> str | None:
        """The amount that was read of a table: `1 of 17 fragments, 250,000 rows`."""
        return self.fragments and f"{self.fragments}, {self.rows}"


def node_run(result: NodeResult) -> NodeRunFigures:
    """Return what a run did to a node, in words."""
    is_failed, is_skipped = result.status is Status.ERROR, result.status is Status.SKIPPED
    is_interrupted = result.status is Status.INTERRUPTED
    fragments = None
    if result.fragments_scanned:
        total = count(result.fragments_total or 0, "fragment")
        fragments = f"{count(result.fragments_scanned)} of {total}"
    return NodeRunFigures(
        result,
        ENDED_AS.get(result.status, result.action),
        is_failed,
        is_skipped or is_interrupted or (result.action == "skip" and not is_failed),
        spoken(result.reasons),
        fragments,
        count(result.rows_scanned or 0, "row"),
        None if result.figures is None else result.figures.compared,
        None if result.elapsed_seconds is None else duration(result.elapsed_seconds),
        () if result.figures is None or result.action == "skip" else result.figures.quality,
    )


# What a count of nodes is called.
_COUNTED = {
    Health.OK: ("ok", "ok"),
    Health.WARN: ("warning", "warnings"),
    Health.ERROR: ("error", "errors"),
}


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node on a line; texts are empty where there is nothing to tell.

    `report` is what is known of it, `verdict` the word that matters most.
    `behind` counts versions and `changed` is the share of rows that changed since, where there are
    any. `columns` tells how many of the wanted ones have statistics. `age` is that of the
    statistics or of the join's result, `rows_age` that of the newest rows.
    """

    report: NodeReport
    name: str
    health: str
    verdict: str
    behind: str
    changed: str
    columns: str
    age: str
    rows_age: str
    last_run: str
    problems: tuple[str, ...]


def node_status(node: NodeReport, now: datetime) -> NodeStatus:
    """Return the texts of one node, on one line each and without secrets."""
    words = {"behind": "", "changed": "", "columns": "", **node.words}
    return NodeStatus(
        report=node,
        name=one_line(node.spec.name),
        health=node.health.value,
        **words,
        age=_since(node.made_at, now),
        rows_age=_since(node.changed_at, now),
        last_run=_last_run(node.runs[0], now) if node.runs else "",
        problems=tuple(map(one_line, node.problems)),
    )


def health_counts(nodes: Iterable[NodeReport]) -> tuple[tuple[str, str], ...]:
    """Return how many nodes are of each health that a node has, the best first."""
    numbers = Counter(node.health for node in nodes)
    return tuple(
        (count(numbers[health], *_COUNTED[health]), health.value)
        for health in Health
        if numbers[health]
    )


def one_line(text: str) -> str:
    """Return a text on one line, without secrets, whose characters can all be seen."""
    return visible(redact_line(text))


def _since(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else roughly(now - moment)


def _last_run(run: PastRun, now: datetime) -> str:
    """Return what it did, when, and how long it took: `refresh 2 h ago, 250,000 rows, 1.2 s`."""
    facts = node_run(run.result)
    parts = [f"{visible(facts.action)} {_since(run.ended_at, now)} ago"]
    figures = run.result.figures
    if facts.is_done and figures is None:
        parts.append(facts.rows if run.result.rows_scanned else "nothing read")
    elif facts.is_done and facts.pairs and figures and figures.pairs is not None:
        parts.append(facts.pairs)
    if facts.elapsed and run.result.action != "skip":
        parts.append(facts.elapsed)
    return ", ".join(parts)
