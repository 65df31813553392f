"""Starts the JVM of a Spark driver, quietly, and says why when it does not start."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lancestat.errors import RunError
from lancestat.lake.clean import clean
from lancestat.lake.temporary import temporary_folder
from lancestat.spark.java import find_java

_LAST_LINES = 3
_NOISE = re.compile(r"^\s+at |^WARNING|^NOTE: Picked up|^Using Spark's|^$|WARN |\bINFO ")
_CAUSE = re.compile(r"error|exception|unable|fail", re.IGNORECASE)
_SECRET = re.compile(r"secret|password|token|key|credential", re.IGNORECASE)

# The second compiler of the JVM pays off after minutes; in a run's short life it takes the
# processor from the workers: 0.8 s of 3.7 s for an analysis of TPC-H lineitem at scale 1.
_FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"


def start_jvm(
    master: str | None, conf: Mapping[str, str], *, quiet: bool, is_short_lived: bool
) -> None:
    """Start the JVM that PySpark's next session will use, unless spark-submit started it.

    Args:
        master: As configured, None when spark-submit's own configuration decides.
        conf: What the target configures. It reaches the JVM in a file that only its owner may read,
            since everyone can list command lines.
        quiet: Keep what the JVM prints.
        is_short_lived: Do not optimise code for a long life; local masters only.

    Raises:
        RunError: no Java (LS520), too old a Java (LS521), or it ended at once (LS522).
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    find_java()
    properties = {**conf, **({"spark.master": master} if master else {})}
    options = os.environ.get("JDK_JAVA_OPTIONS", "")
    if is_short_lived and (master is None or master.startswith("local")):
        # Options of the command line come after these, so a user's own choice wins.
        options = f"{_FIRST_COMPILER_ONLY} {options}".strip()
    with (
        tempfile.TemporaryFile() as log,
        _properties_file(properties) as path,
        _environment(
            JDK_JAVA_OPTIONS=options,
            PYSPARK_SUBMIT_ARGS=f"--properties-file '{path}' --load-spark-defaults "
            + os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"),
        ),
        warnings.catch_warnings(),
    ):
        # Lance warns of every fork; this one becomes another program at once.
        warnings.filterwarnings("ignore", message=".*fork", category=UserWarning)
        try:
            output = {"stdout": log, "stderr": subprocess.STDOUT} if quiet else None
            gateway = launch_gateway(popen_kwargs=output)
        except Exception as error:
            log.seek(0)
            said = log.read().decode(errors="replace") or str(error)
            raise not_started(said, conf) from None
    SparkContext._ensure_initialized(gateway=gateway)


def not_started(output: str, conf: Mapping[str, str]) -> RunError:
    """The error (LS522) that names the cause in what the JVM printed, without secrets of `conf`."""
    lines = [line.strip() for line in output.splitlines() if not _NOISE.search(line)]
    causes = [line for line in lines if _CAUSE.search(line)]
    said = " ".join((causes or lines)[:_LAST_LINES]) or "it ended without a word"
    secrets = [value for key, value in conf.items() if _SECRET.search(key)]
    return RunError(
        "LS522",
        f"Spark did not start: {clean(said, secrets)}",
        hint="check the target's spark section, and `lancestat debug`",
    )


@contextmanager
def _properties_file(properties: Mapping[str, str]) -> Iterator[Path]:
    with temporary_folder() as folder:
        path = folder / "spark.properties"
        path.touch(mode=0o600)
        lines = (f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())
        path.write_text("".join(lines), encoding="utf-8")
        yield path


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update({name: value for name, value in changes.items() if value})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _escaped(text: str) -> str:
    # java.util.Properties: backslashes escape, and so these characters stand for themselves.
    text = re.sub(r"([\\ :=#!])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
