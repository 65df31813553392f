"""Reports of near-duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lancestat.joins.duplicates.action import DuplicatesFigures
from lancestat.joins.duplicates.record import DuplicatesRecord
from lancestat.report.joins import ResultReport, ResultReporter
from lancestat.report.values import NodeReport
from lancestat.spec.model import NodeKind


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


class DuplicatesReporter(ResultReporter):
    """Makes reports of near-duplicates."""

    kind = NodeKind.DUPLICATES
    made = DuplicatesReport
