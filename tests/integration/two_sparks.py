"""Queries tables on one Spark and on another that the same process starts next; prints answers."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import lancestat
from lancestat.errors import LancestatError
from lancestat.spark.compiler import relation_classes
from lancestat.spark.failure import carried_error
from lancestat.spark.start import start_session
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(master: str, table: str, bad: str) -> None:
    secret = os.environ["SECRET"]
    # A target's master wins over these, one of which PySpark leaves behind when it stops a session.
    os.environ |= {"SPARK_REMOTE": "sc://127.0.0.1:1", "SPARK_CONNECT_MODE_ENABLED": "1"}
    first = started(master)
    relation = relation_classes(first)
    report = {
        "first": answers(first, table, secret),
        "executors": first.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
        "error": failure(first, bad, secret),
    }
    first.stop()
    second = started("local[2]")
    report["second"] = answers(second, table, secret)
    report["is_loaded_anew"] = not relation.equals(relation_classes(second))
    second.stop()
    print(json.dumps(report))  # noqa: T201


def started(master: str) -> SparkSession:
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "700m",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "2",
        # The first job waits for all executors.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    target = Target(name="cluster", state="state", spark_master=master, spark_conf=conf)
    return start_session(target, "test", is_short_lived=True)


def answers(spark: SparkSession, table: str, secret: str) -> list[Any]:
    options = {"aws_secret_access_key": secret}
    lancestat.read_table(spark, table, storage_options=options).createOrReplaceTempView("t")
    queries = (
        "select count(*), sum(id), cast(sum(d) as string) from t",
        "select count(*) from t a join t b on a.id = b.id + 1 where b.k = 0",
        "select id, n.b.c from t where k = 1 limit 2",
        "select count(*) from t where k = 2",
    )
    return [[list(row) for row in spark.sql(query).collect()] for query in queries]


def failure(spark: SparkSession, bad: str, secret: str) -> list[str] | None:
    options = {"aws_secret_access_key": secret}
    try:
        lancestat.read_table(spark, bad, storage_options=options).collect()
    except Exception as raised:
        error = carried_error(str(raised))
        assert isinstance(error, LancestatError), str(raised)
        return [error.code, error.message, "a secret" if secret in str(raised) else "no secret"]
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
