"""The statistics that Spark's optimizer has of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.query.read.relation import Relation, relate
from lancestat.query.table import DeclaredTables, ReadTable
from lancestat.spark.versions import session_class
from tests.runs.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CBO = "spark.sql.cbo.enabled"


@dataclass(frozen=True)
class Planned:
    """`optimizedPlan().stats()` of a query; `columns` are Spark's own ColumnStat by name."""

    rows: int | None
    size_bytes: int
    columns: dict[str, Any]


def planned(frame: DataFrame) -> Planned:
    """The statistics of the root of a query's optimized plan."""
    session = frame.sparkSession
    # Statistics read from the thread's active session whether the cost-based optimizer is on.
    session_class(session).setActiveSession(session._jsparkSession)
    plan = frame._jdf.queryExecution().optimizedPlan()
    stats = plan.stats()
    known = stats.attributeStats()
    columns = {}
    for attribute in values(plan.output()):
        statistics = known.get(attribute)
        if statistics.isDefined():
            columns[attribute.name()] = statistics.get()
    return Planned(optional(stats.rowCount()), stats.sizeInBytes(), columns)


def values(collection: Any) -> Iterator[Any]:
    """Yield what a Scala collection holds; a map's are pairs."""
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def optional(option: Any) -> Any:
    """Return the value of a Scala option, or None."""
    return option.get() if option.isDefined() else None


def with_cbo(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark, whose optimizer uses column statistics."""
    session = spark.newSession()
    session.conf.set(CBO, "true")
    return session


def executed(frame: DataFrame) -> str:
    """Return Spark's physical plan of a query as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def opened(world: World) -> ReadTable:
    """Return the table of a world as its project opens it, with its state."""
    spec = world.observer.spec
    [table] = DeclaredTables(spec, world.state, world.clock).open([world.table]).values()
    assert isinstance(table, ReadTable), table
    return table


def related(spark: SparkSession, world: World) -> DataFrame:
    """Return the table of a world as a DataFrame with the statistics of its state."""
    [frame] = relate(spark, [Relation(opened(world))])
    return frame
