"""SIGKILL at random moments, and before each of the steps by which a command changes files."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.bench import Bench
from tests.faults.commands import COMMANDS
from tests.faults.tally import Result, Trial

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


def kill(bench: Bench, trial: Trial) -> Result:
    """Kill one command; what the project is then, and what becomes of it."""
    began = time.monotonic()
    rng = trial.rng
    measure(bench, trial.command)
    bench.renew()
    command = COMMANDS[trial.command](bench, rng)
    arguments = command.prepare()
    seconds, steps = bench.usual[trial.command]
    folder, environment = bench.shop.folder, bench.shop.environment()
    if rng.random() < 0.5:
        child = bench.server.start([arguments], folder, environment, rng.randint(1, steps))
    else:
        child = bench.server.start([arguments], folder, environment)
        time.sleep(rng.uniform(0, seconds))
        child.kill()
    ended = child.wait()
    problems = command.problems()
    return Result(
        KIND,
        trial.command,
        ended.killed,
        tuple(problems),
        trial.repeat,
        time.monotonic() - began,
    )


def measure(bench: Bench, command: str) -> None:
    """How long a command takes and how many steps it has when nothing disturbs it."""
    if command in bench.usual:
        return
    bench.renew()
    arguments = COMMANDS[command](bench, Trial(KIND, command, 0, 0).rng).prepare()
    ended = bench.run(arguments)
    assert ended.code == 0, ended.output
    assert ended.steps
    bench.usual[command] = ended.seconds, ended.steps


def place(folder: Path) -> Path:
    """Memory rather than a disk, which the fsyncs of thousands of commits would wait for."""
    return folder
