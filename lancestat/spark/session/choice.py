"""Whether a target's Spark would run in this process, where Spark need not start for a little."""

from __future__ import annotations

import os
import sys

from lancestat.errors import SparkConnectSession
from lancestat.spark.session.installation import spark_defaults
from lancestat.spark.session.start import running_session
from lancestat.spec.model import Target
from lancestat.spec.spark_master import is_local


def in_process_bytes(target: Target) -> int:
    """Return how much less of a table is read without Spark, 0 where Spark is to read all of it.

    That is so where a session is running already, under spark-submit, and where the master is not
    local. Neither pyspark is imported nor Java started to find out.
    """
    if _is_spark_running() or not _is_local(target):
        return 0
    return target.spark_min_bytes


def _is_spark_running() -> bool:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    if "pyspark" not in sys.modules:
        return False
    try:
        return running_session() is not None
    except SparkConnectSession:
        return True


def _is_local(target: Target) -> bool:
    if target.master is not None:
        return is_local(target.master)
    return "--master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", "") and not _has_default_master()


def _has_default_master() -> bool:
    """Whether Spark's own configuration names a master, which may be any."""
    return any(line.strip().startswith("spark.master") for line in spark_defaults().splitlines())
