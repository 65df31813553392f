"""Whether nodes are within their policies, and in sentences what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor

from lancestat.errors import LancestatError
from lancestat.formats import age, count
from lancestat.joins.action import join_figures
from lancestat.joins.measures import Accuracy
from lancestat.report.values import Health, NodeRunReport
from lancestat.runs.actions import STATE_LACKS
from lancestat.runs.node_result import Status
from lancestat.spec.model import Freshness, KnnJoin
from lancestat.tables.assessment import TableAssessment
from lancestat.tables.table_status import TableStatus

_NAMES_LISTED = 5
# Rows without neighbours that grow so many times are reported.
_GROWN = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, in a sentence, and how bad it is."""

    health: Health
    sentence: str


def problem(health: Health, text: str) -> Problem:
    """Return a problem on one line that begins and ends like a sentence."""
    line = " ".join(text.split())
    end = "" if line.endswith((".", "!", "?")) else "."
    return Problem(health, f"{line[:1].upper()}{line[1:]}{end}")


def worst(problems: Iterable[Problem]) -> Health:
    """The health of a node with these problems."""
    order = list(Health)
    return max((problem.health for problem in problems), key=order.index, default=Health.OK)


def unreadable(error: LancestatError) -> Problem:
    """Return the problem of a node that cannot be observed."""
    location = f" {error.location}" if error.location else ""
    hint = f" ({error.hint})" if error.hint else ""
    return problem(Health.ERROR, f"{error.code}{location}: {error.message}{hint}")


def refused(status: TableStatus, assessment: TableAssessment) -> list[Problem]:
    """Return the guard's objection to the statistics under the declared policy, if there is one."""
    if status.use:
        return []
    if status.reason == "absent":
        return [problem(Health.ERROR, _ABSENT[_had_statistics(assessment)])]
    if status.reason == "schema_changed":
        health = Health.WARN if status.is_tolerated else Health.ERROR
        return [
            problem(
                health, f"{status.detail}; readers refuse its statistics, the next run refreshes"
            )
        ]
    return [problem(Health.ERROR, f"readers refuse its statistics: {status.detail}")]


_ABSENT = {
    False: "it has no statistics yet",
    True: "it no longer has the statistics of its last run: the table was restored or replaced, or "
    "they were removed",
}


def _had_statistics(assessment: TableAssessment) -> bool:
    """Whether a run has put statistics where the declaration keeps them."""
    record = assessment.record
    return record is not None and (record.published or not assessment.carrier.is_public)


def uncovered(status: TableStatus) -> list[Problem]:
    """Wanted columns without statistics, where nothing else explains it."""
    if not status.missing or status.reason in ("absent", "schema_changed"):
        return []
    names, more = ", ".join(status.missing[:_NAMES_LISTED]), len(status.missing) - _NAMES_LISTED
    listed = f"{names} and {count(more)} more" if more > 0 else names
    text = count(len(status.missing), "wanted column has", "wanted columns have")
    return [problem(Health.WARN, f"{text} no statistics: {listed}")]


def lacking(status: TableStatus) -> list[Problem]:
    """What a lost state takes along, of statistics that are published and current."""
    return [problem(Health.WARN, STATE_LACKS)] if STATE_LACKS in status.skipped else []


def unmatched_columns(assessment: TableAssessment) -> list[Problem]:
    """What the declaration asks for and the table does not have."""
    return [problem(Health.WARN, warning) for warning in assessment.warnings]


def freshness_of(
    bounds: Freshness | None, changed_at: datetime | None, now: datetime
) -> Health | None:
    """Judge the age of the newest rows by the declared bounds, None where there are none.

    Source: dbt's `freshness`: older than `error_after` is an error, else older than `warn_after` a
    warning. Rows whose age is not known are a warning.
    """
    if bounds is None:
        return None
    if changed_at is None:
        return Health.WARN
    old = now - changed_at
    if bounds.error_after is not None and old > bounds.error_after:
        return Health.ERROR
    return Health.WARN if bounds.warn_after is not None and old > bounds.warn_after else Health.OK


def outdated(bounds: Freshness | None, changed_at: datetime | None, now: datetime) -> list[Problem]:
    """Rows that are older than they may be."""
    health = freshness_of(bounds, changed_at, now)
    if bounds is None or health is None or health is Health.OK:
        return []
    if changed_at is None:
        return [problem(health, "how old its newest rows are is not known")]
    key = "error_after" if health is Health.ERROR else "warn_after"
    bound = bounds.error_after if health is Health.ERROR else bounds.warn_after
    limit = bounds.templates.get(key) or age(bound or timedelta())
    return [problem(health, f"its rows last changed {age(now - changed_at)} ago, {key} is {limit}")]


def unsatisfying(join: KnnJoin, accuracy: Accuracy) -> list[Problem]:
    """A result whose measured recall is less than was asked for."""
    found, asked = accuracy.recall, join.recall
    if found is None or asked is None or found >= asked:
        return []
    # Rounded up it might look like enough.
    text = f"its recall is {floor(found * 10_000) / 10_000:g}, {asked:g} is asked"
    return [problem(Health.WARN, text)]


def unmatched(results: Sequence[NodeRunReport]) -> list[Problem]:
    """Ten times as many left rows without neighbours as in the result before."""
    known = [join_figures(run.result).counts.unmatched_left_rows for run in results]
    counted = [number for number in known if number is not None]
    if len(counted) < 2:
        return []
    newest, before = counted[:2]
    if newest < _GROWN * max(before, 1):
        return []
    text = f"{count(newest, 'left row')} matched nothing, {count(before)} in the run before"
    return [problem(Health.WARN, text)]


def failed(
    runs: Sequence[NodeRunReport], now: datetime, error: LancestatError | None = None
) -> list[Problem]:
    """A last run that failed, unless it failed of what is still wrong: `error`.

    One that was interrupted is a warning: nothing says that the node is wrong.
    """
    if runs and runs[0].result.status is Status.INTERRUPTED:
        ago = age(max(now - runs[0].finished_at, timedelta()))
        text = f"its last run was interrupted {ago} ago: {runs[0].result.message}"
        return [problem(Health.WARN, text)]
    if not runs or runs[0].result.status is not Status.ERROR:
        return []
    if error is not None and error.message in (runs[0].result.message or ""):
        return []
    ago = age(max(now - runs[0].finished_at, timedelta()))
    lines = runs[0].result.text.splitlines() or ["it did not say why"]
    return [problem(Health.ERROR, f"its last run failed {ago} ago: {lines[0]}")]
