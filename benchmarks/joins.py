"""Joins of three and more tables, planned with statistics and without.

    python benchmarks/joins.py                  # TPC-H at scale 1, local[2]
    python benchmarks/joins.py --tiny           # a smoke run of one query at scale 0.001
    python benchmarks/joins.py --data FOLDER    # with the tables as Parquet at hand
    python benchmarks/joins.py --queries 5 9    # some of the queries
    python benchmarks/joins.py --plans FOLDER   # also writes each side's plan with its estimates

The sides take turns, query by query, in one JVM, each with a session of its own:

with      Lance, as `Project.attach` binds it: rows, sizes and column statistics
sizes     the same, its column statistics switched off: rows and sizes
nothing   the same, and nothing is broadcast but what proves small while it runs, as over a source
          that reports nothing
parquet   Spark's own tables after `ANALYZE TABLE ... FOR ALL COLUMNS`

All use the cost-based optimizer with its join reordering and adaptive execution. The first turn of
each query is not counted: it compiles. Medians are printed, then totals over the queries. The sides
must find the same rows.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lineitem import TINY, generate, make_parser, write_lance
from measure import timed

import lancestat
from lancestat.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAGMENTS = {
    "region": 1,
    "nation": 1,
    "supplier": 1,
    "customer": 2,
    "part": 2,
    "partsupp": 4,
    "orders": 4,
    "lineitem": 8,
}
JOINS = (2, 3, 5, 7, 8, 9, 10, 11, 18, 20, 21)
TINY_QUERIES = (11,)
PROJECT = """
name: joins
default_target: dev
targets:
  dev:
    state: .lancestat/state
    spark:
      master: "local[{cores}]"
      conf:
        spark.driver.memory: 3g
        spark.sql.shuffle.partitions: "{partitions}"
        spark.sql.warehouse.dir: {folder}/spark-warehouse
"""
TABLE = "  - {{name: {name}, uri: {name}.lance}}\n"

OPTIMIZER = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
SWITCHED_OFF = {**OPTIMIZER, "spark.lance.cbo.column.stats.enabled": "false"}
SIDES: Mapping[str, Mapping[str, str]] = {
    "with": OPTIMIZER,
    "sizes": SWITCHED_OFF,
    "nothing": {
        "spark.lance.cbo.column.stats.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    },
    "parquet": OPTIMIZER,
}


def main() -> None:
    """Prepare the tables, let the sides take turns, print."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        queries = {number: read_query(number) for number in given.queries}
        tables = tables_of(queries.values()) if given.tiny else list(FRAGMENTS)
        parquet = given.data or generate(given.scale, folder, tables)
        project = declare(parquet, tables, folder, given.cores, FRAGMENTS.__getitem__)
        spark = start_session(project.spec.target, "benchmark")
        result = project.run()
        assert result.status == "success", result
        sides = {side: session(spark, project, parquet, side) for side in given.sides}
        if given.plans:
            write_plans(given.plans, sides, queries)
        show(list(sides), take_all_turns(sides, queries, given.runs))
        spark.stop()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__, runs=3)
    parser.add_argument("--queries", type=int, nargs="+", default=JOINS, metavar="N")
    parser.add_argument("--sides", nargs="+", default=tuple(SIDES), choices=SIDES)
    parser.add_argument("--plans", type=Path, help="where to write the plans")
    options = parser.parse_args()
    if options.tiny:
        options.runs, options.queries, options.scale = 0, TINY_QUERIES, TINY
    return options


def tables_of(queries: Iterable[str]) -> list[str]:
    """The tables that queries name."""
    words = set(re.findall(r"\w+", " ".join(queries)))
    return [table for table in FRAGMENTS if table in words]


def declare(
    parquet: Path,
    tables: Sequence[str],
    folder: Path,
    cores: int,
    fragments: Callable[[str], int],
) -> lancestat.Project:
    """Write the tables as Lance, in a new project that declares them."""
    for table in tables:
        uri = folder / f"{table}.lance"
        write_lance(parquet / f"{table}.parquet", uri, fragments=fragments(table))
    project = PROJECT.format(cores=cores, partitions=4 * cores, folder=folder)
    (folder / "lancestat_project.yml").write_text(project)
    (folder / "specs").mkdir()
    declared = "".join(TABLE.format(name=table) for table in tables)
    (folder / "specs" / "tables.yml").write_text(f"tables:\n{declared}")
    return lancestat.Project.load(folder)


def session(
    spark: SparkSession, project: lancestat.Project, parquet: Path, side: str
) -> SparkSession:
    """Return a session with the tables of a side under their names."""
    new_session = spark.newSession()
    for key, value in SIDES[side].items():
        new_session.conf.set(key, value)
    if side == "parquet":
        analyze(new_session, parquet, [table.name for table in project.spec.tables])
    else:
        project.attach(new_session)
    return new_session


def analyze(spark: SparkSession, parquet: Path, tables: Sequence[str]) -> None:
    """Spark's own tables over Parquet, with its own statistics."""
    spark.sql("create database analyzed")
    spark.sql("use analyzed")
    for table in tables:
        place = parquet / f"{table}.parquet"
        spark.sql(f"create table {table} using parquet location '{place}'")
        spark.sql(f"analyze table {table} compute statistics for all columns")


def read_query(number: int) -> str:
    """A query of TPC-H, with its validation parameters."""
    path = Path(__file__).parent / "tpch" / f"q{number:02}.sql"
    return path.read_text(encoding="utf-8")


def take_turns(
    sides: Mapping[str, SparkSession], number: int, query: str, runs: int
) -> dict[str, float]:
    """Median seconds of a query on each side; without counted runs the first turn counts."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(1 + runs):
        answers = set()
        for side, spark in sides.items():
            elapsed, rows = timed(lambda spark=spark: spark.sql(query).collect())
            seconds[side].append(elapsed)
            answers.add(frozenset(map(repr, rows)))
        assert len(answers) == 1, f"the sides differ on query {number}"
    return {side: statistics.median(times[1:] or times) for side, times in seconds.items()}


def take_all_turns(
    sides: Mapping[str, SparkSession], queries: Mapping[int, str], runs: int
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Median seconds of each query on each side, and at last their totals."""
    total = dict.fromkeys(sides, 0.0)
    for number, query in queries.items():
        spent = take_turns(sides, number, query, runs)
        yield f"q{number:02}", spent
        total = {side: total[side] + spent[side] for side in sides}
    yield "all", total


def show(sides: list[str], measured: Iterator[tuple[str, Mapping[str, float]]]) -> None:
    """Print seconds, and ratios to the side with statistics, as they come."""
    others = [side for side in sides if side != "with"] if "with" in sides else []
    heads = [*sides, *(f"with/{side}" for side in others)]
    print(f"{'query':<8}", " ".join(f"{head:>12}" for head in heads), flush=True)
    for name, times in measured:
        figures = [times[side] for side in sides] + [times["with"] / times[side] for side in others]
        print(f"{name:<8}", " ".join(f"{figure:12.2f}" for figure in figures), flush=True)


def write_plans(
    folder: Path, sides: Mapping[str, SparkSession], queries: Mapping[int, str]
) -> None:
    """Write each side's optimized plan with its estimates, and the plan that was executed."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, spark in sides.items():
        for number, query in queries.items():
            frame = spark.sql(query)
            frame.collect()
            # Estimates depend on the cost-based optimizer setting of the thread's active session.
            spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
                spark._jsparkSession
            )
            execution = frame._jdf.queryExecution()
            text = f"{execution.stringWithStats()}\n{execution.executedPlan().toString()}\n"
            (folder / f"q{number:02}.{side}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
