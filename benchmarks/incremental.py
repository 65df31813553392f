"""Measure the cost of a run after a change and of a full analysis of the same table.

    python benchmarks/incremental.py                # TPC-H lineitem at scale 1, local[2]
    python benchmarks/incremental.py --tiny         # a smoke run at scale 0.001
    python benchmarks/incremental.py --data FOLDER  # with a lineitem.parquet at hand

Runs read in threads of this process at first, as `lancestat run` does, and then as jobs of one
Spark session. Either is warmed by two full analyses, so that the figures are those of the work and
not of Spark's start. Each change is made several times and followed by a run, from loading the
project to the record of the run; medians are printed, with the rows that the run read.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
from lineitem import generate, parse_arguments, write_lance
from measure import timed

import lancestat
from lancestat.runs.result import NodeResult
from lancestat.spark.session import start_session

FRAGMENTS = 16
WARM_UPS = 2
PROJECT = """
name: benchmark
default_target: dev
targets: {{dev: {{state: .lancestat/state, spark: {{master: "local[{cores}]"}}}}}}
"""
TABLE = "tables: [{name: lineitem, uri: lineitem.lance}]"


def main() -> None:
    """Prepare the table, change it in turns, print."""
    arguments = parse_arguments(__doc__, runs=3)
    warm_ups, runs = (0, 1) if arguments.tiny else (WARM_UPS, arguments.runs)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        parquet = arguments.data or generate(arguments.scale, Path(name))
        in_process, on_spark = Path(name, "in_process"), Path(name, "on_spark")
        for folder in (in_process, on_spark):
            make_project(folder, parquet / "lineitem.parquet", arguments.cores)
        print("in this process")
        show_all(in_process, warm_ups, runs)
        print("on Spark")
        spark = start_session(lancestat.Project.load(on_spark).spec.target, "benchmark")
        show_all(on_spark, warm_ups, runs)
        spark.stop()


def make_project(folder: Path, parquet: Path, cores: int) -> None:
    """Write a project with its table."""
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT.format(cores=cores))
    (folder / "specs" / "tables.yml").write_text(TABLE)
    write_lance(parquet, folder / "lineitem.lance", fragments=FRAGMENTS)


def show_all(folder: Path, warm_ups: int, runs: int) -> None:
    """Print a line for a full analysis, and one for each change."""
    for _ in range(warm_ups):
        run(folder, full_refresh=True)
    full = measure(folder, lambda: None, runs, full_refresh=True)
    show("full analysis", *full, full[0])
    for title, change in changes(str(folder / "lineitem.lance")).items():
        show(title, *measure(folder, change, runs), full[0])


def changes(uri: str) -> dict[str, Callable[[], object]]:
    """The changes by title; each can be made again and again."""
    first = lance.dataset(uri)
    hundredth = first.head(first.count_rows() // 100)

    def compact() -> None:
        dataset = lance.dataset(uri)
        # The target grows each time, so that there is something to rewrite.
        target = 2 * dataset.count_rows() // len(dataset.get_fragments())
        dataset.optimize.compact_files(target_rows_per_fragment=target)

    def index() -> None:
        lance.dataset(uri).create_scalar_index("l_linenumber", "BITMAP", replace=True)

    return {
        "1 % of the rows appended": lambda: lance.write_dataset(hundredth, uri, mode="append"),
        "compacted": compact,
        "indexed": index,
        "a property set": lambda: lance.dataset(uri).update_config({"owner": "benchmark"}),
    }


def measure(
    folder: Path, change: Callable[[], object], runs: int, *, full_refresh: bool = False
) -> tuple[float, int]:
    """Median seconds of a run after a change, and the most rows that one read."""
    seconds, rows = [], 0
    for _ in range(runs):
        change()
        elapsed, result = timed(lambda: run(folder, full_refresh=full_refresh))
        seconds.append(elapsed)
        rows = max(rows, result.rows_scanned or 0)
    return statistics.median(seconds), rows


def run(folder: Path, *, full_refresh: bool = False) -> NodeResult:
    """One `lancestat run` in this process's Spark session."""
    [node] = lancestat.Project.load(folder).run(full_refresh=full_refresh).nodes
    assert node.message is None, node.message
    return node


def show(title: str, seconds: float, rows: int, full: float) -> None:
    """Print one line."""
    print(f"{title:<28} {seconds:8.3f} s {seconds / full:8.1%} of full {rows:>12,} rows read")


if __name__ == "__main__":
    main()
