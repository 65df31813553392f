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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults import clocks, crowds, disks, kills, stores
from tests.faults.bench import Outcome, bench


@dataclass(frozen=True)
class Kind:
    """A kind of trial: its subject, its fault, and the share of each command."""

    bench: Callable[[Path], AbstractContextManager[Any]]
    try_one: Callable[[Any, str, random.Random], Outcome]
    shares: Mapping[str, int]


KINDS: dict[str, Kind] = {
    kills.KIND: Kind(bench, kills.kill, kills.SHARES),
    disks.KIND: Kind(disks.disk_bench, disks.fill, disks.SHARES),
    stores.KIND: Kind(stores.store_bench, stores.fail, stores.SHARES),
    clocks.KIND: Kind(clocks.clock_bench, clocks.shift, clocks.SHARES),
    crowds.KIND: Kind(crowds.crowd_bench, crowds.crowd, crowds.SHARES),
}


@dataclass(frozen=True)
class Trial:
    """One fault; `repr` of its name seeds all that is random about it."""

    kind: str
    command: str
    seed: int
    number: int

    @property
    def rng(self) -> random.Random:
        """All chance of this trial."""
        return random.Random(f"{self.kind}/{self.command}/{self.seed}/{self.number}")

    @property
    def repeat(self) -> str:
        """The options that try this again, and nothing else."""
        kind, command = self.kind.replace(" ", "-"), self.command
        return f"--repeat '{kind}/{command}/{self.number}' --seed {self.seed}"


@dataclass(frozen=True)
class Result:
    """The outcome of a trial: whether the fault struck before the command ended, and problems."""

    kind: str
    command: str
    effective: bool
    problems: tuple[str, ...] = ()
    repeat: str = ""
    seconds: float = 0.0


def trials(kind: str, count: int, seed: int) -> list[Trial]:
    """So many trials, divided among the commands of a kind by their shares."""
    shares = KINDS[kind].shares
    commands = random.Random(f"{kind}/{seed}").choices(
        list(shares), weights=list(shares.values()), k=count
    )
    return [Trial(kind, command, seed, number) for number, command in enumerate(commands)]


def carry_out(wanted: Sequence[Trial], seconds: float = float("inf")) -> Iterator[Result]:
    """Results of trials of one kind, until the time is up."""
    kind = KINDS[wanted[0].kind]
    deadline = time.monotonic() + seconds
    folder = Path(tempfile.mkdtemp(prefix="lancestat-faults-", dir=_memory()))
    try:
        with kind.bench(folder) as made:
            for trial in wanted:
                if time.monotonic() > deadline:
                    return
                began = time.monotonic()
                struck, problems = kind.try_one(made, trial.command, trial.rng)
                seconds = time.monotonic() - began
                yield Result(
                    trial.kind, trial.command, struck, tuple(problems), trial.repeat, seconds
                )
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


def table(results: Iterable[Result]) -> str:
    """Counts per kind and command, as Markdown."""
    rows: dict[tuple[str, str], list[int]] = {}
    for result in results:
        for key in ((result.kind, result.command), (result.kind, "")):
            counts = rows.setdefault(key, [0, 0, 0])
            counts[0] += 1
            counts[1] += result.effective
            counts[2] += bool(result.problems)
    lines = ["| fault | command | injected | effective | findings |", "|---|---|--:|--:|--:|"]
    for kind in KINDS:
        of_kind = sorted(key for key in rows if key[0] == kind and key[1])
        for _, command in of_kind:
            lines.append(_line(kind, f"`{command}`", rows[kind, command]))
        if of_kind:
            lines.append(_line(f"**{kind}**", "all", rows[kind, ""]))
    return "\n".join(lines) + "\n"


def _line(kind: str, command: str, counts: list[int]) -> str:
    return f"| {kind} | {command} | " + " | ".join(f"{count:,}" for count in counts) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
