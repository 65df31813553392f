"""Runs queries, and reads what Spark measures of the operators of plans that ran."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lancestat.query.sql.explanation import Execution
from lancestat.spark.compiler import relation_classes
from lancestat.spark.versions import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "numOutputRows"
_ROWS_WRITTEN = "shuffleRecordsWritten"
# What `PlanEstimates.java` leaves on the operators that it estimates.
_ANSWER_TAG = "lancestat.answer"
_ESTIMATE_TAG = "lancestat.estimate"
# Operators that return the rows that they read, and of which Spark counts none.
_KEEPING_ROWS = ("Exchange", "Project", "Sort", "Window")
# Operators of a plan that is ready to run, which change nothing for people.
_WRAPPERS = ("AQEShuffleRead", "ColumnarToRow", "InputAdapter", "WholeStageCodegen")
_PIPELINE = "WholeStageCodegen"
_STAGE = "QueryStage"
EMPTY = "EmptyRelation"
_OWN_TIMES = (
    "aggTime",
    "broadcastTime",
    "buildTime",
    "collectTime",
    "fetchWaitTime",
    "scanTime",
    "shuffleWriteTime",
    "sortTime",
)


class LogicalEstimates:
    """The estimates of logical operators, which Spark keeps in them, and what these rest on.

    Adaptive execution estimates what is left of a plan again, once it has counted rows. What it
    keeps of the plan has the estimates from before the query ran, if `remember` saw that.
    """

    def __init__(self, spark: SparkSession) -> None:
        tag = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreeNodeTag")
        self._answer, self._estimate = tag(_ANSWER_TAG), tag(_ESTIMATE_TAG)
        plan = java_class(spark, "org.apache.spark.sql.execution.SparkPlan")
        self._own_link = plan.LOGICAL_PLAN_TAG()
        self._list = java_class(spark, "java.util.ArrayList")

    def of(self, logical: Any) -> tuple[int | None, int | None, str | None]:
        """Return rows, bytes, and the evidence of the rows, None where nothing is known."""
        if logical is None:
            return None, None, None
        kept = option(logical.getTagValue(self._estimate))
        statistics, evidence = kept if kept is not None else self._now(logical)
        rows = option(statistics.rowCount())
        known = None if rows is None else int(str(rows))
        return known, int(str(statistics.sizeInBytes())), evidence

    def is_own(self, plan: Any) -> bool:
        """Whether Spark planned the logical operator of a physical one as that, and others below.

        Both halves of an aggregation are of one logical operator, whose rows the upper one returns.
        """
        return bool(plan.getTagValue(self._own_link).isDefined())

    def remember(self, plan: Any) -> None:
        """Keep the estimates of all operators of a physical plan, as it is before it runs."""
        if plan.nodeName() == "AdaptiveSparkPlan":
            plan = plan.inputPlan()
        logical = option(plan.logicalLink())
        if logical is not None:
            self._remember(logical)
        for child in (*sequence(plan.children()), *sequence(plan.subqueries())):
            self.remember(child)

    def _now(self, logical: Any) -> tuple[Any, str | None]:
        statistics, answer = logical.stats(), option(logical.getTagValue(self._answer))
        # Of rows that are counted there is an answer too, which nothing rests on.
        is_estimate = answer is not None and not statistics.isRuntime()
        return statistics, str(answer.get("evidence").asText()) if is_estimate else None

    def _remember(self, logical: Any) -> None:
        if logical.getTagValue(self._estimate).isDefined():
            return
        kept = self._list()
        for value in self._now(logical):
            kept.add(value)
        logical.setTagValue(self._estimate, kept)
        for child in sequence(logical.children()):
            self._remember(child)


def run(spark: SparkSession, logical: Any) -> tuple[Any, Execution]:
    """Run a logical plan, parsed or analyzed, to its last row, and return what Spark executed.

    Its rows are counted, and given to nobody.
    """
    relations = relation_classes(spark)
    session = spark._jsparkSession
    modes = java_class(spark, "org.apache.spark.sql.execution.CommandExecutionMode")
    begin = time.perf_counter()
    execution = session.sessionState().executePlan(logical, modes.ALL())
    plan = execution.executedPlan()
    planned = time.perf_counter()
    LogicalEstimates(spark).remember(plan)
    start = time.perf_counter()
    rows = relations.run(execution)
    seconds = time.perf_counter() - start
    return execution, Execution(int(rows), planned - begin, seconds)


def inner(plan: Any) -> Any | None:
    """Return the operator in one that only Spark's execution needs, None in any other."""
    name = plan.nodeName()
    if name == "AdaptiveSparkPlan":
        return plan.executedPlan()
    if name.endswith(_STAGE):
        return plan.plan()
    return sequence(plan.children())[0] if name.startswith(_WRAPPERS) else None


