"""SIGKILL at random moments, and before each of the steps by which a command changes files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

from tests.faults.bench import Bench, Outcome
from tests.faults.children import REPOSITORY
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
# From the start of Python until after the end of most runs, on two cores that others use, too.
_SPARK_SECONDS = (1.0, 22.0)


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


def _kill_spark(
    bench: Bench, arguments: list[str], usual: tuple[float, int], rng: random.Random
) -> bool:
    """Kill a process as users start it, and Spark with it."""
    environment = {**os.environ, **bench.shop.environment(), "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-m", "lancestat", *arguments],
        cwd=bench.shop.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        try:
            run.wait(rng.uniform(*_SPARK_SECONDS))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return True
    return False


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
