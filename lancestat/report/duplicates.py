"""Reports of near-duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lancestat.joins.duplicates.action import DuplicatesFigures
from lancestat.joins.duplicates.node import record_of
from lancestat.joins.duplicates.record import DuplicatesRecord
from lancestat.report.joins import RESULTS, ResultReport, unsatisfying
from lancestat.report.values import (
    NodeReport,
    NodeRuns,
    Reporter,
    failed,
    planned_facts,
    runs_by_node,
    shortcomings,
)
from lancestat.runs.result import PastRun
from lancestat.spec.model import Duplicates, Node, NodeKind, duplicates_of


@dataclass(frozen=True, slots=True)
class DuplicatesReport(ResultReport):
    """Near-duplicates."""

    record: DuplicatesRecord | None = None

    def to_json(self, now: datetime) -> dict[str, object]:
        record = self.record
        figures = DuplicatesFigures() if record is None else DuplicatesFigures.recorded(record)
        return {
            **NodeReport.to_json(self, now),
            "rows": record.result.rows if record else None,
            **{name: figures.to_json()[name] for name in _MEASURES},
        }


_MEASURES = (
    "strategy",
    "recall",
    "nprobes",
    "duplicate_groups",
    "duplicate_rows",
    "duplicate_pairs",
    "redundant_rows",
)


class DuplicatesReporter(Reporter):
    """Makes reports of near-duplicates from an observed plan."""

    results: NodeRuns | None = None

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Read the runs that wrote results, once."""
        if self.results is None and duplicates_of(nodes):
            state, target = self.observed.state, self.observed.spec.target.name
            self.results = runs_by_node(state, target, RESULTS, NodeKind.DUPLICATES.value)

    def report(self, node: Duplicates, runs: tuple[PastRun, ...]) -> DuplicatesReport:
        action, record = self.actions[node.name], record_of(self.observed, node)
        problems = [
            *shortcomings(action),
            *failed(runs, self.now, action.error),
            *unsatisfying(node, record),
        ]
        results = (self.results or {}).get(node.name, ())
        facts = planned_facts(node, action, problems)
        return DuplicatesReport(**facts, record=record, runs=runs, results=results)
