"""A query's plan with its estimates, and what these stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lancestat.read.estimate import ColumnEstimate
from lancestat.read.explanation import Explanation


@dataclass(frozen=True, slots=True)
class Join:
    """How a join is to be done: `build_side` is the one that is broadcast or hashed, if any is."""

    strategy: str
    type: str
    build_side: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """A line of the physical plan; its inputs follow it, one deeper.

    `rows` and `size_bytes` are Spark's estimate of what comes out, None where it makes none. `scan`
    counts the scans from 1.
    """

    text: str
    depth: int
    rows: int | None = None
    size_bytes: int | None = None
    join: Join | None = None
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class ScanLine:
    """A scan of the plan; `told` is None for tables that are not lancestat's."""

    table: str
    rows: int | None
    size_bytes: int | None
    told: Explanation | None = None


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """The plan before execution; `is_cost_based` says whether column statistics are looked at."""

    operators: tuple[Operator, ...]
    scans: tuple[ScanLine, ...]
    is_cost_based: bool

    def to_json(self) -> dict[str, object]:
        """The object in the JSON of `lancestat sql --explain`."""
        return {
            "cost_based": self.is_cost_based,
            "plan": [asdict(operator) for operator in self.operators],
            "scans": [_scan(scan) for scan in self.scans],
        }


def _scan(scan: ScanLine) -> dict[str, object]:
    told = scan.told
    seen = {"table": scan.table, "rows": scan.rows, "size_bytes": scan.size_bytes}
    if told is None:
        return {**seen, "statistics": None}
    return {
        **seen,
        "version": told.version,
        "table_rows": told.table_rows,
        "fragments": told.fragments,
        "fragments_scanned": told.fragments_scanned,
        "filters": list(told.filters),
        "statistics": {
            "verdict": "use" if told.verdict.use else "refuse",
            "reason": told.verdict.reason.value,
            "detail": told.verdict.detail,
            "columns": _columns(told.columns),
        },
    }


def _columns(columns: Mapping[str, ColumnEstimate]) -> dict[str, object]:
    return {
        name: {
            "min": column.minimum,
            "max": column.maximum,
            "nullCount": column.nulls,
            "distinctCount": column.distinct,
            "avgLen": column.average_length,
            "maxLen": column.maximum_length,
            "histogramBins": len(column.histogram.bins) if column.histogram else None,
        }
        for name, column in columns.items()
    }
