"""Scan a valid and a damaged table with real executor processes, and print the outcome."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from lancestat.errors import LancestatError
from lancestat.spark.start import start_session
from lancestat.spec.model import Target
from tests.integration.scans import merged, scanned, spark_scanner, whole_table
from tests.integration.test_partials_job import ODD, hash_of


def main(table: str, bad: str, events: str) -> None:
    secret = os.environ["SECRET"]
    target = Target(
        name="cluster",
        state="state",
        spark_master="local-cluster[2,1,1024]",
        spark_conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": Path(events).as_uri(),
            "spark.executor.memory": "512m",
            "spark.hadoop.fs.s3a.secret.key": secret,
            "spark.driver.memory": "700m",
            "spark.test.odd": ODD,
        },
        storage_options={"aws_secret_access_key": secret},
    )
    spark = start_session(target, "test", is_short_lived=True)
    scanner = spark_scanner(target)
    work = replace(whole_table(table), node="orders")
    columns = merged(work, scanned(work, scanner))
    try:
        scanned(whole_table(bad), scanner)
        error = None
    except LancestatError as raised:
        error = [type(raised).__name__, raised.code, raised.message]
    context = spark.sparkContext._jsc.sc()
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(id) for id in range(2)]
    report = {
        "executors": context.getExecutorMemoryStatus().size() - 1,
        "columns": {
            name: [
                partial.rows,
                partial.nulls,
                str(partial.minimum),
                str(partial.maximum),
                hash_of(partial),
            ]
            for name, partial in columns.items()
        },
        "error": error,
        "failed_tasks": max(stage.numFailedTasks for stage in stages if stage),
        "command_lines_with_secret": [line for line in command_lines() if secret in line],
    }
    management = spark._jvm.java.lang.management.ManagementFactory
    report |= {
        "odd": spark.conf.get("spark.test.odd"),
        "java_arguments": list(management.getRuntimeMXBean().getInputArguments()),
    }
    spark.stop()
    print(json.dumps(report))  # noqa: T201


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
