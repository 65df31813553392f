"""Whether a target's Spark would run in this process, where Spark need not start for a little."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from lancestat.spark.installation import spark_defaults
from lancestat.spark.start import is_connect, remote_of, running_session
from lancestat.spark.versions import has_nearest_by_join
from lancestat.spec.model import Target
from lancestat.spec.spark_master import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Where options of spark-submit can say where Spark runs.
_NAMES_OF_MASTERS = ("--master", "--remote", "--properties-file", "spark.master", "spark.remote")


def in_process_bytes(target: Target) -> int:
    """Return how much less of a table is read without Spark, 0 where Spark is to read all of it.

    That is so where a session is running already, under spark-submit, over Spark Connect, and where
    the master is not local. Neither pyspark is imported nor Java started to find out.
    """
    if _is_spark_running() or not _is_local(target):
        return 0
    return target.spark_min_bytes


# Between what benchmarks/README.md measures of a first run on two cores with a class archive
# (8.7 s) and without one (13.9 s), less the 2.4 s that reading takes without Spark.
_START_SECONDS = 9.0


def start_seconds(target: Target) -> float | None:
    """Estimate how long the target's Spark takes to start: none if it runs, or is a server.

    None where it is not local, since machines of clusters start in their own time.
    """
    if _is_spark_running() or remote_of(target) is not None:
        return 0.0
    return _START_SECONDS if _is_local(target) else None


def uses_package(target: Target) -> bool:
    """Whether workers take their modules from the target's package once its Spark is started.

    They do not where a session is running already, or where Spark is local or a server.
    """
    if target.spark_package is None or remote_of(target) is not None or _is_local(target):
        return False
    return "pyspark" not in sys.modules or running_session() is None


def joins_by_nearest_by(target: Target, session: SparkSession | None = None) -> bool:
    """Whether Spark's `nearestByJoin` can be used for joins: not over Spark Connect.

    `session` is the one that will be used, where that is known.
    """
    return has_nearest_by_join() and not _is_over_connect(target, session)


def _is_over_connect(target: Target, session: SparkSession | None) -> bool:
    if session is None and "pyspark" in sys.modules:
        session = running_session()
    return remote_of(target) is not None if session is None else is_connect(session)


def _is_spark_running() -> bool:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    return "pyspark" in sys.modules and running_session() is not None


def _is_local(target: Target) -> bool:
    if remote_of(target) is not None:
        return False
    if target.master is not None:
        return is_local(target.master)
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    is_named = any(word in submitted for word in _NAMES_OF_MASTERS) or "MASTER" in os.environ
    return not is_named and not _has_default_master()


def _has_default_master() -> bool:
    """Whether Spark's own configuration names a master, which may be any."""
    return any(line.strip().startswith("spark.master") for line in spark_defaults().splitlines())
