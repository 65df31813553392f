"""Measure the memory of a worker of an exact KNN join, and its cost by the size of each side.

    python benchmarks/knn_memory.py           # up to 1,000,000 right rows of dimension 768
    python benchmarks/knn_memory.py --tiny    # a smoke run

Memory: both sides are Lance tables, the right one of 3 GB, and a worker may address 1,500 MB
(`spark.executor.pyspark.memory`), which counts all that its libraries reserve. The peak is the
largest resident set that a Python worker has had at the end; beside it stands that of the same join
with a hundredth of the right side.

Cost: the same search with a quarter, a half and all of one side, the other one fixed, on a worker
with one core; seconds of processor time that workers took, and by how much they grow while the side
doubles, where 2 is linear.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from measure import timed

from lancestat.joins.knn_join import run_join
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.work import JoinWork, OutputFormat, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.lake.observe import snapshot
from lancestat.spark.start import start_session
from lancestat.spec.model import Target

DIMENSION = 768
LIMIT = "1500m"
K = 10
BATCH_ROWS = 4096


def batches(rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Numbered vectors, normally distributed."""
    rng = np.random.default_rng(rows)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        values = rng.standard_normal(count * DIMENSION, np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION)
        numbers = pa.array(np.arange(start, start + count))
        yield pa.RecordBatch.from_arrays([numbers, column], schema=schema)


def write(folder: Path, rows: int) -> SideSource:
    """A table of so many vectors, as a side of a join."""
    uri = str(folder / f"{rows}.lance")
    if not Path(uri).exists():
        schema = pa.schema([("id", pa.int64()), ("emb", pa.list_(pa.float32(), DIMENSION))])
        lance.write_dataset(batches(rows, schema), uri, schema=schema, max_rows_per_file=1 << 17)
    return SideSource("emb", ("id",), PinnedTable.at(snapshot(lance.dataset(uri), uri, {})))


def join(folder: Path, lefts: int, rights: int, conf: dict[str, str]) -> tuple[float, float]:
    """Processor seconds and peak megabytes of the workers of one join, in a warm session."""
    work = JoinWork(
        "memory", JoinRequest(K, min_right_rows=0), write(folder, lefts), write(folder, rights),
        OutputFormat.LANCE, str(folder / "output.lance"),
    )  # fmt: skip
    target = Target("dev", str(folder), spark_master="local[1]", spark_conf=conf)
    spark = start_session(target, "benchmark")
    # Imports are paid before.
    spark.sparkContext.parallelize([0], 1).map(lambda _: imported()).collect()
    before = sum(seconds for seconds, _ in workers())
    run_join(Engine(spark, str(folder), uuid.uuid4().hex), work)
    usages = list(workers())
    spark.stop()
    return sum(seconds for seconds, _ in usages) - before, max(peak for _, peak in usages)


def imported() -> None:
    """Import the modules that tasks need."""
    import lancestat.joins.spark.prepared_join  # noqa: F401


def workers() -> Iterator[tuple[float, float]]:
    """Processor seconds and peak megabytes of this machine's Python workers below this process."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
            peak = next(
                int(line.split()[1])
                for line in (entry / "status").read_text().splitlines()
                if line.startswith("VmHWM")
            )
        except (OSError, StopIteration):
            continue
        seconds = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        parents[int(entry.name)] = (int(stat[1]), b"pyspark.daemon" in command, seconds, peak)
    for number, (_, is_python, seconds, peak) in parents.items():
        above = parents.get(number)
        while above is not None and above[0] != os.getpid():
            above = parents.get(above[0])
        if is_python and above is not None:
            yield seconds, peak / 1024


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<60} {value:>10.2f}", flush=True)


def memory(folder: Path, lefts: int, sizes: Sequence[int]) -> None:
    """Peaks with a limit that the right side exceeds."""
    conf = {"spark.executor.pyspark.memory": LIMIT}
    for rows in sizes:
        seconds, (_, peak) = timed(lambda rows=rows: join(folder, lefts, rows, conf))
        size = 4 * DIMENSION * rows / 2**20
        show(f"right side of {rows:,} x {DIMENSION}, MB of vectors", size)
        show("peak of a worker that may address 1,500, MB", peak)
        show("clock, Spark's start and writing included, s", seconds)


def growth(folder: Path, series: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Processor time of workers while the named side doubles; sizes are rows, left and right."""
    for name, sizes in series.items():
        before = None
        for left_rows, right_rows in sizes:
            seconds, _ = join(folder, left_rows, right_rows, {})
            show(f"{left_rows:,} left rows, {right_rows:,} right rows, worker s", seconds)
            if before is not None:
                show(f"twice the {name} side takes so many times as long", seconds / before)
            before = max(seconds, 0.01)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a size that only shows that it runs")
    parser.add_argument("--right", type=int, default=1_000_000, help="right rows of the largest")
    arguments = parser.parse_args()
    rights = 2_000 if arguments.tiny else arguments.right
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        if arguments.tiny:
            memory(Path(name), 20, [rights])
            growth(Path(name), {"right": [(40, 200), (40, 400)]})
            return
        memory(Path(name), 1_000, [rights // 100, rights])
        most = rights // 5
        growth(
            Path(name),
            {
                "right": [(4_000, most // 4), (4_000, most // 2), (4_000, most)],
                "left": [(1_000, most), (2_000, most), (4_000, most)],
            },
        )


if __name__ == "__main__":
    main()