def stages_below(empty: Any) -> list[Any]:
    """Return the stages that ran before adaptive execution saw that a plan returns no rows."""
    found = []
    for leaf in sequence(empty.logical().collectLeaves()):
        kind = leaf.getClass().getSimpleName()
        if kind == EMPTY:
            # What is above an empty relation is one too.
            found += stages_below(leaf)
        elif kind == "LogicalQueryStage":
            found += _materialized(leaf.physicalPlan())
    return found


def _materialized(plan: Any) -> list[Any]:
    if plan.nodeName().endswith(_STAGE):
        return [plan] if plan.isMaterialized() else []
    return [stage for child in sequence(plan.children()) for stage in _materialized(child)]


def is_pipeline(plan: Any) -> bool:
    """Whether an operator compiles those below it into one pipeline."""
    return str(plan.nodeName()).startswith(_PIPELINE)


def rows_of(plan: Any) -> int | None:
    """Return the rows that an operator has returned, None where Spark counts none."""
    for name in (_ROWS, _ROWS_WRITTEN):
        metric = option(plan.metrics().get(name))
        if metric is not None:
            return int(metric.value())
    name, within = plan.nodeName(), inner(plan)
    if within is None and name == "ReusedExchange":
        within = plan.child()
    if within is not None:
        return rows_of(within)
    children = sequence(plan.children())
    if name in _KEEPING_ROWS:
        return rows_of(children[0])
    if name == "Union":
        counted = [rows_of(child) for child in children]
        known = [rows for rows in counted if rows is not None]
        return sum(known) if len(known) == len(counted) else None
    return None


def times_run(exchange: Any) -> int | None:
    """Return how often the operators of a stage ran whose rows an exchange writes.

    Before Spark cuts rows into ranges, it runs the stage to sample them, and it samples large
    partitions again; None where these are not all.
    """
    partitioning = exchange.outputPartitioning()
    if partitioning.getClass().getSimpleName() != "RangePartitioning":
        return 1
    counted, written = rows_of(sequence(exchange.children())[0]), rows_of(exchange)
    if not written or counted is None:
        return 2 if partitioning.numPartitions() > 1 else 1
    times, rest = divmod(counted, written)
    return None if rest else times


def seconds_of(plan: Any, names: tuple[str, ...] = _OWN_TIMES) -> float | None:
    """Return the time that Spark measured of an operator, over all tasks; None without any."""
    metrics = plan.metrics()
    found = [metric for name in names if (metric := option(metrics.get(name))) is not None]
    if not found:
        return None
    units = {"nsTiming": 1e-9, "timing": 1e-3}
    return sum(max(0, int(metric.value())) * units[metric.metricType()] for metric in found)


def pipeline_seconds_of(plan: Any) -> float | None:
    """Return the time of the pipeline that an operator makes of those below it."""
    return seconds_of(plan, ("pipelineTime",))


def option(option: Any) -> Any:
    """Return the value of a Scala option, or None."""
    return option.get() if option.isDefined() else None


def sequence(sequence: Any) -> list[Any]:
    """Return what a Scala sequence holds."""
    return [sequence.apply(index) for index in range(sequence.size())]
