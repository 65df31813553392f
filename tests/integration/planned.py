"""The statistics that Spark's optimizer has of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.interpreted import interpreted

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
    jvm: Any = frame.sparkSession._jvm
    # Statistics read from the thread's active session whether the cost-based optimizer is on.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
        frame.sparkSession._jsparkSession
    )
    converters = getattr(jvm.scala.jdk.javaapi, "CollectionConverters$")
    plan = frame._jdf.queryExecution().optimizedPlan()
    stats = plan.stats()
    known = stats.attributeStats()
    columns = {}
    for attribute in getattr(converters, "MODULE$").asJava(plan.output()):
        statistics = known.get(attribute)
        if statistics.isDefined():
            columns[attribute.name()] = statistics.get()
    return Planned(optional(stats.rowCount()), stats.sizeInBytes(), columns)


def optional(option: Any) -> Any:
    """Return the value of a Scala option, or None."""
    return option.get() if option.isDefined() else None


def with_cbo(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark, whose optimizer uses column statistics."""
    session = interpreted(spark)
    session.conf.set(CBO, "true")
    return session
