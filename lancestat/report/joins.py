"""Reports of KNN joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import floor

from typing_extensions import assert_never

from lancestat.errors import LancestatError
from lancestat.formats import count, format_instant
from lancestat.joins.action import join_figures
from lancestat.joins.node import record_of
from lancestat.joins.record import UNMEASURED, Accuracy, JoinRecord
from lancestat.report.values import (
    Health,
    NodeRuns,
    Problem,
    ReportOptions,
    failed,
    node_summary,
    problem,
    runs_by_node,
    seconds_since,
    unreadable,
    worst,
)
from lancestat.runs.actions import Action, Plan, Reason
from lancestat.runs.node import Observed
from lancestat.runs.result import PastRun
from lancestat.spec.model import KnnJoin, Node, NodeKind, joins_of


@dataclass(frozen=True, slots=True)
class JoinReport:
    """A join: whether its result holds, and what was last made.

    `verdict` is `current` (a run would skip it), `behind` (a run would do something, for `reasons`
    as plans spell them), `absent` (no result yet) or `blocked` (`error` says why). `results` are
    the newest runs that wrote a result, however many others there were since.
    """

    spec: KnnJoin
    health: Health
    problems: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...]
    record: JoinRecord | None
    error: LancestatError | None = None
    runs: tuple[PastRun, ...] = ()
    results: tuple[PastRun, ...] = ()

    __repr__ = node_summary

    @property
    def made_at(self) -> datetime | None:
        return self.record.finished_at if self.record else None

    @property
    def changed_at(self) -> None:
        return None

    @property
    def words(self) -> Mapping[str, str]:
        return {"verdict": self.verdict}

    def cells(self) -> dict[str, object]:
        return {
            "reasons": list(self.reasons),
            "computed_at": self.made_at,
            "rows": self.record.result.rows if self.record else None,
        }

    def to_json(self, now: datetime) -> dict[str, object]:
        record = self.record
        made_at = record.finished_at if record else None
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "detail": self.error.message if self.error else None,
            "computed_at": format_instant(made_at) if made_at else None,
            "age_seconds": seconds_since(made_at, now),
            "rows": record.result.rows if record else None,
            "strategy": record.strategy if record else None,
            **(
                {**asdict(record.counts), **asdict(record.accuracy)}
                if record
                else dict.fromkeys(_JOIN_MEASURES)
            ),
        }


_JOIN_MEASURES = (
    "left_rows",
    "right_rows",
    "unmatched_left_rows",
    "excluded_right_rows",
    "recall",
    "nprobes",
)


# Runs of a join that wrote a result, of which pages draw lines.
RESULTS = 20


class JoinReporter:
    """Makes reports of joins from an observed plan."""

    def __init__(
        self, plan: Plan, observed: Observed, now: datetime, options: ReportOptions
    ) -> None:
        self.actions = {action.node: action for action in plan.actions}
        self.observed = observed
        self.now = now
        self.results: NodeRuns | None = None

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read the runs that wrote results, once."""
        if self.results is None and joins_of(nodes):
            state, target = self.observed.state, self.observed.spec.target.name
            self.results = runs_by_node(state, target, RESULTS, NodeKind.KNN_JOIN.value)

    def report(self, join: KnnJoin, runs: tuple[PastRun, ...]) -> JoinReport:
        record = record_of(self.observed, join)
        results = (self.results or {}).get(join.name, ())
        return join_report(join, self.actions[join.name], record, runs, results, self.now)


def join_report(
    join: KnnJoin,
    action: Action,
    record: JoinRecord | None,
    runs: tuple[PastRun, ...],
    results: tuple[PastRun, ...],
    now: datetime,
) -> JoinReport:
    """The report of a join, from what a run would do to it now and what the last ones did."""
    verdict = _verdict(action)
    problems = [
        *_shortcomings(action, verdict),
        *failed(runs, now, action.error),
        *unsatisfying(join, UNMEASURED if record is None else record.accuracy),
        *unmatched(results),
    ]
    return JoinReport(
        spec=join,
        health=worst(problems),
        problems=tuple(problem.sentence for problem in problems),
        verdict=verdict,
        reasons=tuple(reason.value for reason in action.reasons),
        record=record,
        error=action.error,
        runs=runs,
        results=results,
    )


def _verdict(action: Action) -> str:
    match action.verb:
        case "blocked":
            return "blocked"
        case "skip":
            return "current"
        case "analyze":
            # What has no usable result is analyzed.
            return "absent"
        case "refresh" | "restamp":
            return "behind"
        case _:
            assert_never(action.verb)


def _shortcomings(action: Action, verdict: str) -> list[Problem]:
    if action.error is not None:
        return [unreadable(action.error)]
    why = ", ".join(reason.value.replace("_", " ") for reason in action.reasons)
    if verdict == "behind":
        return [problem(Health.WARN, f"its result is behind: {why}")]
    if verdict == "absent":
        is_new = Reason.NEW in action.reasons
        text = "it has no result yet" if is_new else f"its result is not there: {why}"
        return [problem(Health.ERROR, text)]
    return []


def unsatisfying(join: KnnJoin, accuracy: Accuracy) -> list[Problem]:
    """A result whose measured recall is less than was asked for."""
    found, asked = accuracy.recall, join.recall
    if found is None or asked is None or found >= asked:
        return []
    # Rounded up it might look like enough.
    text = f"its recall is {floor(found * 10_000) / 10_000:g}, {asked:g} is asked"
    return [problem(Health.WARN, text)]


# Rows without neighbours that grow so many times are reported.
_GROWN = 10


def unmatched(results: Sequence[PastRun]) -> list[Problem]:
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
