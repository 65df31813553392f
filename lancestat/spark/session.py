"""Starts Spark as a target declares it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from lancestat.errors import RunError
from lancestat.spark.jvm import not_started, start_jvm
from lancestat.spark.scan_task import THREAD_VARIABLES
from lancestat.spark.system_views import SCHEMA, SETTING
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_ATTEMPTS = 4

_LOCAL = re.compile(r"local(?:\[([^\],]+)(?:,\s*(\d+))?\])?")

# Batches come and go all the time. Left to itself, glibc gives their memory back to the system and
# faults it in again, which takes a fifth of a worker's time.
ALLOCATOR_VARIABLES = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}


def start_session(
    target: Target, app_name: str, *, quiet: bool = True, is_short_lived: bool = False
) -> SparkSession:
    """The Spark session of a target, started unless this process has one.

    The target's configuration is final; around it, lancestat turns off the console's progress bar,
    the user interface of a local session, and threads beyond a task's cores in its workers, which
    also keep the memory they free. Global temporary views are in the schema `lancestat`. Storage
    options never become Spark properties.

    Args:
        target: Master (None: spark-submit's, else `local[*]`) and configuration.
        app_name: As Spark shows it.
        quiet: Keep what the JVM prints to itself, unless it fails to start.
        is_short_lived: The session is for scans only, and the JVM need not optimise its code.

    Raises:
        RunError: no Java (LS520), too old a Java (LS521), or the JVM did not start (LS522).
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = target.spark_master or target.spark_conf.get("spark.master")
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        start_jvm(master, target.spark_conf, quiet=quiet, is_short_lived=is_short_lived)
    master = master or SparkConf().get("spark.master") or "local[*]"
    conf = {**defaults(master, target.spark_conf), **target.spark_conf}
    conf["spark.master"] = with_attempts(master, conf.get("spark.task.maxFailures"))
    builder = SparkSession.builder.appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise not_started(str(error), conf) from None
    if quiet:
        session.sparkContext.setLogLevel("ERROR")
    return session


def running_session() -> SparkSession | None:
    """The classic Spark session that this process has, if any.

    Raises:
        RunError: it is a Spark Connect session, which cannot run lancestat's jobs (LS523).
    """
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        session = SparkSession._instantiatedSession
    if session is None:
        return None
    require_classic(session)
    return None if session._jsc.sc().isStopped() else session


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the thread's active one while the block runs.

    Spark asks the active session, and not the one that it works for, for the configuration of
    estimates and for the data sources that are registered.
    """
    sessions = cast(Any, session._jvm).org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    if before.isDefined() and before.get().equals(session._jsparkSession):
        yield
        return
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def require_classic(session: object) -> None:
    """Refuse a session without a JVM of its own.

    Raises:
        RunError: it is a Spark Connect session, which cannot run lancestat's jobs (LS523).
    """
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession) or not hasattr(session, "_jsc"):
        raise RunError(
            "LS523",
            "the active session is a Spark Connect session, and lancestat needs a classic one",
            hint="stop it, or run lancestat in a process of its own",
        )


def task_threads(spark: SparkSession) -> int:
    """How many cores each task of a session has to itself: `spark.task.cpus`."""
    return int(spark.conf.get("spark.task.cpus", "1") or 1)


def defaults(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration that lancestat prefers and a target may override."""
    threads = conf.get("spark.task.cpus", "1")
    chosen = {f"spark.executorEnv.{name}": threads for name in THREAD_VARIABLES}
    chosen |= {f"spark.executorEnv.{name}": value for name, value in ALLOCATOR_VARIABLES.items()}
    chosen["spark.ui.showConsoleProgress"] = "false"
    chosen[SETTING] = SCHEMA
    if master.startswith("local"):
        chosen["spark.ui.enabled"] = "false"
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        if _has_unix_sockets(conf):
            chosen["spark.python.unix.domain.socket.enabled"] = "true"
    return chosen


def _has_unix_sockets(conf: Mapping[str, str]) -> bool:
    # Over TCP the last bytes of a task wait 40 ms for an acknowledgement. A socket's path may have
    # about 100 bytes, half of which are Spark's, and so only the usual folder is trusted.
    options = [os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")]
    options += [value for key, value in conf.items() if key.endswith("JavaOptions")]
    is_elsewhere = any("java.io.tmpdir" in each for each in options)
    return hasattr(socket, "AF_UNIX") and sys.platform != "win32" and not is_elsewhere


def optimizer_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """What makes Spark use column statistics, as far as the configuration does not decide it."""
    wanted = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
    return {key: value for key, value in wanted.items() if key not in conf}


def with_attempts(master: str, attempts: str | None = None) -> str:
    """A local master that retries failed tasks as clusters do; Spark's own gives one chance."""
    found = _LOCAL.fullmatch(master)
    if found is None or found.group(2) is not None:
        return master
    return f"local[{found.group(1) or 1},{attempts or LOCAL_ATTEMPTS}]"
