"""Explains a query: Spark's plan with its estimates, and the statistics behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from lancestat.query.estimates import ColumnEstimate, Explanation, Pruning, PushDown, PushDownReason
from lancestat.query.read.relation import planning_service
from lancestat.query.sql.statement import (
    NO_CONTEXT,
    QueryContext,
    QueryText,
    explain_failure,
)
from lancestat.spark.compiler import nearest_by_extension, relation_classes
from lancestat.spark.session import active, require_classic
from lancestat.spark.versions import has_nearest_by_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class PhysicalJoin:
    """The physical plan of a join; `build_side` is the side that is broadcast or hashed, if any."""

    strategy: str
    type: str
    build_side: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the physical plan; its inputs follow it, one deeper.

    `rows` and `size_bytes` are Spark's estimate of its output, None without one. `scan` counts the
    scans from 1.
    """

    text: str
    depth: int
    rows: int | None = None
    size_bytes: int | None = None
    join: PhysicalJoin | None = None
    scan: int | None = None


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
class PlanExplanation:
    """The plan before execution; `is_cost_based` says whether Spark uses column statistics."""

    operators: tuple[Operator, ...]
    scans: tuple[ScanLine, ...]
    is_cost_based: bool
    nearest_by: tuple[NearestByLine, ...] = ()

    @property
    def reads_lance(self) -> bool:
        """Whether some scan is one of lancestat's."""
        return any(scan.explanation is not None or scan.note is not None for scan in self.scans)

    def to_json(self) -> dict[str, object]:
        """Return the object in the JSON of `lancestat sql --explain`."""
        return {
            "cost_based": self.is_cost_based,
            "plan": [asdict(operator) for operator in self.operators],
            "scans": [scan.to_json() for scan in self.scans],
            "nearest_by": [asdict(line) for line in self.nearest_by],
        }


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
# Operators of a plan that is ready to run, which change nothing for people.
_WRAPPERS = ("WholeStageCodegen", "InputAdapter", "ColumnarToRow", "ResultQueryStage")
_NEAREST_BY = "LancestatNearestBy"
_FORMAT = "lancestat"
_NOT_PLANNED = "lancestat could not plan it, so Spark has no statistics of it; the log says why"
_OF_FORMAT = (
    "the format lancestat is a Python data source, which Spark neither prunes nor asks for "
    "statistics; lancestat.read_table can"
)
# Where Spark asks for no aggregates, by the operators between them and the scan.
_GROUPED = PushDown(PushDownReason.GROUPED, "the aggregates are of groups")
_UNSUPPORTED = PushDown(
    PushDownReason.UNSUPPORTED, "only counts, minima and maxima of whole columns are answered"
)
_FILTERED = PushDown(
    PushDownReason.FILTERED,
    "the filters are not proven to keep whole fragments, and Spark applies them",
)


def explain_query(
    spark: SparkSession, plan: Any, text: QueryText, query_context: QueryContext = NO_CONTEXT
) -> PlanExplanation:
    """Return the physical plan of a parsed one with Spark's estimates; not even a command is run.

    Raises:
        LancestatError: Spark refuses the query (see `explain_failure`).
    """
    reader = _Reader(spark)
    try:
        return reader.explained(*reader.planned(plan))
    except Exception as error:
        raise explain_failure(error, text, query_context) from None


def explain_frame(frame: DataFrame) -> PlanExplanation:
    """Return the physical plan that a DataFrame's actions run, with Spark's estimates; nothing is
    run.

    Raises:
        SparkConnectSession: the DataFrame is one of Spark Connect.
        LancestatError: Spark cannot plan it (see `explain_failure`).
    """
    spark = frame.sparkSession
    require_classic(spark)
    with active(spark):
        try:
            execution = frame._jdf.queryExecution()
            return _Reader(spark).explained(execution.sparkPlan(), execution.analyzed())
        except Exception as error:
            raise explain_failure(error, QueryText("")) from None


