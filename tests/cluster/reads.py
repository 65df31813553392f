"""Run a project on its cluster, read a table in two ways and join DataFrames; print the answers.

The machine that has the executor is lost during the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancestat
from lancestat.events import Event, StageReached
from lancestat.joins.action import Probe
from lancestat.spark.versions import has_python_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(folder: str, root: str) -> None:
    project = lancestat.Project.load(folder)
    spark = project.spark()
    run(project, spark)
    options = dict(project.spec.target.storage_options)
    named = {f"storage.{key}": value for key, value in options.items()}
    uri = f"{root}/orders.lance"
    ways = {"read_table": lancestat.read_table(spark, uri, storage_options=options)}
    if has_python_sources():
        lancestat.register(spark)
        ways["format"] = spark.read.format("lancestat").options(**named).load(uri)
    answers: dict[str, Any] = {}
    answers["tables"] = {
        name: sorted(map(list, rows.where(f"o_id >= {rows.count() // 2}").collect()))
        for name, rows in ways.items()
    }
    left, right = (
        lancestat.read_table(spark, f"{root}/{name}.lance", storage_options=options)
        for name in ("l", "r")
    )
    near = lancestat.knn_join(
        left.where("id >= 0"),
        right.where("id >= 0"),
        left_vector="emb",
        right_vector="emb",
        k=3,
        select_left=["id"],
        select_right=["id"],
        rank=True,
        scratch=project.spec.target.scratch,
        storage_options=options,
    )
    answers["neighbours"] = [list(row) for row in near.collect()]
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(_place).collect()
    answers["places"] = sorted(set(places))
    spark.stop()
    print(json.dumps(answers))  # noqa: T201


def run(project: lancestat.Project, spark: SparkSession) -> None:
    """Run all nodes; once sides of a join are written, kill the machine that has done so."""
    [machine] = spark.sparkContext.parallelize([0], 1).mapPartitions(_machine).collect()
    assert machine != os.getpgid(0)

    def kill(event: Event) -> None:
        if isinstance(event, StageReached) and isinstance(event.progress.stage, Probe):
            with suppress(ProcessLookupError):
                os.killpg(machine, signal.SIGKILL)

    project.run(full_refresh=True, session=spark, on_event=kill).raise_for_status()


def _machine(_: Iterator[int]) -> Iterator[int]:
    # The process group of Spark's worker, which its executors are in, unlike their Python.
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    executor = int(status.rpartition(")")[2].split()[1])
    yield os.getpgid(executor)


def _place(_: Iterator[int]) -> Iterator[str]:
    import lancestat.spark

    yield lancestat.spark.__file__


if __name__ == "__main__":
    main(*sys.argv[1:])
