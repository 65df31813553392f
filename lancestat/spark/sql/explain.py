"""Explains a query: Spark's plan with its estimates, and the statistics behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from lancestat.optimizer.estimates import ColumnEstimate, Explanation
from lancestat.spark.sql.query_failure import NO_CONTEXT, QueryContext, explain_failure
from lancestat.spark.sql.statement import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PhysicalJoin:
    """The physical plan of a join; `build_side` is the side that is broadcast or hashed, if any."""

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
    join: PhysicalJoin | None = None
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class ScanLine:
    """A scan of the plan; `explanation` is None for tables that are not lancestat's."""

    table: str
    rows: int | None
    size_bytes: int | None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """The plan before execution; `is_cost_based` says whether Spark uses column statistics."""

    operators: tuple[Operator, ...]
    scans: tuple[ScanLine, ...]
    is_cost_based: bool

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --explain`."""
        return {
            "cost_based": self.is_cost_based,
            "plan": [asdict(operator) for operator in self.operators],
            "scans": [_scan(scan) for scan in self.scans],
        }


def _scan(scan: ScanLine) -> dict[str, object]:
    explanation = scan.explanation
    seen = {"table": scan.table, "rows": scan.rows, "size_bytes": scan.size_bytes}
    if explanation is None:
        return {**seen, "statistics": None}
    return {
        **seen,
        "version": explanation.version,
        "table_rows": explanation.table_rows,
        "fragments": explanation.fragments,
        "fragments_scanned": explanation.fragments_scanned,
        "filters": list(explanation.filters),
        "statistics": {
            "verdict": "use" if explanation.verdict.use else "refuse",
            "reason": explanation.verdict.reason.value,
            "detail": explanation.verdict.detail,
            "columns": _columns(explanation.columns),
        },
    }


def _columns(columns: Mapping[str, ColumnEstimate]) -> dict[str, object]:
    return {
        name: {
            **column.to_json(),
            "histogramBins": len(column.histogram.bins) if column.histogram else None,
        }
        for name, column in columns.items()
    }


_STRATEGIES = {
    "BroadcastHashJoin": "broadcast_hash",
    "BroadcastNestedLoopJoin": "broadcast_nested_loop",
    "CartesianProduct": "cartesian_product",
    "ShuffledHashJoin": "shuffled_hash",
    "SortMergeJoin": "sort_merge",
}
_WITH_BUILD_SIDE = ("broadcast_hash", "broadcast_nested_loop", "shuffled_hash")
_WITH_KEYS = ("broadcast_hash", "shuffled_hash", "sort_merge")
_PHYSICAL = "org.apache.spark.sql.execution."
_COMMAND = "Execute "
_SCANS = ("BatchScan", "Scan ", "FileScan")
_EXPRESSION_IDS = re.compile(r"#\d+L?")
_FIELDS_SHOWN = 12


def explain_query(
    spark: SparkSession,
    statement: Statement,
    explanations: Callable[[], Sequence[Explanation]],
    query_context: QueryContext = NO_CONTEXT,
) -> PlanExplanation:
    """Return the physical plan of a statement with Spark's estimates; not even a command is run.

    Args:
        spark: The session with what the statement names.
        statement: From `parse` with the same session.
        explanations: Returns the explanations of scans so far, oldest first.
        query_context: The tables and views that errors may name.

    Raises:
        LancestatError: Spark refuses the query (see `explain_failure`).
    """
    jvm = cast(Any, spark._jvm)
    state = spark._jsparkSession.sessionState()
    # Estimates are made while plans are optimised, those of subqueries too.
    before = explanations()
    reader = _Reader(jvm, state)
    try:
        reader.read(reader.planned(statement.plan), 0)
        latest = [
            explanation
            for explanation in explanations()
            if not any(explanation is old for old in before)
        ]
    except Exception as error:
        raise explain_failure(error, statement.text, query_context) from None
    return PlanExplanation(
        tuple(reader.operators),
        tuple(_with_explanations(reader.scans, latest)),
        is_cost_based=state.conf().cboEnabled(),
    )


class _Scan:
    """A scan of the plan: the columns it reads and the optimizer's estimates of it."""

    def __init__(self, leaf: Any, relation: Any) -> None:
        is_v2 = leaf.getClass().getSimpleName() == "BatchScanExec"
        self.columns = frozenset(_names(leaf.scan().readSchema()) if is_v2 else ())
        self.table = _table(leaf)
        self.rows, self.size_bytes = _estimate(relation)


class _Reader:
    """Reads a physical plan into lines."""

    def __init__(self, jvm: Any, state: Any) -> None:
        self._execution = jvm.org.apache.spark.sql.execution
        self._state = state
        self.operators: list[Operator] = []
        self.scans: list[_Scan] = []
        self._subqueries: list[Any] = []

    def planned(self, plan: Any) -> Any:
        """Return the physical plan of a parsed one; a command in it is not run."""
        skip = self._execution.CommandExecutionMode.SKIP()
        return self._state.executePlan(plan, skip).sparkPlan()

    def read(self, plan: Any, depth: int) -> None:
        """Add a line for an operator, then those of its inputs and subqueries."""
        logical = _option(plan.logicalLink())
        inputs = _sequence(plan.children())
        if _is_partial(plan, inputs):
            # Both halves of an aggregation have the estimate of the whole.
            [half] = inputs
            inputs = _sequence(half.children())
        name = plan.nodeName()
        if name.startswith(_COMMAND):
            self.operators.append(Operator(name, depth))
            for child in _sequence(plan.cmd().innerChildren()):
                self.read(self.planned(child), depth + 1)
            return
        if not inputs and name.startswith(_SCANS):
            relation = _sequence(logical.collectLeaves())[0] if logical is not None else None
            scan = _Scan(plan, relation)
            self.scans.append(scan)
            self.operators.append(
                Operator(
                    f"Scan {scan.table}", depth, scan.rows, scan.size_bytes, scan=len(self.scans)
                )
            )
        else:
            join = _join(plan, name)
            text = _text(plan) if join is None else _join_text(plan, name, join)
            self.operators.append(Operator(text, depth, *_estimate(logical), join))
        for child in _sequence(plan.subqueries()):
            self._read_subquery(child, depth + 1)
        for child in inputs:
            self.read(child, depth + 1)

    def _read_subquery(self, plan: Any, depth: int) -> None:
        canonical = plan.canonicalized()
        if any(canonical.equals(subquery) for subquery in self._subqueries):
            self.operators.append(Operator("Subquery that is there already", depth))
            return
        self._subqueries.append(canonical)
        self.operators.append(Operator("Subquery", depth))
        if not plan.getClass().getName().startswith(_PHYSICAL):
            # It would be planned when the query is prepared for execution.
            plan = self._execution.QueryExecution.createSparkPlan(self._state.planner(), plan)
        self.read(plan, depth + 1)


def _with_explanations(
    scans: Sequence[_Scan], explanations: Sequence[Explanation]
) -> Iterator[ScanLine]:
    """Yield scans with their explanations: of the same table, figures and columns, each once.

    Scans that agree in all of these differ only in their filters, and are explained in the order
    of the plan.
    """
    left = list(explanations)
    for scan in scans:
        matching = next(
            (explanation for explanation in left if _describes(explanation, scan)), None
        )
        if matching is not None:
            left.remove(matching)
        yield ScanLine(scan.table, scan.rows, scan.size_bytes, matching)


def _describes(explanation: Explanation, scan: _Scan) -> bool:
    same_figures = (explanation.table, explanation.rows) == (scan.table, scan.rows)
    return same_figures and scan.columns.issuperset(explanation.columns)


def _join(plan: Any, name: str) -> PhysicalJoin | None:
    strategy = _STRATEGIES.get(name)
    if strategy is None:
        return None
    build_side = None
    if strategy in _WITH_BUILD_SIDE:
        build_side = "left" if "Left" in plan.buildSide().toString() else "right"
    return PhysicalJoin(strategy, plan.joinType().toString().lower(), build_side)


def _join_text(plan: Any, name: str, join: PhysicalJoin) -> str:
    parts = [name, join.type]
    if join.strategy in _WITH_KEYS:
        pairs = zip(_sequence(plan.leftKeys()), _sequence(plan.rightKeys()), strict=True)
        keys = (f"{left.toString()} = {right.toString()}" for left, right in pairs)
        parts.append(f"on {', '.join(keys)}")
    condition = _option(plan.condition())
    if condition is not None:
        parts.append(f"where {condition.toString()}")
    return _without_ids(" ".join(parts))


def _text(plan: Any) -> str:
    return _without_ids(plan.simpleString(_FIELDS_SHOWN))


def _without_ids(text: str) -> str:
    return _EXPRESSION_IDS.sub("", text).strip()


def _is_partial(plan: Any, inputs: Sequence[Any]) -> bool:
    """Whether an aggregation's only input is its own first half."""
    return (
        len(inputs) == 1
        and plan.nodeName().endswith("Aggregate")
        and inputs[0].nodeName() == plan.nodeName()
    )


def _table(leaf: Any) -> str:
    if leaf.getClass().getSimpleName() == "BatchScanExec":
        return str(leaf.table().name())
    return str(leaf.nodeName()).removeprefix("Scan ").strip()


def _estimate(logical: Any) -> tuple[int | None, int | None]:
    if logical is None:
        return None, None
    statistics = logical.stats()
    rows = _option(statistics.rowCount())
    return None if rows is None else int(str(rows)), int(str(statistics.sizeInBytes()))


def _names(schema: Any) -> list[str]:
    return [str(name) for name in schema.fieldNames()]


def _option(option: Any) -> Any:
    return option.get() if option.isDefined() else None


def _sequence(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
