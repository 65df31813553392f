"""KNN joins end to end against Spark's own, and their probe stage against one matrix product.

    python benchmarks/knn.py           # 100,000 right rows, dimension 128, k 10, local[2]
    python benchmarks/knn.py --tiny    # a smoke run

End to end, with the right side in Parquet and 100 left rows: `lancestat.knn_join`, whose result is
counted, and `DataFrame.nearestByJoin` ranked by `vector_l2_distance`, likewise. Both find the same
neighbours, in one session that both have warmed for as long; then they take turns, and medians are
printed, by the clock and in processor time of all processes together.

The probe stage, with 10,000 left rows in Lance, for every metric: pairs compared a second, as
floating-point operations (two for each element), against one product of the same float32 matrices
by numpy with as many threads as Spark has cores. They take turns in a warm session, and medians are
printed: by the clock, which counts the tasks' reading and searching, and in processor time, which
counts all that Python workers do, so also writing the result, and tells more where other programs
run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import processes, spark_parser, timed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, vector_l2_distance

import lancestat
from lancestat.joins.action import Probe
from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.metrics import COSINE, DOT, L2, Metric
from lancestat.joins.search.work import JoinRequest, JoinWork, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.lake.open import snapshot
from lancestat.runs.actions import StageProgress
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

DIMENSION = 128
K = 10
# Both joins run for so long before they are measured.
WARMING_SECONDS = 25.0


def vectors(rows: int, seed: int) -> np.ndarray:
    """Normally distributed float32."""
    return np.random.default_rng(seed).standard_normal((rows, DIMENSION), np.float32)


def table(values: np.ndarray) -> pa.Table:
    """Numbered vectors."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.table({"id": np.arange(len(values)), "emb": column})


def write_parquet(values: np.ndarray, folder: Path, files: int = 4) -> str:
    """A folder of files."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(values, files)):
        pq.write_table(table(part), folder / f"part-{number}.parquet")
    return str(folder)


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<52} {value:>10.2f}", flush=True)


def by_spark(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return Spark's own join; its distance is the square root of lancestat's."""
    left, right = (
        left.select(col("id"), col("emb").alias("query")),
        right.withColumnsRenamed({"id": "id_right"}),
    )
    distance = vector_l2_distance("query", "emb")
    joined = left.nearestByJoin(right, distance, K, "exact", "distance")
    return joined.select("id", "id_right", (distance * distance).alias("_distance"))


def by_lancestat(left: DataFrame, right: DataFrame) -> DataFrame:
    """The same by lancestat."""
    return lancestat.knn_join(
        left, right, left_vector="emb", right_vector="emb", k=K,
        select_left=["id"], select_right=["id"], min_right_rows=0,
    )  # fmt: skip


def pairs(rows: DataFrame) -> set[tuple[int, int]]:
    """Return the pairs of left and right ids."""
    return {(row.id, row.id_right) for row in rows.collect()}


def warm(action: Callable[[], object], seconds: float) -> None:
    """Do it until so much time has passed, and at least once."""
    began = time.perf_counter()
    action()
    while time.perf_counter() - began < seconds:
        action()


class Cost(NamedTuple):
    """Seconds that a join took: on the clock, and of all processors together."""

    clock: float
    processor: float


def end_to_end(spark: SparkSession, folder: Path, *, tiny: bool, runs: int) -> None:
    """Both joins over Parquet, in turns."""
    right = spark.read.parquet(
        write_parquet(vectors(2_000 if tiny else 100_000, 1), folder / "right")
    )
    left = spark.read.parquet(write_parquet(vectors(10 if tiny else 100, 2), folder / "left", 1))
    joins = {"nearestByJoin": by_spark, "lancestat.knn_join": by_lancestat}
    costs: dict[str, list[Cost]] = {name: [] for name in joins}
    results = {}
    for join in joins.values():
        warm(lambda join=join: pairs(join(left, right)), 0.0 if tiny else WARMING_SECONDS)
    for _ in range(runs):
        for name, join in joins.items():
            before = sum(process.cpu_seconds for process in processes())
            clock, results[name] = timed(lambda join=join: pairs(join(left, right)))
            used = sum(process.cpu_seconds for process in processes()) - before
            costs[name].append(Cost(clock, used))
    assert results["nearestByJoin"] == results["lancestat.knn_join"]
    theirs, ours = (Cost(*map(statistics.median, zip(*costs[name], strict=True))) for name in joins)
    show("end to end, Spark's nearestByJoin, s", theirs.clock)
    show("end to end, Spark's, s of processor time", theirs.processor)
    show("end to end, lancestat.knn_join, s", ours.clock)
    show("end to end, lancestat.knn_join, s of processor time", ours.processor)
    show("end to end, Spark / lancestat", theirs.clock / ours.clock)
    show("end to end, Spark / lancestat, processor time", theirs.processor / ours.processor)


