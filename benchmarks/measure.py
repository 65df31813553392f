"""Clocks, memory peaks and child processes of the benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

Measures = Mapping[str, float]
# A part prints its results at once; a case is measured in its own process.
Part = Callable[[Path, bool], Iterator[tuple[str, float]]]
Case = Callable[[Path, bool], Measures]

# The virtual environment's own, as a user would start it.
LANCESTAT = str(Path(sys.executable).with_name("lancestat"))


@dataclass(frozen=True)
class Ended:
    """A process that ended well."""

    seconds: float
    peak_megabytes: float
    stdout: str


def process(command: Sequence[str], folder: Path) -> Ended:
    """Run a command in a folder and wait for it."""
    with tempfile.TemporaryFile("w+") as out:
        began = time.perf_counter()
        started = subprocess.Popen(command, cwd=folder, stdout=out)
        _, status, usage = os.wait4(started.pid, 0)
        seconds = time.perf_counter() - began
        started.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        stdout = out.read()
    if started.returncode:
        sys.exit(f"{' '.join(command)} gave exit code {started.returncode}\n{stdout}")
    return Ended(seconds, usage.ru_maxrss / 1024, stdout)


def median_seconds(command: Sequence[str], folder: Path, runs: int) -> float:
    """The median of several runs, after one that warms the caches; or the seconds of one."""
    if runs > 1:
        process(command, folder)
    return statistics.median(process(command, folder).seconds for _ in range(runs))


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds on the wall clock, and the result."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


class Process(NamedTuple):
    """A running process."""

    cpu_seconds: float
    peak_megabytes: float
    is_worker: bool


def processes() -> list[Process]:
    """This process, Spark's JVM and its Python processes."""
    parents: dict[int, int] = {}
    by_pid: dict[int, Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text(encoding="ascii", errors="replace")
            # The name, in parentheses, may hold spaces.
            times = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            is_worker = b"pyspark.worker" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        fields = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
        parents[int(folder.name)] = int(fields["PPid"][0])
        ticks = int(times[11]) + int(times[12])
        by_pid[int(folder.name)] = Process(
            ticks / os.sysconf("SC_CLK_TCK"),
            int(fields.get("VmHWM", ["0"])[0]) / 1024,
            is_worker,
        )
    return [process for pid, process in by_pid.items() if descends(pid, parents)]


def descends(pid: int, parents: dict[int, int]) -> bool:
    """Return whether a process is this one or descends from it."""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def peak_megabytes() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def spark_parser(doc: str, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark on Spark."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a size that only shows that it runs")
    parser.add_argument("--runs", type=int, default=runs, help="counted runs")
    parser.add_argument("--cores", type=int, default=2, help="cores of the local Spark")
    return parser


# Of the benchmark that runs.
_cases: Mapping[str, Case] = {}


def run_case(name: str, folder: Path, tiny: bool) -> Measures:
    """Run a case of this benchmark, in a process of its own unless the sizes are tiny."""
    if tiny:
        return _cases[name](folder, tiny)
    command = [sys.executable, sys.argv[0], "--case", name, "--folder", str(folder)]
    measures: Measures = json.loads(process([*command, *["--tiny"] * tiny], Path.cwd()).stdout)
    return measures


def run(doc: str, parts: Mapping[str, Part], cases: Mapping[str, Case]) -> None:
    """Run the parts that the command line selects, or a case for `run_case`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="all by default")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it runs")
    parser.add_argument("--case", choices=cases, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - parts.keys():
        parser.error(f"there is no part {min(unknown)}: there are {', '.join(parts)}")
    if arguments.case:
        print(json.dumps(cases[arguments.case](arguments.folder, arguments.tiny)))
        return
    global _cases
    _cases = cases
    for part in arguments.parts or parts:
        with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as folder:
            for name, value in parts[part](Path(folder), arguments.tiny):
                print(f"{name:<68} {value:>10,.3f}", flush=True)
        print()


def run_parts(doc: str, parts: Mapping[str, Case]) -> None:
    """Run all parts over one folder, each in its own process, or the selected one."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it runs")
    parser.add_argument("--case", choices=parts, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(parts[arguments.case](arguments.folder, arguments.tiny)))
        return
    global _cases
    _cases = parts
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as folder:
        for part in parts:
            for name, value in run_case(part, Path(folder), arguments.tiny).items():
                print(f"{name:<66} {value:>10,.3f}", flush=True)
