"""Joins with `on` against the rate at which exact joins compare pairs.

    python benchmarks/knn_groups.py           # 1,000,000 right and 100,000 left rows, local[2]
    python benchmarks/knn_groups.py --tiny    # a smoke run

Both sides are Lance tables of dimension 128 whose rows come in random order, k is 10. `equal` has
1,000 groups of 100 left and 1,000 right rows; in `one large` one group has 30 % of the rows of both
sides, and 1,000 others share the rest. What their pairs take alone is computed from the rates of
three exact joins without `on`:

    rows      100,000 x 1,000     as many pairs as `equal`, and the same left rows and result
    columns   100 x 1,000,000     as many pairs as `equal`, and the same right rows
    pairs     10,000 x 1,000,000  so many pairs that reading and writing hardly count

All take turns in one warm session, and medians are printed, by the clock and in processor time of
all processes together, which tells more where other programs run; of `equal` also the megabytes of
vectors for each second.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import lance
import numpy as np
import pyarrow as pa
from measure import processes, spark_parser, timed
from pyspark.sql import SparkSession

from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.lake.open import snapshot
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

DIMENSION = 128
K = 10
FILES = 8
LARGE = 0.3


class Join(NamedTuple):
    """The sides of a join, by their names, and whether keys have to be equal."""

    left: str
    right: str
    key: str | None = None


JOINS = {
    "equal": Join("left", "right", "equal"),
    "one large": Join("left", "right", "large"),
    "rows": Join("left", "few right"),
    "columns": Join("few left", "right"),
    "pairs": Join("some left", "right"),
}


class Cost(NamedTuple):
    """Seconds that a join took: on the clock, and of all processors together."""

    clock: float
    processor: float


def write(rows: int, groups: int, uri: Path, seed: int) -> PinnedTable:
    """A Lance table of several files with normally distributed vectors and two keys."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, DIMENSION), np.float32)
    equal = random.permutation(np.arange(rows) % groups)
    large = np.where(random.permutation(rows) < LARGE * rows, groups, equal)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    table = pa.table({"id": np.arange(rows), "emb": column, "equal": equal, "large": large})
    dataset = lance.write_dataset(table, str(uri), max_rows_per_file=-(-rows // FILES))
    return PinnedTable.at(snapshot(dataset, str(uri), {}))


def run(spark: SparkSession, folder: Path, join: Join) -> JoinOutcome:
    """Run a join; its result is replaced by the next one of its kind."""
    keys = () if join.key is None else (join.key,)
    left, right = (
        SideSource(
            "emb",
            ("id",),
            PinnedTable.at(snapshot(lance.dataset(uri), uri, {})),
            keys=keys,
        )
        for uri in (str(folder / f"{name}.lance") for name in (join.left, join.right))
    )
    request = JoinRequest(K, min_right_rows=0, has_keys=bool(keys))
    output = str(folder / "result.lance")
    work = JoinWork("groups", request, left, right, OutputFormat.LANCE, output)
    return run_join(Engine(spark, str(folder / "scratch"), uuid.uuid4().hex), work)


def take_turns(
    spark: SparkSession, folder: Path, runs: int
) -> tuple[Mapping[str, Cost], Mapping[str, int]]:
    """Median costs of each join and the pairs it compares; a first turn counts only alone."""
    costs: dict[str, list[Cost]] = {name: [] for name in JOINS}
    pairs = {}
    for _ in range(1 + runs):
        for name, join in JOINS.items():
            before = sum(process.cpu_seconds for process in processes())
            clock, outcome = timed(lambda join=join: run(spark, folder, join))
            used = sum(process.cpu_seconds for process in processes()) - before
            costs[name].append(Cost(clock, used))
            pairs[name] = outcome.pairs
    medians = {
        name: Cost(*map(statistics.median, zip(*(measured[1:] or measured), strict=True)))
        for name, measured in costs.items()
    }
    return medians, pairs


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<52} {value:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    arguments = spark_parser(__doc__, runs=3).parse_args()
    left_rows, right_rows, groups = (
        (1_000, 4_000, 10) if arguments.tiny else (100_000, 1_000_000, 1_000)
    )
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        sizes = {
            "left": left_rows,
            "right": right_rows,
            "few left": left_rows // groups,
            "few right": right_rows // groups,
            "some left": left_rows // 10,
        }
        for seed, (side, rows) in enumerate(sizes.items()):
            write(rows, groups, folder / f"{side}.lance", seed)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        costs, pairs = take_turns(spark, folder, 0 if arguments.tiny else arguments.runs)
        spark.stop()
    for name, cost in costs.items():
        show(f"{name}, {pairs[name]:,} pairs, s", cost.clock)
        show(f"{name}, s of processor time", cost.processor)
    megabytes = 4 * DIMENSION * (left_rows + right_rows) / 1e6
    for kind, seconds in zip(("clock", "processor time"), costs["equal"], strict=True):
        show(f"equal, MB of vectors a second, {kind}", megabytes / seconds)
    for name in ("equal", "one large"):
        for rate in ("rows", "columns", "pairs"):
            share = pairs[name] / pairs[rate]
            ratios = (
                cost / (share * other) for cost, other in zip(costs[name], costs[rate], strict=True)
            )
            for kind, ratio in zip(("clock", "processor time"), ratios, strict=True):
                show(f"{name} / its pairs at the rate of {rate}, {kind}", ratio)


if __name__ == "__main__":
    main()
