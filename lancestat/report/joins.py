"""Reports of KNN joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import floor
from typing import ClassVar, Protocol

from lancestat.formats import count
from lancestat.joins.action import join_figures
from lancestat.joins.record import Accuracy, JoinRecord, OutputState
from lancestat.report.values import (
    Health,
    NodeReport,
    NodeRuns,
    Problem,
    Reporter,
    failed,
    planned_facts,
    problem,
    runs_by_node,
    shortcomings,
)
from lancestat.runs.result import NodeCheck, PastRun
from lancestat.spec.expectations import Severity
from lancestat.spec.model import Duplicates, KnnJoin, Node, NodeKind


class Made(Protocol):
    """What the state has of the last result of a node."""

    @property
    def finished_at(self) -> datetime: ...
    @property
    def result(self) -> OutputState: ...
    @property
    def accuracy(self) -> Accuracy: ...


@dataclass(frozen=True, slots=True)
class ResultReport(NodeReport):
    """A node that writes a result by comparing vectors: whether it holds, and what was last made.

    `results` are the newest runs that wrote a result, however many others there were since.
    """

    record: Made | None = None
    results: tuple[PastRun, ...] = ()

    @property
    def made_at(self) -> datetime | None:
        return self.record.finished_at if self.record else None

    def node_checks(self, now: datetime) -> Iterator[NodeCheck]:
        found, asked = self.record.accuracy.recall if self.record else None, self.spec.recall
        if found is None or asked is None:
            return
        detail = f"{found:.4g} on a sample, {asked:g} is asked"
        yield NodeCheck(self.spec.name, "recall", found >= asked, Severity.WARN.value, detail)

    def cells(self) -> dict[str, object]:
        rows = self.record.result.rows if self.record else None
        return {**NodeReport.cells(self), "rows": rows}


@dataclass(frozen=True, slots=True)
class JoinReport(ResultReport):
    """A join."""

    record: JoinRecord | None = None

    def to_json(self, now: datetime) -> dict[str, object]:
        record = self.record
        return {
            **NodeReport.to_json(self, now),
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


# Runs of a node that wrote a result, of which pages draw lines.
RESULTS = 20


class ResultReporter(Reporter):
    """Makes reports of nodes of a kind that write results, from an observed plan."""

    kind: ClassVar[NodeKind]
    made: ClassVar[type[ResultReport]]
    results: NodeRuns | None = None

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read the runs that wrote results, once."""
        if self.results is None and any(node.kind is self.kind for node in nodes):
            state, spec = self.observed.state, self.observed.spec
            self.results = runs_by_node(state, spec, RESULTS, self.kind.value)

    def report(self, node: KnnJoin | Duplicates, runs: tuple[PastRun, ...]) -> ResultReport:
        action, record = self.actions[node.name], self.observed.record_of(node)
        results = (self.results or {}).get(node.name, ())
        problems = [
            *shortcomings(action),
            *failed(runs, self.now, action.error),
            *unsatisfying(node, record),
            *unmatched(results),
        ]
        facts = planned_facts(node, action, problems)
        return self.made(**facts, record=record, runs=runs, results=results)


class JoinReporter(ResultReporter):
    """Makes reports of joins."""

    kind = NodeKind.KNN_JOIN
    made = JoinReport


def unsatisfying(node: KnnJoin | Duplicates, record: Made | None) -> list[Problem]:
    """A result whose measured recall is less than was asked for."""
    found, asked = None if record is None else record.accuracy.recall, node.recall
    if found is None or asked is None or found >= asked:
        return []
    # Rounded up it might look like enough.
    text = f"its recall is {floor(found * 10_000) / 10_000:g}, {asked:g} is asked"
    return [problem(Health.WARN, text)]


# Rows without neighbours that grow so many times are reported.
_GROWN = 10


def unmatched(results: Sequence[PastRun]) -> list[Problem]:
    """Ten times as many left rows without neighbours as in the result before, which joins count."""
    known = [join_figures(run.result).counts.unmatched_left_rows for run in results]
    counted = [number for number in known if number is not None]
    if len(counted) < 2:
        return []
    newest, before = counted[:2]
    if newest < _GROWN * max(before, 1):
        return []
    text = f"{count(newest, 'left row')} matched nothing, {count(before)} in the run before"
    return [problem(Health.WARN, text)]
