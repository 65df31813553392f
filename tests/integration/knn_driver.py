"""A Spark driver that runs joins and scans from stdin, a line of JSON for each."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import lancestat
from lancestat.errors import LancestatError
from lancestat.joins import planner as join_planner
from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.cost_model import Decision, Strategy
from lancestat.joins.search.work import JoinRequest, JoinWork, SideSource
from lancestat.joins.spark import cells, engine, sides
from lancestat.joins.spark.engine import Engine
from lancestat.spark.session import start_session
from lancestat.spec.knn_join import JoinKind
from lancestat.spec.model import Target
from tests.integration.executors import described
from tests.integration.faulty_daemon import configuration
from tests.integration.knn_oracle import pinned
from tests.integration.scans import TARGET, merged, scanned, spark_scanner, whole_table
from tests.interpreted import INTERPRETED

K = 4
LISTS = 3
# The exact strategy over files that are searched where they are, whose neighbours the driver
# merges; else they are written to scratch, and merged behind a shuffle.
IN_PLACE = "in place"
# The scan of a whole table.
SCAN = "scan"
READ_IN_PLACE = engine.read_in_place
DRIVER_LINES = cells.DRIVER_LINES


def main(master: str, faults: str) -> None:
    conf = {
        **configuration(Path(faults)),
        **INTERPRETED,
        "spark.executor.memory": "512m",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "3",
    }
    target = Target("cluster", "state", spark_master=master, spark_conf=conf)
    spark = start_session(target, "test", is_short_lived=True)
    # Small files too are read by tasks, and small joins are split.
    sides.SMALLEST_JOB = -1
    cells.SHUFFLE_SECONDS = cells.DRIVER_SECONDS = 0
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        asked = json.loads(line)
        answer = json.dumps(done(spark, **asked))
        print(answer, flush=True)  # noqa: T201
    spark.stop()


def done(spark: Any, by: str, left: str, right: str, output: str, scratch: str | None) -> Any:
    """Return what was asked for, or an error.

    Of a join that is its strategy and number of failed tasks, of a scan the figures of columns.
    """
    try:
        if by == "knn_join":
            frames = (spark.read.parquet(side) for side in (left, right))
            lancestat.knn_join(
                *frames, left_vector="emb", right_vector="emb", k=K, scratch=scratch
            ).collect()
            return {"strategy": by}
        if by == SCAN:
            table = whole_table(left)
            columns = merged(table, scanned(table, spark_scanner(TARGET, session=spark)))
            return {name: described(column) for name, column in columns.items()}
        is_in_place = by == IN_PLACE
        engine.read_in_place = READ_IN_PLACE if is_in_place else lambda *_: None
        cells.DRIVER_LINES = DRIVER_LINES if is_in_place else -1
        strategy = Strategy.EXACT if is_in_place else Strategy(by)
        join_planner.choose = lambda *_: Decision(strategy, "asked for", lists=LISTS)
        group = uuid.uuid4().hex
        assert scratch is not None
        # Spark itself reads other plans than plain scans.
        queries = {"left": left, "right": right} if by == Strategy.SPARK.value else {}
        frames = {side: spark.read.parquet(uri).where("id >= 0") for side, uri in queries.items()}
        outcome = run_join(Engine(spark, scratch, group), work(by, left, right, output), frames)
    except LancestatError as error:
        return {"error": [error.code, error.message, error.hint]}
    tracker = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        for stage in tracker.getJobInfo(job).stageIds
    ]
    return {
        "strategy": by if outcome.strategy == strategy.value else outcome.strategy,
        "recall": outcome.accuracy.recall,
        "failed": sum(stage.numFailedTasks for stage in stages if stage),
    }


def work(by: str, left: str, right: str, output: str) -> JoinWork:
    is_approximate = by == Strategy.IVF.value
    request = JoinRequest(
        K,
        kind=JoinKind.LEFT_OUTER,
        nprobes=LISTS if is_approximate else None,
        with_rank=True,
    )
    sides = (side(left, ("id",)), side(right, ("id", "name")))
    return JoinWork("near", request, *sides, OutputFormat.LANCE, output)


def side(uri: str, select: tuple[str, ...]) -> SideSource:
    if uri.endswith(".lance"):
        return SideSource("emb", select, pinned(Path(uri)))
    return SideSource("emb", select, format="parquet", uri=uri)


if __name__ == "__main__":
    main(*sys.argv[1:])
