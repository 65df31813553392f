"""Measure planning with statistics: per table of a query, and to attach a project's tables.

    python benchmarks/planning.py [--tiny] [PART ...]

queries   analysis, optimization and physical planning of queries over one to ten tables with a
          filter on each, beside the same without estimates of whole plans, and over Parquet that
          Spark itself has analyzed; and the part of it that the relation's questions take
attach    `Project.attach` of 200 tables whose statistics are published, into a session that has
          attached none

Queries are planned and not run. Medians are printed, of a JVM that is warm for `queries`; `attach`
is the median of several processes, each attaching once in a session that has run a query.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Measures, run, run_case, timed
from plan import publish, write_project

import lancestat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE_COUNTS = (1, 2, 4, 10)
OPTIMIZER = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}


def queries(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Planning time of queries over ever more tables."""
    write_project(folder, table_counts(tiny)[-1])
    run_case("publish", folder, tiny)
    yield from run_case("plans", folder, tiny).items()


def table_counts(tiny: bool) -> tuple[int, ...]:
    """Numbers of tables of a query."""
    return TABLE_COUNTS[:2] if tiny else TABLE_COUNTS


def plans(folder: Path, tiny: bool) -> Measures:
    """Median milliseconds of planning, by number of tables and side."""
    spark, project = begin(folder)
    lance, columns, parquet = (spark.newSession() for _ in range(3))
    for session in (lance, columns, parquet):
        for key, value in OPTIMIZER.items():
            session.conf.set(key, value)
    columns.conf.set("spark.lancestat.estimates.enabled", "false")
    project.attach(lance)
    project.attach(columns)
    analyze(parquet, lance, [table.name for table in project.spec.tables], folder)
    asked = record_answers()
    measures, slopes = {}, {}
    counts = table_counts(tiny)
    for tables in counts:
        text = query([table.name for table in project.spec.tables[:tables]])
        for side, session in (("lance", lance), ("columns", columns), ("parquet", parquet)):
            seconds = [plan(session, text) for _ in range(1 if tiny else 40)][0 if tiny else 20 :]
            slopes[side, tables] = statistics.median(seconds)
            measures[f"{side}, {tables} tables, ms"] = 1000 * slopes[side, tables]
        asked.clear()
        plan(lance, text)
        measures[f"  of which answering {len(asked)} questions, ms"] = 1000 * sum(asked)
    for other in ("columns", "parquet"):
        for tables in (1, counts[-1]):
            extra = slopes["lance", tables] - slopes[other, tables]
            measures[f"lance more than {other}, {tables} tables, ms"] = 1000 * extra
    spark.stop()
    return measures


def begin(folder: Path) -> tuple[SparkSession, lancestat.Project]:
    """A warm session, and the project."""
    from lancestat.spark.session import start_session
    from lancestat.spec.model import Target

    conf = {"spark.sql.warehouse.dir": str(folder / "spark-warehouse")}
    target = Target("dev", str(folder / "state"), spark_master="local[2]", spark_conf=conf)
    spark = start_session(target, "benchmark")
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark, lancestat.Project.load(folder)


def analyze(parquet: SparkSession, lance: SparkSession, names: list[str], folder: Path) -> None:
    """The same tables in Parquet, with Spark's statistics."""
    for name in names:
        place = folder / "parquet" / name
        lance.table(name).write.parquet(str(place))
        parquet.sql(f"create table {name} using parquet location '{place}'")
        parquet.sql(f"analyze table {name} compute statistics for all columns")


def query(names: list[str]) -> str:
    """A join of tables along their keys, with a filter on each."""
    joins = " ".join(f"join {name} on {name}.id = {names[0]}.id" for name in names[1:])
    filters = " and ".join(f"{name}.customer_id < 20 and {name}.name = 'a name'" for name in names)
    return f"select count(*) from {names[0]} {joins} where {filters}"


def plan(spark: SparkSession, text: str) -> float:
    """Return the seconds to plan a query that has not been planned before."""
    return timed(lambda: spark.sql(text)._jdf.queryExecution().executedPlan())[0]


def record_answers() -> list[float]:
    """Record the seconds of each answer to the JVM from now on; return the growing list."""
    from lancestat.query.read.planning_service import PlanningService

    seconds: list[float] = []
    answer = PlanningService.answer

    def answered(service: PlanningService, question: str) -> str:
        elapsed, text = timed(lambda: answer(service, question))
        seconds.append(elapsed)
        return text

    setattr(PlanningService, "answer", answered)  # noqa: B010
    return seconds


def attach(folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Binding many tables."""
    tables = 2 if tiny else 200
    write_project(folder, tables)
    run_case("publish", folder, tiny)
    runs = [run_case("attached", folder, tiny) for _ in range(1 if tiny else 3)]
    for name in runs[0]:
        yield f"{tables} tables, {name}", statistics.median(times[name] for times in runs)


def attached(folder: Path, tiny: bool) -> Measures:
    """Seconds to load and to attach a project, and to attach it once more."""
    spark, _ = begin(folder)
    elapsed, project = timed(lambda: lancestat.Project.load(folder))
    measures = {"loading the project, s": elapsed}
    for when in ("for the first time", "again"):
        before = processor_seconds(spark)
        measures[f"attaching {when}, s"], _ = timed(lambda: project.attach(spark))
        measures[f"  processor time of attaching {when}, s"] = processor_seconds(spark) - before
    spark.stop()
    return measures


def processor_seconds(spark: SparkSession) -> float:
    """Return the processor seconds that this process and its JVM have used."""
    jvm: Any = spark._jvm
    taken = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get()
    return time.process_time() + float(taken.toNanos()) / 1e9


if __name__ == "__main__":
    run(
        __doc__,
        {"queries": queries, "attach": attach},
        {"publish": publish, "plans": plans, "attached": attached},
    )