class _Reader:
    """Reads a physical plan into lines."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        sql = cast(Any, spark._jvm).org.apache.spark.sql
        self._execution, self._logical = sql.execution, sql.catalyst.plans.logical
        self._state = spark._jsparkSession.sessionState()
        self._operators: list[Operator] = []
        self._scans: list[ScanLine] = []
        self._subqueries: list[Any] = []
        self._nearest_by: list[NearestByLine] = []

    def planned(self, plan: Any) -> tuple[Any, Any]:
        """Return the physical and the analyzed plan of a parsed one; a command is not run."""
        skip = self._execution.CommandExecutionMode.SKIP()
        execution = self._state.executePlan(plan, skip)
        return execution.sparkPlan(), execution.analyzed()

    def explained(self, plan: Any, analyzed: Any) -> PlanExplanation:
        """Return the explanation of a physical plan, and of the analyzed one that it is of."""
        self._read(plan, 0, None)
        self._read_kept(analyzed)
        is_cost_based = self._state.conf().cboEnabled()
        return PlanExplanation(
            tuple(self._operators), tuple(self._scans), is_cost_based, tuple(self._nearest_by)
        )

    def _read_kept(self, analyzed: Any) -> None:
        """Add a line for each join by NEAREST BY that only the analyzed plan has as one."""
        # The classes would have to be compiled for it.
        if not has_nearest_by_join() or "NearestByJoin" not in analyzed.toString():
            return
        texts = list(nearest_by_extension(self._spark).kept(analyzed))
        for join, reason in zip(texts[::2], texts[1::2], strict=True):
            self._nearest_by.append(NearestByLine(join, "spark", reason))

    def _read(self, plan: Any, depth: int, refusal: PushDown | None) -> None:
        """Add a line for an operator at a depth, then those of its inputs and subqueries.

        `refusal` is why the scan below answers no aggregates, should Spark not ask it for them.
        """
        name = plan.nodeName()
        inputs = _sequence(plan.children())
        if name == "AdaptiveSparkPlan":
            self._read(plan.initialPlan(), depth, refusal)
            return
        if name.startswith(_WRAPPERS):
            self._read(inputs[0], depth, refusal)
            return
        names = [input.nodeName() for input in inputs]
        if name.endswith("Aggregate") and names == [name]:
            # Both halves of an aggregation have the estimate of the whole.
            [half] = inputs
            inputs = _sequence(half.children())
        if name.startswith(_COMMAND):
            self._operators.append(Operator(name, depth))
            for child in _sequence(plan.cmd().innerChildren()):
                physical, analyzed = self.planned(child)
                self._read(physical, depth + 1, None)
                self._read_kept(analyzed)
            return
        self._operators.append(self._operator(plan, name, depth, refusal, is_leaf=not inputs))
        if name == _NEAREST_BY:
            strategy, _, reason = plan.decision().partition(": ")
            self._nearest_by.append(NearestByLine(plan.join(), strategy, reason))
        for child in _sequence(plan.subqueries()):
            self._read_subquery(child, depth + 1)
        if name == "InMemoryTableScan":
            self._read(plan.relation().cachedPlan(), depth + 1, None)
        for child in inputs:
            self._read(child, depth + 1, _refusal(plan, name, refusal))

    def _operator(
        self, plan: Any, name: str, depth: int, refusal: PushDown | None, *, is_leaf: bool
    ) -> Operator:
        logical = _option(plan.logicalLink())
        if is_leaf and name.startswith(_SCANS):
            relation = _sequence(logical.collectLeaves())[0] if logical is not None else None
            scan = self._scan(plan, relation, refusal)
            self._scans.append(scan)
            return Operator(
                f"Scan {scan.table}", depth, scan.rows, scan.size_bytes, scan=len(self._scans)
            )
        join = _join(plan, name)
        text = _text(plan) if join is None else _join_text(plan, name, join)
        return Operator(text, depth, *_estimate(logical), join)

    def _scan(self, leaf: Any, relation: Any, refusal: PushDown | None) -> ScanLine:
        rows, size_bytes = _estimate(relation)
        table = _table(leaf)
        if leaf.getClass().getSimpleName() != "BatchScanExec":
            return ScanLine(table, rows, size_bytes)
        relations = relation_classes(self._spark)
        if not relations.isPlanned(leaf.scan()):
            is_format = leaf.scan().getClass().getSimpleName() == "PythonScan" and table == _FORMAT
            return ScanLine(table, rows, size_bytes, note=_OF_FORMAT if is_format else None)
        name = relations.explanation(leaf.scan())
        if name is None:
            return ScanLine(table, rows, size_bytes, note=_NOT_PLANNED)
        explanation = planning_service().explanation(name)
        if explanation is None:
            return ScanLine(table, rows, size_bytes, note="its planning is not remembered any more")
        if explanation.aggregates is None:
            explanation = replace(explanation, aggregates=refusal)
        return ScanLine(explanation.table, rows, size_bytes, explanation)

    def _read_subquery(self, plan: Any, depth: int) -> None:
        canonical = plan.canonicalized()
        if any(canonical.equals(subquery) for subquery in self._subqueries):
            self._operators.append(Operator("Subquery that is there already", depth))
            return
        self._subqueries.append(canonical)
        self._operators.append(Operator("Subquery", depth))
        if not plan.getClass().getName().startswith(_PHYSICAL):
            # It would be planned when the query is prepared for execution.
            whole = self._logical.ReturnAnswer(plan)
            plan = self._state.planner().plan(whole).next()
        self._read(plan, depth + 1, None)


def _refusal(plan: Any, name: str, above: PushDown | None) -> PushDown | None:
    """Return why a scan below an operator answers no aggregates; None below none of them."""
    if name.endswith("Aggregate"):
        grouped = _GROUPED if plan.groupingExpressions().size() else _UNSUPPORTED
        return above or grouped
    if name == "Filter":
        return _FILTERED if above is _UNSUPPORTED else above
    return above if name == "Project" else None


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


def _option(option: Any) -> Any:
    return option.get() if option.isDefined() else None


def _sequence(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
