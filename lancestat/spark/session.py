"""Starts Spark as a target declares it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import RunError
from lancestat.spark.java import find_java
from lancestat.spark.scan_task import THREAD_VARIABLES
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_ATTEMPTS = 4

_LOCAL = re.compile(r"local(?:\[([^\],]+)(?:,\s*(\d+))?\])?")
_LAST_LINES = 3


def start_session(target: Target, app_name: str, *, quiet: bool = True) -> SparkSession:
    """The Spark session of a target, started unless this process has one.

    The target's configuration is final; around it, lancestat turns off the console's progress bar,
    the user interface of a local session, and threads beyond a task's cores in its workers. Storage
    options never become Spark properties.

    Args:
        target: Master (None: spark-submit's, else `local[*]`) and configuration.
        app_name: As Spark shows it.
        quiet: Keep what the JVM prints to itself, unless it fails to start.

    Raises:
        RunError: no Java (LS520), too old a Java (LS521), or the JVM did not start (LS522).
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._active_spark_context is None and SparkContext._gateway is None:
        _start_jvm(target, quiet)
    master = target.spark_master or target.spark_conf.get("spark.master")
    if master is None:
        master = SparkConf().get("spark.master", "local[*]")
    conf = {**defaults(master or "local[*]", target.spark_conf), **target.spark_conf}
    conf["spark.master"] = with_attempts(master or "local[*]", conf.get("spark.task.maxFailures"))
    builder = SparkSession.builder.appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise _not_started(str(error)) from None
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
    if not isinstance(session, SparkSession) or not hasattr(session, "_jsc"):
        raise RunError(
            "LS523",
            "the active session is a Spark Connect session, and lancestat needs a classic one",
            hint="stop it, or run lancestat in a process of its own",
        )
    return None if session._jsc.sc().isStopped() else session


def defaults(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration that lancestat prefers and a target may override."""
    threads = conf.get("spark.task.cpus", "1")
    chosen = {f"spark.executorEnv.{name}": threads for name in THREAD_VARIABLES}
    chosen["spark.ui.showConsoleProgress"] = "false"
    if master.startswith("local"):
        chosen["spark.ui.enabled"] = "false"
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
    return chosen


def with_attempts(master: str, attempts: str | None = None) -> str:
    """A local master that retries failed tasks as clusters do; Spark's own gives one chance."""
    found = _LOCAL.fullmatch(master)
    if found is None or found.group(2) is not None:
        return master
    return f"local[{found.group(1) or 1},{attempts or LOCAL_ATTEMPTS}]"


def _start_jvm(target: Target, quiet: bool) -> None:
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    find_java()
    with tempfile.TemporaryFile() as log, _submit_arguments(target), warnings.catch_warnings():
        # Lance warns of every fork; this one becomes another program at once.
        warnings.filterwarnings("ignore", message=".*fork", category=UserWarning)
        try:
            output = {"stdout": log, "stderr": subprocess.STDOUT} if quiet else None
            gateway = launch_gateway(popen_kwargs=output)
        except Exception as error:
            log.seek(0)
            raise _not_started(log.read().decode(errors="replace") or str(error)) from None
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _submit_arguments(target: Target) -> Iterator[None]:
    # Properties that only count before the JVM starts, such as its memory, have to reach
    # spark-submit. A file that only its owner may read keeps their values off the command line,
    # which everyone can list.
    given = os.environ.get("PYSPARK_SUBMIT_ARGS")
    conf = dict(target.spark_conf)
    if target.spark_master is not None:
        conf["spark.master"] = target.spark_master
    with tempfile.TemporaryDirectory(prefix="lancestat-") as folder:
        path = Path(folder) / "spark.properties"
        path.touch(mode=0o600)
        lines = (f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
        path.write_text("".join(lines), encoding="utf-8")
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--properties-file '{path}' --load-spark-defaults {given or 'pyspark-shell'}"
        )
        try:
            yield
        finally:
            if given is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = given


def _escaped(text: str) -> str:
    # java.util.Properties: backslashes escape, and so these characters stand for themselves.
    text = re.sub(r"([\\ :=#!])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def _not_started(output: str) -> RunError:
    noise = re.compile(r"^\s+at |^WARNING|^Using Spark's|^$|WARN |\bINFO ")
    lines = [line.strip() for line in output.splitlines() if not noise.search(line)]
    causes = [line for line in lines if re.search("error|exception|unable|fail", line, re.I)]
    said = " ".join((causes or lines)[:_LAST_LINES]) or "it ended without a word"
    return RunError(
        "LS522",
        f"Spark did not start: {said}",
        hint="check the target's spark section, and `lancestat debug`",
    )
