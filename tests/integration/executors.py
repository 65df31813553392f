"""Scan and query tables on a Spark with executor processes, and query them on the next one.

Prints the answers. The next Spark is started by the same process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancestat
from lancestat.errors import LancestatError
from lancestat.spark.compiler import relation_classes
from lancestat.spark.failure import carried_error
from lancestat.spark.session import start_session
from lancestat.spec.model import Target
from lancestat.tables.statistics.partial import ColumnPartial
from tests.integration.scans import merged, scanned, spark_scanner, whole_table
from tests.interpreted import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "a=b: c\\d #e!\tü"
QUERIES = (
    "select count(*), sum(id), sum(half) from t",
    "select count(*) from t a join t b on a.id = b.id + 1 where b.word is null",
    "select id, twice from t where word is null limit 2",
)


def main(table: str, bad: str, events: str) -> None:
    secret = os.environ["SECRET"]
    # A target's master wins over these, one of which PySpark leaves behind when it stops a session.
    os.environ |= {"SPARK_REMOTE": "sc://127.0.0.1:1", "SPARK_CONNECT_MODE_ENABLED": "1"}
    target = Target(
        name="cluster",
        state="state",
        spark_master="local-cluster[2,1,1024]",
        spark_conf={
            **INTERPRETED,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": Path(events).as_uri(),
            "spark.executor.memory": "512m",
            "spark.hadoop.fs.s3a.secret.key": secret,
            "spark.driver.memory": "700m",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.shuffle.partitions": "2",
            # The first job waits for all executors.
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.test.odd": ODD,
        },
        storage_options={"aws_secret_access_key": secret},
    )
    first = start_session(target, "test", is_short_lived=True)
    relation = relation_classes(first)
    report = {
        **scans(first, target, table, bad),
        "first": answers(first, table, secret),
        "executors": first.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
        "read error": read_error(first, bad, secret),
        "odd": first.conf.get("spark.test.odd"),
    }
    management = first._jvm.java.lang.management.ManagementFactory
    report["java_arguments"] = list(management.getRuntimeMXBean().getInputArguments())
    first.stop()
    second = start_session(
        replace(target, spark_master="local[2]", spark_conf={}), "test", is_short_lived=True
    )
    report["second"] = answers(second, table, secret)
    report["is_loaded_again"] = not relation.equals(relation_classes(second))
    second.stop()
    print(json.dumps(report))  # noqa: T201


def scans(spark: SparkSession, target: Target, table: str, bad: str) -> dict[str, Any]:
    scanner = spark_scanner(target)
    work = whole_table(table)
    columns = merged(work, scanned(work, scanner))
    try:
        scanned(whole_table(bad), scanner)
        error = None
    except LancestatError as raised:
        error = [type(raised).__name__, raised.code, raised.message]
    stages = [spark.sparkContext.statusTracker().getStageInfo(id) for id in range(2)]
    secret = os.environ["SECRET"]
    return {
        "columns": {name: described(column) for name, column in columns.items()},
        "scan error": error,
        "failed_tasks": max(stage.numFailedTasks for stage in stages if stage),
        "command_lines_with_secret": [line for line in command_lines() if secret in line],
    }


def described(column: ColumnPartial) -> list[Any]:
    """Return figures of a partial, the last of its sketch."""
    digest = hashlib.sha256(column.sketch.registers).hexdigest()
    return [column.rows, column.nulls, str(column.minimum), str(column.maximum), digest]


def answers(spark: SparkSession, table: str, secret: str) -> list[Any]:
    options = {"aws_secret_access_key": secret}
    lancestat.read_table(spark, table, storage_options=options).createOrReplaceTempView("t")
    return [[list(row) for row in spark.sql(query).collect()] for query in QUERIES]


def read_error(spark: SparkSession, bad: str, secret: str) -> list[str] | None:
    options = {"aws_secret_access_key": secret}
    try:
        lancestat.read_table(spark, bad, storage_options=options).collect()
    except Exception as raised:
        error = carried_error(str(raised))
        assert isinstance(error, LancestatError), str(raised)
        return [error.code, error.message, "a secret" if secret in str(raised) else "no secret"]
    return None


def command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


if __name__ == "__main__":
    main(*sys.argv[1:])