def multiply(left: np.ndarray, right: np.ndarray, rows: int = 1_000) -> None:
    """The product, some left rows at a time into one place: as a whole it would take 4 GB."""
    place = np.empty((min(rows, len(left)), right.shape[1]), np.float32)
    for start in range(0, len(left), rows):
        part = left[start : start + rows]
        np.matmul(part, right, out=place[: len(part)])


class Rate(NamedTuple):
    """Floating-point operations a second, in thousands of millions."""

    clock: float
    processor: float


def probe_rate(spark: SparkSession, folder: Path, cores: int, *, tiny: bool, runs: int) -> None:
    """The probe stage of each metric against a product of matrices, in turns."""
    left, right = vectors(500 if tiny else 10_000, 3), vectors(2_000 if tiny else 100_000, 4)
    uris = []
    for name, values in (("left", left), ("right", right)):
        uris.append(str(folder / f"{name}.lance"))
        lance.write_dataset(table(values), uris[-1], max_rows_per_file=len(values) // 4)
    operations = 2 * len(left) * len(right) * DIMENSION / 1e9
    transposed = np.ascontiguousarray(right.T)
    rates: dict[str, list[Rate]] = {}
    for _ in range(1 if tiny else runs + 1):
        began = time.process_time()
        clock, _ = timed(lambda: multiply(left, transposed))
        product = Rate(operations / clock, operations / (time.process_time() - began))
        rates.setdefault("product", []).append(product)
        for metric in (L2, COSINE, DOT):
            clock, processor = probe_seconds(spark, folder, uris, metric)
            rates.setdefault(metric.name, []).append(
                Rate(operations / clock, operations / processor)
            )
    medians = {
        name: Rate(*map(statistics.median, zip(*(measured[1:] or measured), strict=True)))
        for name, measured in rates.items()
    }
    product = medians.pop("product")
    show(f"one product of matrices, {cores} threads, GFLOP/s", product.clock)
    show("one product of matrices, GFLOP/s of a processor", product.processor)
    for name, probe in medians.items():
        show(f"probe stage, {name}, GFLOP/s", probe.clock)
        show(f"probe / product, {name}", probe.clock / product.clock)
        show(f"probe / product, {name}, processor time", probe.processor / product.processor)


def pinned(uri: str) -> PinnedTable:
    """A dataset at its latest version."""
    return PinnedTable.at(snapshot(lance.dataset(uri), uri, {}))


def probe_seconds(
    spark: SparkSession, folder: Path, uris: list[str], metric: Metric
) -> tuple[float, float]:
    """Return the seconds that tasks take to compare all pairs, and what processors worked."""
    rates = []

    def record_rate(progress: StageProgress) -> None:
        if isinstance(progress.stage, Probe) and progress.pairs_per_second:
            rates.append(progress.pairs_per_second)

    left, right = (SideSource("emb", ("id",), pinned(uri)) for uri in uris)
    output = str(folder / "output.lance")
    request = JoinRequest(K, metric, min_right_rows=0)
    work = JoinWork("rate", request, left, right, OutputFormat.LANCE, output)
    before = worker_seconds()
    outcome = run_join(Engine(spark, str(folder), uuid.uuid4().hex, on_stage=record_rate), work)
    return outcome.pairs / rates[-1], worker_seconds() - before


def worker_seconds() -> float:
    """Processor time that Python workers have used so far."""
    return sum(process.cpu_seconds for process in processes() if process.is_worker)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=3)
    parser.add_argument("--part", choices=["end-to-end", "probe"], help="both by default")
    arguments = parser.parse_args()
    tiny, part = arguments.tiny, arguments.part
    runs = 1 if tiny else arguments.runs
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        if part != "probe":
            end_to_end(spark, folder, tiny=tiny, runs=runs)
        if part != "end-to-end":
            probe_rate(spark, folder, arguments.cores, tiny=tiny, runs=runs)
        spark.stop()


if __name__ == "__main__":
    main()
