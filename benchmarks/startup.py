"""Measure `lancestat run` from the shell beside plain PySpark, which starts, runs a job and stops.

    python benchmarks/startup.py                # TPC-H lineitem at scale 1.4, of about 1 GB
    python benchmarks/startup.py --tiny         # a smoke run at scale 0.001
    python benchmarks/startup.py --data FOLDER  # with a lineitem.parquet at hand

Then a table of many small fragments, in threads of the process and on Spark.

The processes take turns, so that other work on the machine meets all of them; medians are printed,
with the fastest and the slowest. Spark starts with the archive of `lancestat debug --warm-up` where
there is one. Then the phases of the runs, in a process that takes its own times.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import lance
from lineitem import generate, make_parser, write_lance
from measure import LANCESTAT, process

from lancestat.spark.jvm import find_archive, find_java

PROJECT = """
name: benchmark
default_target: dev
targets:
  dev: {{state: state/dev, spark: {{master: "local[{cores}]"}}}}
  spark: {{state: state/spark, spark: {{master: "local[{cores}]", min_bytes: 0}}}}
  process: {{state: state/process, spark: {{master: "local[{cores}]", min_bytes: 1TB}}}}
"""
APPENDED_ROWS = 600
FRAGMENTS = 16
# Fragments of so many rows; with 16 columns each.
SMALL_FRAGMENTS, SMALL_ROWS = {False: 10_000, True: 20}, 50
PLAIN = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[CORES]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
assert spark.sparkContext.parallelize(range(8), 2).map(lambda n: n).sum() == 28
spark.stop()
"""
# Every batch of the table, as the reading side of analyze.py: a thread per core in Lance.
READING = """
import lance
for _ in lance.dataset("lineitem.lance").scanner().to_batches(): pass
"""
PHASES = """
import json, time
times = {}
def phase(name, action):
    began = time.perf_counter()
    result = action()
    times[name] = time.perf_counter() - began
    return result
def imported():
    import lancestat.runs.execute
    from lancestat.project import Project
    return Project
def libraries():
    import lance, pyarrow
phase("importing Lance and Arrow", libraries)
Project = phase("importing lancestat", imported)
project = phase("loading the YAML", Project.load)
plan = phase("planning", lambda: project.plan())
phase("working", lambda: project.run(plan, ends_process=True))
print(json.dumps(times))
"""


def main() -> None:
    """Prepare a table, run in turns, print."""
    parser = make_parser(__doc__, runs=5)
    parser.set_defaults(scale="1.4")
    arguments = parser.parse_args()
    runs = 1 if arguments.tiny else arguments.runs
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        parquet = arguments.data or generate("0.001" if arguments.tiny else arguments.scale, folder)
        prepare(folder, parquet, arguments.cores)
        python = [sys.executable, "-c"]
        run = [LANCESTAT, "run"]
        turns: dict[str, tuple[Callable[[Path], object], list[str]]] = {
            "plain Spark": (keep, [*python, PLAIN.replace("CORES", str(arguments.cores))]),
            "reading alone": (keep, [*python, READING]),
            "first run, on Spark": (forget, [*run, "--target", "spark"]),
            "first run": (forget, run),
            "nothing to do": (keep, run),
            f"{APPENDED_ROWS} rows appended": (append, run),
        }
        seconds: dict[str, list[float]] = {title: [] for title in turns}
        for _ in range(runs):
            for title, (change, command) in turns.items():
                change(folder)
                seconds[title].append(process(command, folder).seconds)
        for title, times in seconds.items():
            show(title, times)
        small_fragments(folder, runs, is_tiny=arguments.tiny)
        print(f"\nclass archive: {'yes' if find_archive(find_java()) else 'none'}")
        for title in list(turns)[3:4] if arguments.tiny else list(turns)[3:]:
            turns[title][0](folder)
            show_phases(title, [*python, PHASES], folder)


def prepare(folder: Path, parquet: Path, cores: int) -> None:
    """A project over one table, as it was before its first run."""
    write_lance(parquet / "lineitem.parquet", folder / "first.lance", fragments=FRAGMENTS)
    (folder / "lancestat_project.yml").write_text(PROJECT.format(cores=cores))
    (folder / "specs").mkdir()
    (folder / "specs" / "t.yml").write_text("tables: [{name: lineitem, uri: lineitem.lance}]")
    forget(folder)


def show(title: str, seconds: list[float]) -> None:
    """Print the median, the fastest and the slowest."""
    spread = f"({min(seconds):.2f} to {max(seconds):.2f})"
    print(f"{title:<28} {statistics.median(seconds):8.2f} s   {spread}")


def small_fragments(folder: Path, runs: int, *, is_tiny: bool) -> None:
    """Print what a first run over many small fragments takes in its process, and on Spark."""
    fragments = SMALL_FRAGMENTS[is_tiny]
    rows = lance.dataset(str(folder / "first.lance")).head(fragments * SMALL_ROWS)
    lance.write_dataset(rows, str(folder / "small.lance"), max_rows_per_file=SMALL_ROWS)
    specs = folder / "specs" / "t.yml"
    declared = specs.read_text()
    specs.write_text("tables: [{name: small, uri: small.lance, publish: none}]")
    print(f"\n{fragments:,} fragments of {SMALL_ROWS} rows")
    run = [LANCESTAT, "run", "--full-refresh", "--target"]
    # A smoke run starts Spark above.
    for target in ("process",) if is_tiny else ("process", "spark"):
        show(target, [process([*run, target], folder).seconds for _ in range(runs)])
    specs.write_text(declared)


def keep(folder: Path) -> None:
    """Change nothing."""


def forget(folder: Path) -> None:
    """Put the table back that no run has seen."""
    shutil.rmtree(folder / "state", ignore_errors=True)
    shutil.rmtree(folder / "lineitem.lance", ignore_errors=True)
    shutil.copytree(folder / "first.lance", folder / "lineitem.lance")


def append(folder: Path) -> None:
    """Add rows to the table."""
    dataset = lance.dataset(str(folder / "lineitem.lance"))
    lance.write_dataset(dataset.head(APPENDED_ROWS), dataset.uri, mode="append")


def show_phases(title: str, command: list[str], folder: Path) -> None:
    """Print where the time of a run goes."""
    ended = process(command, folder)
    times: Mapping[str, float] = json.loads(ended.stdout)
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:<26} {seconds:8.2f} s")
    print(f"  {'Python itself':<26} {ended.seconds - sum(times.values()):8.2f} s")


if __name__ == "__main__":
    main()
