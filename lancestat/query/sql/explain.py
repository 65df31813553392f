"""Explains a query: Spark's plan with its estimates, and the statistics behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lancestat.query.estimates import PushDown, PushDownReason
from lancestat.query.plans.cardinality import SPARKS
from lancestat.query.read.relation import planning_service
from lancestat.query.sql.execution import (
    EMPTY,
    LogicalEstimates,
    inner,
    is_pipeline,
    option,
    pipeline_seconds_of,
    rows_of,
    run,
    seconds_of,
    sequence,
    stages_below,
    times_run,
)
from lancestat.query.sql.explanation import (
    Actual,
    Execution,
    NearestByLine,
    Operator,
    PhysicalJoin,
    PlanExplanation,
    ScanLine,
)
from lancestat.query.sql.statement import NO_CONTEXT, QueryContext, QueryText, explain_failure
from lancestat.spark.compiler import nearest_by_extension, relation_classes
from lancestat.spark.session import active, require_classic
from lancestat.spark.versions import has_nearest_by_join, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
_IDS = re.compile(r",? \[(?:plan_)?id=#?\d+\]|#\d+L?")
_FIELDS_SHOWN = 12
_NEAREST_BY = "LancestatNearestBy"
_FORMAT = "lancestat"
_SUBQUERIES = ("Subquery", "ReusedSubquery")
_LIMITS = ("CollectLimit", "GlobalLimit", "LocalLimit")
# They read all of their inputs before they return a row, or the last one.
_READING_ALL = (
    "BroadcastExchange",
    "Exchange",
    "HashAggregate",
    "ObjectHashAggregate",
    "Sort",
    "TakeOrderedAndProject",
)
# What the rows of scans of Lance tables rest on.
_COUNT, _SAMPLE = "count", "sample"
_FORGOTTEN = "its planning is not remembered any more"
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
    spark: SparkSession,
    plan: Any,
    text: QueryText,
    query_context: QueryContext = NO_CONTEXT,
    *,
    analyze: bool = False,
) -> PlanExplanation:
    """Return the physical plan of a parsed one with its estimates; not even a command is run.

    With `analyze` the query is run, and the plan is the one that ran, with what it did.

    Raises:
        LancestatError: Spark refuses the query (see `explain_failure`).
    """
    try:
        if analyze:
            return analyzed(spark, plan)
        reader = _Reader(spark)
        return reader.explained(*reader.planned(plan))
    except Exception as error:
        raise explain_failure(error, text, query_context) from None


def explain_frame(frame: DataFrame, *, analyze: bool = False) -> PlanExplanation:
    """Return the physical plan that a DataFrame's actions run, with its estimates.

    Nothing is run, unless `analyze` is set: then the query is planned again and run, and the plan
    is the one that ran, with what it did.

    Raises:
        SparkConnectSession: the DataFrame is one of Spark Connect.
        LancestatError: Spark cannot plan it (see `explain_failure`).
    """
    spark = frame.sparkSession
    require_classic(spark)
    with active(spark):
        try:
            execution = frame._jdf.queryExecution()
            if analyze:
                return analyzed(spark, execution.commandExecuted())
            return _Reader(spark).explained(execution.sparkPlan(), execution.analyzed())
        except Exception as error:
            raise explain_failure(error, QueryText("")) from None


def analyzed(spark: SparkSession, logical: Any) -> PlanExplanation:
    """Run a logical plan, and return the plan that ran, with what each operator did.

    Any error of Spark is raised as it is.
    """
    execution, done = run(spark, logical)
    return _Reader(spark, done).explained(execution.executedPlan(), execution.analyzed())


class _Reader:
    """Reads a physical plan into lines, with `done` one that ran."""

    def __init__(self, spark: SparkSession, done: Execution | None = None) -> None:
        self._spark, self._done = spark, done
        self._state = spark._jsparkSession.sessionState()
        self._estimates = LogicalEstimates(spark)
        self._operators: list[Operator] = []
        self._scans: list[ScanLine] = []
        self._subqueries: list[Any] = []
        self._nearest_by: list[NearestByLine] = []

    def planned(self, plan: Any) -> tuple[Any, Any]:
        """Return the physical and the analyzed plan of a parsed one; a command is not run."""
        modes = java_class(self._spark, "org.apache.spark.sql.execution.CommandExecutionMode")
        skip = modes.SKIP()
        execution = self._state.executePlan(plan, skip)
        return execution.sparkPlan(), execution.analyzed()

    def explained(self, plan: Any, analyzed: Any) -> PlanExplanation:
        """Return the explanation of a physical plan, and of the analyzed one that it is of."""
        self._read(plan, 0, _Above(is_run=self._done is not None))
        self._read_kept(analyzed)
        if self._done is not None:
            root = self._operators[0]
            actual = replace(root.actual or Actual(), rows=self._done.rows)
            self._operators[0] = replace(root, actual=actual)
        is_cost_based = self._state.conf().cboEnabled()
        return PlanExplanation(
            tuple(self._operators),
            tuple(self._scans),
            is_cost_based,
            tuple(self._nearest_by),
            self._done,
        )

    def _read_kept(self, analyzed: Any) -> None:
        """Add a line for each join by NEAREST BY that only the analyzed plan has as one."""
        # The classes would have to be compiled for it.
        if not has_nearest_by_join() or "NearestByJoin" not in analyzed.toString():
            return
        texts = list(nearest_by_extension(self._spark).kept(analyzed))
        for join, reason in zip(texts[::2], texts[1::2], strict=True):
            self._nearest_by.append(NearestByLine(join, "spark", reason))

    def _read(self, plan: Any, depth: int, above: _Above) -> None:
        """Add a line for an operator at a depth, then those of its inputs and subqueries."""
        name, inputs = plan.nodeName(), sequence(plan.children())
        if (within := self._within(plan, above)) is not None:
            if is_pipeline(plan):
                above = replace(above, pipeline_seconds=self._pipeline_seconds(plan))
            self._read(within, depth, above)
            return
        if name.endswith("Aggregate") and [input.nodeName() for input in inputs] == [name]:
            # Both halves of an aggregation have the estimate of the whole.
            [half] = inputs
            inputs = sequence(half.children())
        if name.startswith(_COMMAND):
            self._operators.append(Operator(name, depth))
            for child in sequence(plan.cmd().innerChildren()):
                physical, analyzed = self.planned(child)
                self._read(physical, depth + 1, _Above())
                self._read_kept(analyzed)
            return
        self._operators.append(self._operator(plan, name, depth, above, is_leaf=not inputs))
        if name == _NEAREST_BY:
            strategy, _, reason = plan.decision().partition(": ")
            self._nearest_by.append(NearestByLine(plan.join(), strategy, reason))
        for child in sequence(plan.subqueries()):
            self._read_subquery(child, depth + 1, above)
        if name == "InMemoryTableScan":
            self._read(plan.relation().cachedPlan(), depth + 1, _Above())
        for child in stages_below(plan) if name == EMPTY else inputs:
            self._read(child, depth + 1, above.below(plan, name))

    def _pipeline_seconds(self, plan: Any) -> float | None:
        """Return the time of a pipeline, None where it is more than all cores had.

        Spark adds it once more whenever an operator asks for rows after the last one, as sort-merge
        joins do (`WholeStageCodegenExec`).
        """
        seconds = pipeline_seconds_of(plan)
        if seconds is None or self._done is None:
            return None
        most = self._done.seconds * self._spark.sparkContext.defaultParallelism
        return seconds if seconds <= most else None

    def _within(self, plan: Any, above: _Above) -> Any | None:
        if not above.is_run and plan.nodeName() == "AdaptiveSparkPlan":
            return plan.initialPlan()
        return inner(plan)

    def _operator(
        self, plan: Any, name: str, depth: int, above: _Above, *, is_leaf: bool
    ) -> Operator:
        logical = option(plan.logicalLink())
        actual = above.actual(plan) if above.is_run else None
        if is_leaf and name.startswith(_SCANS):
            relation = sequence(logical.collectLeaves())[0] if logical is not None else None
            scan, evidence = self._scan(plan, relation, above.refusal)
            self._scans.append(scan)
            return Operator(
                f"Scan {scan.table}",
                depth,
                scan.rows,
                scan.size_bytes,
                scan=len(self._scans),
                evidence=evidence,
                actual=actual,
            )
        if name.endswith("Aggregate") and not self._estimates.is_own(plan):
            logical = None
        join = _join(plan, name)
        text = _text(plan) if join is None else _join_text(plan, name, join)
        rows, size_bytes, evidence = self._estimate(logical)
        return Operator(text, depth, rows, size_bytes, join, evidence=evidence, actual=actual)

    def _estimate(self, logical: Any) -> tuple[int | None, int | None, str | None]:
        rows, size_bytes, evidence = self._estimates.of(logical)
        return rows, size_bytes, None if rows is None else evidence or SPARKS

    def _scan(
        self, leaf: Any, relation: Any, refusal: PushDown | None
    ) -> tuple[ScanLine, str | None]:
        """Return what is known of a scan, and what its rows rest on."""
        rows, size_bytes, evidence = self._estimate(relation)
        table = _table(leaf)
        if leaf.getClass().getSimpleName() != "BatchScanExec":
            return ScanLine(table, rows, size_bytes), evidence
        relations = relation_classes(self._spark)
        if not relations.isPlanned(leaf.scan()):
            is_format = leaf.scan().getClass().getSimpleName() == "PythonScan" and table == _FORMAT
            note = _OF_FORMAT if is_format else None
            return ScanLine(table, rows, size_bytes, note=note), evidence
        name = relations.explanation(leaf.scan())
        if name is None:
            return ScanLine(table, rows, size_bytes, note=_NOT_PLANNED), evidence
        explanation = planning_service().explanation(name)
        if explanation is None:
            return ScanLine(table, rows, size_bytes, note=_FORGOTTEN), evidence
        if explanation.aggregates is None:
            explanation = replace(explanation, aggregates=refusal)
        if evidence == SPARKS:
            evidence = _COUNT if explanation.sampled_share is None else _SAMPLE
        return ScanLine(explanation.table, rows, size_bytes, explanation), evidence

    def _read_subquery(self, plan: Any, depth: int, above: _Above) -> None:
        canonical = plan.canonicalized()
        if any(canonical.equals(subquery) for subquery in self._subqueries):
            self._operators.append(Operator("Subquery that is there already", depth))
            return
        self._subqueries.append(canonical)
        self._operators.append(Operator("Subquery", depth))
        if not plan.getClass().getName().startswith(_PHYSICAL):
            # It would be planned when the query is prepared for execution.
            answer = "org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer"
            whole = java_class(self._spark, answer)(plan)
            plan = self._state.planner().plan(whole).next()
        elif plan.nodeName().startswith(_SUBQUERIES):
            plan = sequence(plan.children())[0]
        self._read(plan, depth + 1, _Above(is_run=above.is_run))


@dataclass(frozen=True, slots=True)
class _Above:
    """What an operator gets from those above it.

    Attributes:
        is_run: Whether Spark has measured what it did.
        refusal: Why a scan below answers no aggregates, should Spark not ask it for them.
        is_ended: Whether a limit may end it before its last row.
        is_filtered: Whether a filter is right above it.
        pipeline_seconds: The time of the pipeline that begins with it.
        times_run: How often its stage ran, None where not all of it did as often.
    """

    is_run: bool = False
    refusal: PushDown | None = None
    is_ended: bool = False
    is_filtered: bool = False
    pipeline_seconds: float | None = None
    times_run: int | None = 1

    def below(self, plan: Any, name: str) -> _Above:
        """Return what the inputs of an operator get."""
        is_ended = name in _LIMITS or (self.is_ended and name not in _READING_ALL)
        refusal = _refusal(plan, name, self.refusal)
        times = self.times_run
        if self.is_run and name.endswith("Exchange"):
            times = times_run(plan) if name == "Exchange" else 1
        return _Above(self.is_run, refusal, is_ended, name == "Filter", times_run=times)

    def actual(self, plan: Any) -> Actual:
        """Return what an operator did that has run."""
        is_source = not plan.children().size()
        is_whole = not (self.is_ended or (self.is_filtered and is_source))
        counted = rows_of(plan)
        if counted is not None and not plan.nodeName().endswith("Exchange"):
            counted = counted // self.times_run if self.times_run else None
        return Actual(counted, is_whole, seconds_of(plan), self.pipeline_seconds)


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
    on: list[str] = []
    if strategy in _WITH_KEYS:
        pairs = zip(sequence(plan.leftKeys()), sequence(plan.rightKeys()), strict=True)
        on = [_without_ids(f"{left.toString()} = {right.toString()}") for left, right in pairs]
    return PhysicalJoin(strategy, plan.joinType().toString().lower(), build_side, tuple(on))


def _join_text(plan: Any, name: str, join: PhysicalJoin) -> str:
    parts = [name, join.type]
    if join.on:
        parts.append(f"on {', '.join(join.on)}")
    condition = option(plan.condition())
    if condition is not None:
        parts.append(f"where {condition.toString()}")
    return _without_ids(" ".join(parts))


def _text(plan: Any) -> str:
    return _without_ids(plan.simpleString(_FIELDS_SHOWN))


def _without_ids(text: str) -> str:
    return _IDS.sub("", text).strip()


def _table(leaf: Any) -> str:
    if leaf.getClass().getSimpleName() == "BatchScanExec":
        return str(leaf.table().name())
    return str(leaf.nodeName()).removeprefix("Scan ").strip()
