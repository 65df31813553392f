"""Faults, counted: `python -m tests.faults --kills 1000 --full-disks 200 --seed 7`.

Prints a table of what was tried, and exits with 1 when anything that is promised did not hold; the
options that try that again are printed with it. With --results FILE each trial is a line of JSON
there, so that a table can be made of several runs: --table FILE...
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults import clocks, crowds, disks, kills, stores
from tests.faults.bench import bench
from tests.faults.tally import KINDS, Result, Trial, table


@dataclass(frozen=True)
class Kind:
    """A kind of trial: its subject, its fault, and the share of each command."""

    bench: Callable[[Path], AbstractContextManager[Any]]
    try_one: Callable[[Any, Trial], Result]
    shares: Mapping[str, int]


BY_KIND: dict[str, Kind] = {
    kills.KIND: Kind(bench, kills.kill, kills.SHARES),
    disks.KIND: Kind(disks.disk_bench, disks.fill, disks.SHARES),
    stores.KIND: Kind(stores.store_bench, stores.fail, stores.SHARES),
    clocks.KIND: Kind(clocks.clock_bench, clocks.shift, clocks.SHARES),
    crowds.KIND: Kind(crowds.crowd_bench, crowds.crowd, crowds.SHARES),
}


def trials(kind: str, count: int, seed: int) -> list[Trial]:
    """So many trials, divided among the commands of a kind by their shares."""
    shares = BY_KIND[kind].shares
    commands = random.Random(f"{kind}/{seed}").choices(
        list(shares), weights=list(shares.values()), k=count
    )
    return [Trial(kind, command, seed, number) for number, command in enumerate(commands)]


def carry_out(wanted: Sequence[Trial], seconds: float = float("inf")) -> Iterator[Result]:
    """Results of trials of one kind, until the time is up."""
    kind = BY_KIND[wanted[0].kind]
    deadline = time.monotonic() + seconds
    folder = Path(tempfile.mkdtemp(prefix="lancestat-faults-", dir=_memory()))
    try:
        with kind.bench(folder) as made:
            for trial in wanted:
                if time.monotonic() > deadline:
                    return
                yield kind.try_one(made, trial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """Return a folder in memory: thousands of commits would wait for the fsyncs of a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(arguments: Sequence[str]) -> int:
    """Run the requested trials; return 1 when there are findings."""
    options = _parsed(arguments)
    if options.table:
        lines = [line for path in options.table for line in path.read_text().splitlines()]
        sys.stdout.write(table(Result(**json.loads(line)) for line in lines))
        return 0
    wanted = _wanted(options)
    if disks.KIND in wanted:
        code = disks.enter(arguments)
        if code is not None:
            return code
    results: list[Result] = []
    for kind in wanted.values():
        for result in carry_out(kind, options.minutes * 60):
            results.append(result)
            if options.results:
                with options.results.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            for problem in result.problems:
                sys.stderr.write(f"{result.repeat}\n  {problem}\n")
            sys.stderr.flush()
    sys.stdout.write(table(results))
    return int(any(result.problems for result in results))


def _wanted(options: argparse.Namespace) -> dict[str, list[Trial]]:
    if options.repeat:
        kind, command, number = options.repeat.rsplit("/", 2)
        kind = kind.replace("-", " ")
        return {kind: [Trial(kind, command, options.seed, int(number))]}
    counts = {kind: getattr(options, kind.replace(" ", "_")) for kind in KINDS}
    return {kind: trials(kind, count, options.seed) for kind, count in counts.items() if count}


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    for kind in KINDS:
        parser.add_argument(f"--{kind.replace(' ', '-')}", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each kind")
    parser.add_argument("--repeat", metavar="KIND/COMMAND/NUMBER")
    parser.add_argument("--results", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
