"""Statistics of a table of many columns, beside reading it.

    python benchmarks/wide.py           # 200,000 rows of 1,200 columns in 20 fragments
    python benchmarks/wide.py --tiny    # a smoke run

Two threads analyze the fragments: some columns at a time, as `lancestat run` does, and all columns
of a row together, as it does where there are few. They are read with pylance alone, too.
The sides take turns; medians of their seconds and of those of all processors are printed. Both ways
have the same partials.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import lance
import numpy as np
import pyarrow as pa
from measure import timed

import lancestat.tables.analyze
import lancestat.tables.work_items
from lancestat import Project
from lancestat.lake.fingerprint import Fingerprint
from lancestat.spec.model import Target
from lancestat.tables.action import TableAction
from lancestat.tables.analyze import ProcessScanner
from lancestat.tables.work_items import most_divisions

FRAGMENTS, CORES = 20, 2
PROJECT = "name: benchmark\ndefault_target: dev\ntargets: {dev: {state: state}}\n"
Partials = Mapping[tuple[Fingerprint, ...], Mapping[str, bytes]]


def table(rows: int, columns: int) -> pa.Table:
    """Return integers, floats and strings in turn, of more and more values."""
    chosen = np.random.default_rng(1)
    kinds: list[Callable[[int], pa.Array]] = [
        lambda number: pa.array(chosen.integers(0, 1_000 * (number + 1), rows)),
        lambda number: pa.array(chosen.standard_normal(rows)),
        lambda number: pa.array([f"v{n}" for n in chosen.integers(0, 50 + number, rows)]),
    ]
    return pa.table({f"c{n:04}": kinds[n % len(kinds)](n) for n in range(columns)})


def planned(folder: Path) -> TableAction:
    """Declare the table in a new project; return the planned scans."""
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(PROJECT, encoding="utf-8")
    text = "tables: [{name: wide, uri: wide.lance}]\n"
    (folder / "specs" / "wide.yml").write_text(text, encoding="utf-8")
    (action,) = Project.load(folder).plan().actions
    return cast(TableAction, action)


def analyze(work: TableAction, divisions: Callable[[int], int]) -> Partials:
    """Read all fragments, with so many scans of each."""
    for module in (lancestat.tables.analyze, lancestat.tables.work_items):
        vars(module)["most_divisions"] = divisions
    target = Target("dev", "state", spark_master=f"local[{CORES}]")
    with ProcessScanner(target) as scanner:
        return {
            tuple(scan.fingerprint for scan in scans): partials
            for scanned in scanner.scan("wide", work.table, work.scans)
            for scans, partials in scanned.stored
        }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=1_200)
    parser.add_argument("--tiny", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    rows, columns = (2_000, 40) if arguments.tiny else (arguments.rows, arguments.columns)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        uri = str(folder / "wide.lance")
        lance.write_dataset(table(rows, columns), uri, max_rows_per_file=rows // FRAGMENTS)
        work = planned(folder)
        sides: dict[str, Callable[[], object]] = {
            "reading alone": lambda: sum(batch.nbytes for batch in lance.dataset(uri).to_batches()),
            "some columns at a time": lambda: analyze(work, most_divisions),
            "all columns together": lambda: analyze(work, lambda _: 1),
        }
        costs: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        found: dict[str, object] = {}
        for _ in range(1 if arguments.tiny else arguments.runs + 1):
            for side, act in sides.items():
                before = time.process_time()
                clock, found[side] = timed(act)
                costs[side].append((clock, time.process_time() - before))
        assert found["some columns at a time"] == found["all columns together"]
    print(
        f"{rows:,} rows of {columns:,} columns in {FRAGMENTS} fragments   clock, s   processors, s"
    )
    for side, measured in costs.items():
        clock, cpu = map(statistics.median, zip(*measured[-arguments.runs :], strict=True))
        print(f"{side:<44} {clock:>10.2f} {cpu:>15.2f}", flush=True)


if __name__ == "__main__":
    main()
