"""What is known of a query: the operators of its plan, their estimates, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lancestat.query.estimates import ColumnEstimate, Explanation, Pruning, PushDown
from lancestat.query.q_error import added_error, q_error, row_ratio


@dataclass(frozen=True, slots=True)
class PhysicalJoin:
    """The physical plan of a join.

    `build_side` is the side that is broadcast or hashed, if any. `on` are the pairs of its keys, as
    `a = b`.
    """

    strategy: str
    type: str
    build_side: str | None = None
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Actual:
    """What an operator did when the query ran, None for what Spark does not measure.

    Attributes:
        rows: The rows that it returned.
        is_whole: Whether these are all rows that the estimate is of: not where a limit above ended
            the operator, nor where a source applies the filter above its scan.
        seconds: Spark's measure of the operator itself, such as a sort, added up over tasks.
        pipeline_seconds: Where it is the uppermost operator of those that Spark compiles into one
            pipeline, the time of all of these, added up over tasks.
    """

    rows: int | None = None
    is_whole: bool = True
    seconds: float | None = None
    pipeline_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the physical plan; its inputs follow it, one deeper.

    `rows` and `size_bytes` are the estimate of its output that Spark plans with, None without one;
    `evidence` says in words what the rows rest on. `scan` counts the scans from 1. `actual` is None
    where the query was not run, or the operator had run before.
    """

    text: str
    depth: int
    rows: int | None = None
    size_bytes: int | None = None
    join: PhysicalJoin | None = None
    scan: int | None = None
    evidence: str | None = None
    actual: Actual | None = None

    @property
    def q_error(self) -> float | None:
        """The factor between estimated and true rows; None where one is not known."""
        ratio = self.row_ratio
        return None if ratio is None else q_error(ratio)

    @property
    def row_ratio(self) -> float | None:
        """Estimated rows divided by true ones; None where one is not known."""
        actual = self.actual
        if self.rows is None or actual is None or actual.rows is None or not actual.is_whole:
            return None
        return row_ratio(self.rows, actual.rows)

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --explain`."""
        shown = asdict(self)
        if self.actual is not None:
            shown["actual"]["q_error"] = self.q_error
        return shown


@dataclass(frozen=True, slots=True)
class ScanLine:
    """A scan of the plan; `explanation` is None for tables that are not lancestat's.

    `note` says why there is none for a table that is, None elsewhere.
    """

    table: str
    rows: int | None
    size_bytes: int | None
    explanation: Explanation | None = None
    note: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --explain`."""
        explanation = self.explanation
        seen = {"table": self.table, "rows": self.rows, "size_bytes": self.size_bytes}
        if explanation is None:
            return {**seen, "statistics": None, "note": self.note}
        return {
            **seen,
            "version": explanation.version,
            "table_rows": explanation.table_rows,
            "fragments": explanation.fragments,
            "fragments_scanned": explanation.fragments_scanned,
            "filters": list(explanation.filters),
            "other_filters": list(explanation.other_filters),
            "filters_proven": explanation.is_covered,
            "pruning": _decision(explanation.pruning),
            "aggregates": _aggregates(explanation.aggregates),
            "statistics": {
                "verdict": "use" if explanation.verdict.use else "refuse",
                "reason": explanation.verdict.reason.value,
                "detail": explanation.verdict.detail,
                "columns": _columns(explanation.columns),
            },
        }


@dataclass(frozen=True, slots=True)
class NearestByLine:
    """A join by NEAREST BY: what it asks for, how it will be computed, and why so."""

    join: str
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a query; its time without that of planning it."""

    rows: int
    planning_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """A plan; `is_cost_based` says whether Spark uses column statistics.

    Without an `execution` it is the plan before adaptive execution, with one the plan that ran.
    """

    operators: tuple[Operator, ...]
    scans: tuple[ScanLine, ...]
    is_cost_based: bool
    nearest_by: tuple[NearestByLine, ...] = ()
    execution: Execution | None = None

    @property
    def reads_lance(self) -> bool:
        """Whether some scan is one of lancestat's."""
        return any(scan.explanation is not None or scan.note is not None for scan in self.scans)

    @property
    def worst(self) -> int | None:
        """The index of the operator with the greatest q-error, None if no estimate is wrong.

        Of several it is the lowest in the plan, from which those above have the error.
        """
        return _greatest([operator.q_error or 1.0 for operator in self.operators])

    @property
    def origin(self) -> int | None:
        """The index of the operator that adds most to the errors of its inputs (`added_error`).

        None if no estimate is wrong; of several it is the lowest in the plan.
        """
        return _greatest(self._added_errors())

    def _added_errors(self) -> list[float]:
        """Return what each operator adds, 1 where its rows are not known."""
        added = [1.0] * len(self.operators)
        # From below, by depth the nearest operators whose errors are known.
        known: dict[int, list[float]] = {}
        for at, operator in reversed(list(enumerate(self.operators))):
            inputs = known.pop(operator.depth + 1, [])
            ratio = operator.row_ratio
            if ratio is None:
                known.setdefault(operator.depth, []).extend(inputs)
            else:
                added[at] = added_error(ratio, inputs)
                known.setdefault(operator.depth, []).append(ratio)
        return added

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --explain`."""
        return {
            "cost_based": self.is_cost_based,
            "plan": [operator.to_json() for operator in self.operators],
            "scans": [scan.to_json() for scan in self.scans],
            "nearest_by": [asdict(line) for line in self.nearest_by],
            "execution": None if self.execution is None else asdict(self.execution),
            "worst": self.worst,
            "origin": self.origin,
        }


def _greatest(errors: Sequence[float]) -> int | None:
    """Return the last index of the greatest error, None where all are 1."""
    error, at = max(((error, at) for at, error in enumerate(errors)), default=(1.0, 0))
    return at if error > 1 else None


def _decision(decision: Pruning | PushDown | None) -> dict[str, object] | None:
    if decision is None:
        return None
    return {
        "verdict": "use" if decision.use else "refuse",
        "reason": decision.reason.value,
        "detail": decision.detail,
    }


def _aggregates(decision: PushDown | None) -> dict[str, object] | None:
    shown = _decision(decision)
    return shown and {**shown, "functions": list(decision.functions if decision else ())}


def _columns(columns: Mapping[str, ColumnEstimate]) -> dict[str, object]:
    return {
        name: {
            **column.to_json(),
            "histogram_bins": len(column.histogram.bins) if column.histogram else None,
        }
        for name, column in columns.items()
    }
