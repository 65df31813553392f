"""A Spark Connect server on loopback, whose workers have lancestat from an archive alone."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

import lancestat
from lancestat.spec.model import remote_address
from tests.connect_client import FOLDER as CLIENT
from tests.interpreted import INTERPRETED

_PACKAGE = Path(lancestat.__file__).parent
_SECONDS_TO_START = 180
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class ConnectServer:
    """A server, its events as Spark logs them, and the archive that its workers have."""

    remote: str
    token: str
    events: Path
    archive: Path
    printed: Path
    pid: int


@contextmanager
def connect_server(folder: Path, before: ConnectServer | None = None) -> Iterator[ConnectServer]:
    """Start a server with two cores, and stop it in the end; `before` has gone, and comes back."""
    token = before.token if before else "qztoken" + secrets.token_hex(12)
    port = remote_address(before.remote)[1] if before else 0
    archive, events, printed = _archive(folder), folder / "events", folder / "server.log"
    events.mkdir()
    conf = {
        **INTERPRETED,
        "spark.master": "local[2,4]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # The server says which one it has: one that was found free may be taken before it starts.
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.submit.pyFiles": str(archive),
        "spark.local.dir": str(folder),
    }
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), *options, "--class", _CLASS, "spark-internal"]
    java = os.environ.get("JDK_JAVA_OPTIONS", "")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")},
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": str(_python(folder)),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "JDK_JAVA_OPTIONS": f"-XX:TieredStopAtLevel=1 {java}".strip(),
        # Workers are to find lancestat in the archive, and nowhere else.
        "PYTHONPATH": str(archive),
    }
    with (
        printed.open("wb") as output,
        subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            remote = f"sc://localhost:{_port(process, printed)}/;token={token}"
            yield ConnectServer(remote, token, events, archive, printed, process.pid)
        finally:
            process.terminate()


def _archive(folder: Path) -> Path:
    return Path(
        shutil.make_archive(str(folder / "lancestat-archive"), "zip", _PACKAGE.parent, "lancestat")
    )


def _python(folder: Path) -> Path:
    """Write a Python that has every installed library but lancestat."""
    libraries = folder / "libraries"
    libraries.mkdir()
    # Of several PySparks it has the one of the server.
    server = Path(pyspark.__file__).parents[1]
    for path in (server, CLIENT, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        for entry in Path(path).iterdir():
            if "lancestat" not in entry.name and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    python = folder / "python"
    base = getattr(sys, "_base_executable", sys.executable)
    python.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{libraries}:$PYTHONPATH"\nexec "{base}" -s "$@"\n'
    )
    python.chmod(0o755)
    return python


def _port(process: subprocess.Popen[bytes], printed: Path) -> int:
    deadline = time.monotonic() + _SECONDS_TO_START
    while process.poll() is None and time.monotonic() < deadline:
        started = re.search(r"Spark Connect server started at: \S+:(\d+)", printed.read_text())
        if started:
            return int(started[1])
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {printed.read_text(errors='replace')}")
