"""Reports of joins."""

from __future__ import annotations

from datetime import datetime

from lancestat.plan.actions import Action, Blocked, Skip
from lancestat.report.health import Problem, failed, problem, unreadable, worst
from lancestat.report.values import Health, JoinReport, NodeRunReport
from lancestat.spec.model import KnnJoin
from lancestat.state.values import JoinRecord


def join_report(
    join: KnnJoin,
    action: Action,
    record: JoinRecord | None,
    runs: tuple[NodeRunReport, ...],
    now: datetime,
) -> JoinReport:
    """The report of a join, from what a run would do to it now and what the last ones did."""
    verdict = _verdict(action)
    error = action.error if isinstance(action, Blocked) else None
    problems = [*_shortcomings(action, verdict), *failed(runs, now, error)]
    return JoinReport(
        spec=join,
        health=worst(problems),
        problems=tuple(each.sentence for each in problems),
        verdict=verdict,
        reasons=_reasons(action),
        record=record,
        error=error,
        runs=runs,
    )


def _verdict(action: Action) -> str:
    if isinstance(action, Blocked):
        return "blocked"
    if isinstance(action, Skip):
        return "current"
    # What has no usable result is analyzed.
    return "absent" if action.verb == "analyze" else "behind"


def _reasons(action: Action) -> tuple[str, ...]:
    return () if isinstance(action, Blocked) else tuple(each.value for each in action.reasons)


def _shortcomings(action: Action, verdict: str) -> list[Problem]:
    if isinstance(action, Blocked):
        return [unreadable(action.error)]
    reasons = _reasons(action)
    why = ", ".join(reason.replace("_", " ") for reason in reasons)
    if verdict == "behind":
        return [problem(Health.WARN, f"its result is behind: {why}")]
    if verdict == "absent":
        is_new = "new" in reasons
        text = "it has no result yet" if is_new else f"its result is not there: {why}"
        return [problem(Health.ERROR, text)]
    return []
