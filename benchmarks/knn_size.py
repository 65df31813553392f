"""An approximate join with a right side that is larger than memory, and what grows with its size.

    python benchmarks/knn_size.py           # 1,000,000 and 10,000,000 right rows, local[2]
    python benchmarks/knn_size.py --tiny    # a smoke run

Both sides are Lance tables of dimension 128, clustered as in `knn_approx.py`, 500 right rows to a
cluster at any size; there are 20,000 left rows, k is 10, and the join is asked for a recall of
0.95. Each Python worker may address 2,000 MB (`spark.executor.pyspark.memory`), which counts all
that its libraries reserve; the peak is the largest resident set that one has had. The first run
lays the right side out, the later one finds the layout that is kept. Seconds are printed by the
clock and in processor time of all processes, of which Spark's start is not counted, and beside the
larger size by how much they have grown.

10,000,000 rows take 5 GB on disk, and their layout as much again.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from knn_approx import DIMENSION, RECALL, K, clustered, content_of, partitioning, require_ivf
from measure import processes, spark_parser, timed

from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.lake.open import snapshot
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

LIMIT = "2000m"
LEFT_ROWS, CLUSTER_ROWS = 20_000, 500
BATCH_ROWS, FILE_ROWS = 100_000, 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("emb", pa.list_(pa.float32(), DIMENSION))])


@dataclass(frozen=True)
class Cost:
    """What a join took: on the clock, of all processors, and at most of a worker's memory."""

    seconds: float
    processor_seconds: float
    peak_megabytes: float


def batches(rows: int, clusters: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Numbered vectors, made batch by batch."""
    for number, start in enumerate(range(0, rows, BATCH_ROWS)):
        values = clustered(min(BATCH_ROWS, rows - start), clusters, seed + number)
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
        ids = pa.array(np.arange(start, start + len(values)))
        yield pa.RecordBatch.from_arrays([ids, column], schema=SCHEMA)


def write(uri: Path, rows: int, clusters: int, seed: int) -> PinnedTable:
    """A Lance table."""
    source = batches(rows, clusters, seed)
    dataset = lance.write_dataset(source, str(uri), schema=SCHEMA, max_rows_per_file=FILE_ROWS)
    return PinnedTable.at(snapshot(dataset, str(uri), {}))


def joins(folder: Path, left_rows: int, right_rows: int, cores: int) -> dict[str, Cost]:
    """The first run and a later one, in a session of their own."""
    clusters = right_rows // CLUSTER_ROWS
    left = write(folder / "left.lance", left_rows, clusters, 1)
    right = write(folder / "right.lance", right_rows, clusters, 1_000)
    conf = {"spark.executor.pyspark.memory": LIMIT}
    target = Target("dev", str(folder), spark_master=f"local[{cores}]", spark_conf=conf)
    spark = start_session(target, "benchmark")
    request = JoinRequest(K, recall=RECALL)
    content = content_of(folder / "right.lance")
    sides = (
        SideSource("emb", ("id",), left),
        SideSource("emb", ("id",), right, content=content),
    )
    output = str(folder / "output.lance")
    work = JoinWork("size", request, *sides, OutputFormat.LANCE, output)

    def join(work: JoinWork) -> JoinOutcome:
        return run_join(Engine(spark, str(folder / "scratch"), uuid.uuid4().hex), work)

    costs = {}
    for run in ("first", "later"):
        before = sum(process.cpu_seconds for process in processes())
        clock, outcome = timed(lambda run=run: join(replace(work, is_fresh=run == "first")))
        used = sum(process.cpu_seconds for process in processes()) - before
        peak = max(process.peak_megabytes for process in processes() if process.is_worker)
        require_ivf(outcome)
        costs[run] = Cost(clock, used, peak)
        show(f"{run} run, lists visited by each left row", outcome.accuracy.nprobes or 0)
        show(f"{run} run, recall that it reports", outcome.accuracy.recall or 0)
        show(f"{run} run, share of all pairs compared", outcome.pairs / left_rows / right_rows)
        show(f"{run} run by {outcome.strategy}, s", clock)
        show(f"{run} run, s of processor time", used)
        show(f"{run} run, peak of a worker that may address {LIMIT}B, MB", peak)
    spark.stop()
    return costs


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<64} {value:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=1)
    parser.add_argument("--right", type=int, default=10_000_000, help="right rows of the largest")
    arguments = parser.parse_args()
    left_rows, largest = (1_000, 100_000) if arguments.tiny else (LEFT_ROWS, arguments.right)
    before: dict[str, Cost] = {}
    for right_rows in (largest // 10, largest):
        show(f"{right_rows:,} right rows, MB of vectors", 4 * DIMENSION * right_rows / 2**20)
        with (
            tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name,
            partitioning(tiny=arguments.tiny),
        ):
            costs = joins(Path(name), left_rows, right_rows, arguments.cores)
        for run, cost in costs.items():
            if run in before:
                grown = cost.processor_seconds / max(0.01, before[run].processor_seconds)
                show(f"{run} run, processor time, ten times the right rows", grown)
        before = costs


if __name__ == "__main__":
    main()
