"""Counts, minima and maxima of TPC-H lineitem: answered from the state, and computed from rows.

    python benchmarks/aggregates.py             # lineitem of TPC-H at scale 1, local[2]
    python benchmarks/aggregates.py --tiny      # a smoke run at scale 0.001
    python benchmarks/aggregates.py --data FOLDER     # with lineitem.parquet at hand

The same queries over two views of the table, one with `aggregate.pushdown.enabled` and one without
it, and over Spark's own Parquet reader, which by default answers none of them from its footers. All
take turns in one JVM, planning included; the first turns are not counted, and medians are printed.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lineitem import generate, parse_arguments, write_lance
from measure import timed

import lancestat
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAGMENTS = 16
WARM_UP = 3
OFF = {"aggregate.pushdown.enabled": "false"}
QUERIES = {
    "count(*)": ("count(*)",),
    "min and max of a date": ("min(l_shipdate)", "max(l_shipdate)"),
    "count, min and max of 16 columns": (),
}


def main() -> None:
    """Measure, and print."""
    arguments = parse_arguments(__doc__, runs=9)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        parquet = (arguments.data or generate(arguments.scale, folder)) / "lineitem.parquet"
        columns = write_lance(parquet, folder / "lineitem.lance", fragments=FRAGMENTS).schema.names
        project = analyzed_project(folder)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        sides = {
            "answered": attached(spark, project, {}),
            "from rows": attached(spark, project, OFF),
            "parquet": spark.read.parquet(str(parquet)),
        }
        runs = 1 if arguments.tiny else arguments.runs
        for label, aggregates in QUERIES.items():
            texts = aggregates or tuple(
                f"{function}({column})"
                for column in columns
                for function in ("count", "min", "max")
            )
            asked = {side: frame.selectExpr(*texts) for side, frame in sides.items()}
            require_same(asked)
            seconds = medians(runs, {side: fresh(sides[side], texts) for side in sides})
            for side, median in seconds.items():
                print(f"{label}, {side}, s{'':<40}"[:56], f"{median:>8.3f}", flush=True)
            ratio = seconds["from rows"] / seconds["answered"]
            print(f"{label}, from rows / answered{'':<40}"[:56], f"{ratio:>8.1f}", flush=True)
        spark.stop()


def analyzed_project(folder: Path) -> lancestat.Project:
    """A project of the one table, which a run has analyzed."""
    (folder / "specs").mkdir()
    spark = '{master: "local[2]", min_bytes: 100GB}'
    (folder / "lancestat_project.yml").write_text(
        f"name: tpch\ndefault_target: dev\ntargets: {{dev: {{state: state, spark: {spark}}}}}\n"
    )
    (folder / "specs" / "tables.yml").write_text(
        "tables: [{name: lineitem, uri: lineitem.lance}]\n"
    )
    project = lancestat.Project.load(folder)
    assert project.run().status.value == "success"
    return project


def attached(spark: SparkSession, project: lancestat.Project, options: dict[str, str]) -> DataFrame:
    """The table as a DataFrame of its own."""
    project.attach(spark, options=options)
    return spark.table("lineitem")


def require_same(asked: dict[str, DataFrame]) -> None:
    """Stop unless all sides give the same row."""
    rows = {side: frame.collect() for side, frame in asked.items()}
    if any(row != rows["parquet"] for row in rows.values()):
        raise SystemExit(f"the answers differ: {rows}")


def fresh(table: DataFrame, texts: tuple[str, ...]) -> Callable[[], object]:
    """Return the query, planned anew each time."""
    return lambda: table.selectExpr(*texts).collect()


def medians(runs: int, sides: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of sides that take turns."""
    for _ in range(WARM_UP if runs > 1 else 0):
        for side in sides.values():
            side()
    turns = [{name: timed(side)[0] for name, side in sides.items()} for _ in range(runs)]
    return {name: statistics.median(turn[name] for turn in turns) for name in sides}


if __name__ == "__main__":
    main()
