"""A Spark standalone cluster on loopback: a master and workers, each a process of its own.

Its machines have Spark and a bare Python; lancestat and what it needs come with the package.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyspark

from tests.integration.object_store import HOST
from tests.interpreted import short_lived

SPARK_HOME = Path(pyspark.__file__).parent
# As Spark's own scripts tell it to workers.
[SCALA] = (path.name.split("_")[1][:4] for path in SPARK_HOME.glob("jars/spark-core_*.jar"))
# As Spark's own scripts have it: the archive of classes is of this one.
[_SLF4J] = SPARK_HOME.glob("jars/slf4j-api-*.jar")
CLASS_PATH = f"{SPARK_HOME}/conf:{_SLF4J}:{SPARK_HOME}/jars/*"
WORKERS = 2
READY_WITHIN_SECONDS = 240


@dataclass
class Standalone:
    """A running cluster; `workers` are its live worker processes."""

    folder: Path
    url: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def python(self) -> Path:
        """The Python of the workers, to which nothing is installed."""
        return self.folder / "bare" / "bin" / "python3"

    def complete(self) -> None:
        """Start workers in place of those that were killed."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        starting = [self._start_worker() for _ in range(WORKERS - len(self.workers))]
        for log in starting:
            wait_until(partial(_is_registered, log), log)

    def _start_worker(self) -> Path:
        log = self.folder / f"worker-{len(list(self.folder.glob('worker-*')))}.log"
        words = ("--host", HOST, "--webui-port", "0", "-c", "1", "-m", "1g")
        work = ("-d", str(self.folder / "work"))
        worker = _daemon("worker.Worker", log, self.environment, *words, *work, self.url)
        self.workers.append(worker)
        return log

    @property
    def environment(self) -> dict[str, str]:
        """The variables of another machine."""
        return {
            "HOME": str(self.folder),
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_SCALA_VERSION": SCALA,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
            **short_lived(),
        }


def _is_registered(log: Path) -> bool:
    return b"Successfully registered" in log.read_bytes()


@contextmanager
def running_cluster(folder: Path) -> Iterator[Standalone]:
    """A cluster whose files are in `folder`; up when the block begins, gone when it ends."""
    venv.create(folder / "bare", symlinks=True)
    cluster = Standalone(folder)
    log = folder / "master.log"
    # The master says which port it has: one that was found free may be taken before it starts.
    words = ("--host", HOST, "--port", "0", "--webui-port", "0")
    master = _daemon("master.Master", log, cluster.environment, *words)
    try:
        wait_until(lambda: b"New state: ALIVE" in log.read_bytes(), log)
        [cluster.url] = set(re.findall(r"Starting Spark master at (spark://\S+)", log.read_text()))
        cluster.complete()
        yield cluster
    finally:
        for process in (*cluster.workers, master):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


def _daemon(
    name: str, log: Path, environment: dict[str, str], *words: str
) -> subprocess.Popen[bytes]:
    java = environment.get("JAVA_HOME")
    executable = f"{java}/bin/java" if java else str(shutil.which("java"))
    options = ("-Xmx160m", "-Dspark.master.rest.enabled=false")
    command = [executable, *options, "-cp", CLASS_PATH]
    with log.open("wb") as output:
        # It has a process group of its own, which its executors are in, too.
        return subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *words],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def wait_until(is_done: Callable[[], bool], log: Path) -> None:
    """Wait for a process that writes a log."""
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def lancestat(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a shell does, and return what it printed."""
    return python("-m", "lancestat", *words, folder=folder, **variables)


def python(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run this Python, with variables added to the environment."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **short_lived(), "SPARK_LOCAL_IP": HOST, **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
