"""SIGKILL at random moments, and before each of the steps by which a command changes files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tests.faults.bench import Bench, Outcome
from tests.faults.children import PATIENCE_SECONDS, REPOSITORY
from tests.faults.commands import COMMANDS

KIND = "kills"
# Of 100 kills.
SHARES = {
    "run": 37,
    "run of joins": 14,
    "retry": 7,
    "gc": 10,
    "docs": 10,
    "plan --out": 5,
    "init": 4,
    "schema --out": 4,
    "comment": 4,
    "run on Spark": 5,
}
ON_SPARK = "run on Spark"
# Functions that a run on Spark calls: as it begins, around its jobs, and as it ends, which it gets
# to at the latest.
_END = "lancestat.runs.execute RunRecorder record"
POINTS = (
    _END,
    "lancestat.spark.jobs ClassicJobs _collected",
    "lancestat.tables.run TableRunner _publish",
    "lancestat.joins.run JoinRunner _join",
    "lancestat.runs.execute RunRecorder begin",
)
# How long other nodes of the run, and Spark, may go on while one waits at its point.
_GOES_ON_SECONDS = 1.5
# The command, in a process that waits at a point: that comes first, then a file to write there.
_WAITING = (
    "import sys; from tests.faults.kills import wait_at; wait_at(*sys.argv[1:3]); "
    "from lancestat.cli.main import main; sys.argv[1:3] = []; main()"
)


def kill(bench: Bench, kind: str, rng: random.Random) -> Outcome:
    """Kill one command, and return the problems of the project afterwards."""
    on_spark = kind == ON_SPARK
    name = "run" if on_spark else kind
    measure(bench, name)
    bench.renew()
    command = COMMANDS[name](bench, rng)
    arguments = command.prepare()
    killed = (_kill_spark if on_spark else _kill)(bench, arguments, bench.usual[name], rng)
    return killed, command.problems()


def _kill(bench: Bench, arguments: list[str], usual: tuple[float, int], rng: random.Random) -> bool:
    seconds, steps = usual
    environment = {**bench.shop.environment(), **bench.more}
    kill_at = rng.randint(1, steps) if steps and rng.random() < 0.5 else None
    child = bench.server.start([arguments], bench.shop.folder, environment, kill_at)
    if kill_at is None:
        time.sleep(rng.uniform(0, seconds))
        child.kill()
    return child.wait().killed


def wait_at(point: str, mark: str) -> None:
    """Let calls of a function write a file and go no further, until this process is killed."""

    def wait(*_: object, **__: object) -> None:
        Path(mark).touch()
        time.sleep(PATIENCE_SECONDS)

    for name in (point, _END):
        module, owner, method = name.split()
        kind = getattr(import_module(module), owner)
        assert callable(getattr(kind, method))
        setattr(kind, method, wait)


def _kill_spark(
    bench: Bench, arguments: list[str], usual: tuple[float, int], rng: random.Random
) -> bool:
    """Kill a process that waits at one of the points, and Spark with it."""
    environment = {**os.environ, **bench.shop.environment(), "PYTHONPATH": str(REPOSITORY)}
    mark = bench.shop.folder / "reached"
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING, rng.choice(POINTS), str(mark), *arguments],
        cwd=bench.shop.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not mark.exists() and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, _GOES_ON_SECONDS))
        is_reached = mark.exists() and run.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        _wait_for_group(run)
    mark.unlink(missing_ok=True)
    return is_reached


def _wait_for_group(run: subprocess.Popen[bytes]) -> None:
    """Wait until no process of a killed group runs: until then Spark's files are in use."""
    run.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and any(_running(run.pid)):
        time.sleep(0.05)


def _running(group: int) -> Iterator[str]:
    """Yield the status of each process of a group that is no zombie."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            status = path.read_text(encoding="utf-8", errors="replace")
            state, _, of_group, *_ = status.rpartition(")")[2].split()
            if state != "Z" and int(of_group) == group:
                yield status


def measure(bench: Bench, command: str) -> None:
    """Measure the duration and the number of steps of an undisturbed command."""
    if command in bench.usual:
        return
    bench.renew()
    made = COMMANDS[command](bench, random.Random(f"{KIND}/{command}/0/0"))
    end = bench.run(made.prepare())
    assert end.code == 0, end.output
    assert end.steps is not None
    bench.usual[command] = end.seconds, end.steps
    assert made.problems() == []
