"""The sides on Spark: sessions over the tables, and what each expects of a query's operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from joins import OPTIMIZER

import lancestat
from accuracy.datasets import Dataset
from accuracy.plans import JOIN, Operator, translated
from lancestat.query.sql.execution import LogicalEstimates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Nothing is left out of a plan that an operator could be compared with.
COMPARABLE = {
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.inSetConversionThreshold": "1000000",
    "spark.lancestat.aggregate.pushdown.enabled": "false",
}
ESTIMATES = "spark.lancestat.estimates.enabled"
SPARKS = "Spark's"
TRUE = "true"
# Of an operator's text.
MOST_FIELDS = 12
ANALYZE = "analyze table {} compute statistics for all columns"
# Of joins, where a side may be broadcast; others have a plan that no estimate decides.
BUILD_LEFT = frozenset({"Inner", "Cross", "RightOuter"})
BUILD_RIGHT = frozenset(
    {"Inner", "Cross", "LeftOuter", "LeftSingle", "LeftSemi", "LeftAnti", "ExistenceJoin"}
)


@dataclass(frozen=True)
class Broadcast:
    """How a join with keys was planned.

    `build` is the place of the side that is broadcast, 0 or 1, or None; `widths` are bytes of a row
    of the sides that may be broadcast, by their place.
    """

    build: int | None
    widths: Mapping[int, int]


@dataclass(frozen=True)
class Expected:
    """An operator, the rows that a side expects of it, and what that rests on, if it is known."""

    operator: Operator
    rows: float
    evidence: str
    # As Spark shows it, on one line.
    text: str
    broadcast: Broadcast | None = None


@dataclass(frozen=True)
class Side:
    """A way to plan queries: a session's settings and tables.

    `statements` are those for each table of Parquet; None for tables of Lance.
    """

    conf: Mapping[str, str]
    statements: tuple[str, ...] | None


def width(node: Any) -> int:
    """Return the bytes of a row, as Spark takes them to be without statistics of columns."""
    return 8 + int(node.schema().defaultSize())


SIDES: Mapping[str, Side] = {
    "lancestat": Side({ESTIMATES: "true"}, None),
    TRUE: Side({ESTIMATES: "true"}, None),
    "columns": Side({ESTIMATES: "false"}, None),
    "bare": Side({}, ()),
    "analyzed": Side({}, (ANALYZE,)),
    "histograms": Side({"spark.sql.statistics.histogram.enabled": "true"}, (ANALYZE,)),
}


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Change the settings of a session for the block."""
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            spark.conf.unset(key)


def session(
    spark: SparkSession, project: lancestat.Project, dataset: Dataset, name: str, threshold: int
) -> SparkSession:
    """Return a session with the tables of a side under their names."""
    side = SIDES[name]
    made = spark.newSession()
    threshold_of = "spark.sql.autoBroadcastJoinThreshold"
    for key, value in {**OPTIMIZER, threshold_of: str(threshold), **side.conf}.items():
        made.conf.set(key, value)
    if side.statements is None:
        project.attach(made)
        return made
    made.sql(f"create database {dataset.name}_{name}")
    made.sql(f"use {dataset.name}_{name}")
    for table in dataset.columns:
        place = dataset.folder / f"{table}.parquet"
        made.sql(f"create table {table} using parquet location '{place}'")
        for statement in side.statements:
            made.sql(statement.format(table))
    return made


def estimates(spark: SparkSession, query: str, dataset: Dataset) -> list[Expected]:
    """Return the operators of a query with what a side expects of them."""
    # What a plan's statistics are depends on the settings of the thread's active session.
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    physical = spark.sql(query)._jdf.queryExecution().sparkPlan()
    # The plan that the strategies have read, with what they were told of it.
    logical = physical.logicalLink().get()
    nodes = list(preorder(logical))
    found = translated(msgspec.json.decode(logical.toJSON()), dataset.by_columns).operators
    joins = [operator for operator in found if operator.kind == JOIN]
    planned = [node for node in preorder(physical) if is_join(node)]
    broadcasts: dict[int, Broadcast | None] = {}
    if len(planned) == len(joins):
        for operator, node in zip(joins, planned, strict=True):
            broadcasts[operator.place] = broadcast(nodes[operator.place], node)
    known = LogicalEstimates(spark)
    return [
        expected(known, operator, nodes[operator.place], broadcasts.get(operator.place))
        for operator in found
    ]


def expected(
    known: LogicalEstimates, operator: Operator, node: Any, planned: Broadcast | None
) -> Expected:
    """Return what planning read from a node: where it has no rows, its bytes by a row's width."""
    rows, size, evidence = known.of(node)
    assert size is not None
    counted = size / width(node) if rows is None else float(rows)
    text = " ".join(node.simpleString(MOST_FIELDS).split())
    return Expected(operator, counted, evidence or SPARKS, text, planned)


def preorder(node: Any) -> Iterator[Any]:
    """Yield the nodes of a plan."""
    yield node
    children = node.children()
    for index in range(children.size()):
        yield from preorder(children.apply(index))


def is_join(node: Any) -> bool:
    """Return whether a node of a physical plan is a join."""
    name = str(node.getClass().getSimpleName())
    return name.endswith("JoinExec") or name == "CartesianProductExec"


def broadcast(logical: Any, physical: Any) -> Broadcast | None:
    """Return how a join was planned, or None where it has no keys."""
    name = str(physical.getClass().getSimpleName())
    if name in ("BroadcastNestedLoopJoinExec", "CartesianProductExec"):
        return None
    build = None
    if name == "BroadcastHashJoinExec":
        build = 0 if physical.buildSide().toString() == "BuildLeft" else 1
    kind = logical.joinType().toString().partition("(")[0]
    sides = (logical.left(), logical.right())
    may = (kind in BUILD_LEFT, kind in BUILD_RIGHT)
    return Broadcast(build, {place: width(sides[place]) for place in (0, 1) if may[place]})
