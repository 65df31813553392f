"""An approximate join against the exact one, on clustered vectors.

    python benchmarks/knn_approx.py           # 1,000,000 right and 10,000 left rows, local[2]
    python benchmarks/knn_approx.py --tiny    # a smoke run

Both sides are Lance tables of dimension 128, k is 10, and the approximate join is asked for a
recall of 0.95. Its first run trains centroids, lays the right side out in scratch, chooses how many
lists to visit and searches them. A later run finds the layout that is kept, and measures and
searches it. They take turns with the exact join in one warm session, and medians are printed, by
the clock and in processor time of all processes together, which tells more where other programs
run. So are the recall that the join reports of its sample, and the recall that comparing its result
with the exact one gives.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
from measure import processes, spark_parser, timed

from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search import cost_model
from lancestat.joins.search.cost_model import Strategy
from lancestat.joins.search.work import (
    JoinOutcome,
    JoinRequest,
    JoinWork,
    PinnedTable,
    RightContent,
    SideSource,
)
from lancestat.joins.sides import right_content
from lancestat.joins.spark.engine import Engine
from lancestat.lake.fingerprint import leaves
from lancestat.lake.open import snapshot
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

DIMENSION = 128
K = 10
RECALL = 0.95
FILES = 8


def clustered(rows: int, clusters: int, seed: int) -> np.ndarray:
    """Normally distributed around centres that are normally distributed themselves, float32."""
    centres = np.random.default_rng(0).standard_normal((clusters, DIMENSION), np.float32)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((rows, DIMENSION), np.float32)
    values: np.ndarray = centres[rng.integers(0, clusters, rows)] + np.float32(0.35) * noise
    return values


def write(values: np.ndarray, uri: Path) -> PinnedTable:
    """A Lance table of several files."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    table = pa.table({"id": np.arange(len(values)), "emb": column})
    dataset = lance.write_dataset(table, str(uri), max_rows_per_file=-(-len(values) // FILES))
    return PinnedTable.at(snapshot(dataset, str(uri), {}))


def content_of(uri: Path) -> RightContent:
    """What layouts of a table's vectors are made of."""
    dataset = lance.dataset(str(uri))
    return right_content(snapshot(dataset, str(uri), {}), leaves(dataset, {"emb"}), "benchmark")


def measured_recall(exact: Path, approximate: Path) -> float:
    """The share of true neighbours that the approximate result has."""
    results = (lance.dataset(str(uri)).to_table(["id", "id_right"]) for uri in (exact, approximate))
    truth, other = (
        set(zip(*(c.to_pylist() for c in table.columns), strict=True)) for table in results
    )
    return len(truth & other) / len(truth)


@contextmanager
def partitioning(*, tiny: bool) -> Iterator[None]:
    """Make approximate joins of tiny sides worth it: the start of a job costs more than them."""
    seconds = 0.0 if tiny else cost_model.JOB_SECONDS
    with patch.object(cost_model, "JOB_SECONDS", seconds):
        yield


def require_ivf(outcome: JoinOutcome) -> None:
    """Check that a join has put the right side into lists and searched these."""
    strategy, accuracy = outcome.strategy, outcome.accuracy
    assert strategy == Strategy.IVF.value and accuracy.nprobes, (strategy, accuracy)


class Cost(NamedTuple):
    """Seconds that a join took: on the clock, and of all processors together."""

    clock: float
    processor: float


def take_turns(
    joins: Mapping[str, Callable[[], JoinOutcome]], warm_ups: int, runs: int
) -> dict[str, Cost]:
    """Median costs of each join."""
    costs: dict[str, list[Cost]] = {name: [] for name in joins}
    for _ in range(warm_ups + runs):
        for name, join in joins.items():
            before = sum(process.cpu_seconds for process in processes())
            clock, _ = timed(join)
            used = sum(process.cpu_seconds for process in processes()) - before
            costs[name].append(Cost(clock, used))
    return {
        name: Cost(*map(statistics.median, zip(*measured[warm_ups:], strict=True)))
        for name, measured in costs.items()
    }


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<52} {value:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    arguments = spark_parser(__doc__, runs=3).parse_args()
    left_rows, right_rows = (1_000, 10_000) if arguments.tiny else (10_000, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        clusters = right_rows // 500
        left = write(clustered(left_rows, clusters, 1), folder / "left.lance")
        right = write(clustered(right_rows, clusters, 2), folder / "right.lance")
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        approximate = JoinRequest(K, recall=RECALL)
        requests = {"exact": JoinRequest(K), "first": approximate, "later": approximate}
        content = content_of(folder / "right.lance")

        outcomes: dict[str, JoinOutcome] = {}

        def join(mode: str) -> JoinOutcome:
            sides = (
                SideSource("emb", ("id",), left),
                SideSource("emb", ("id",), right, content=content if mode != "exact" else None),
            )
            output = str(folder / f"{mode}.lance")
            work = JoinWork(mode, requests[mode], *sides, OutputFormat.LANCE, output)
            # The first run takes the place of the layout of the turn before.
            work = replace(work, is_fresh=mode == "first")
            outcome = run_join(Engine(spark, str(folder / "scratch"), uuid.uuid4().hex), work)
            if mode != "exact":
                require_ivf(outcome)
            outcomes[mode] = outcome
            return outcome

        with partitioning(tiny=arguments.tiny):
            costs = take_turns(
                {mode: lambda mode=mode: join(mode) for mode in requests},
                0 if arguments.tiny else 1,
                1 if arguments.tiny else arguments.runs,
            )
        spark.stop()
        for mode, cost in costs.items():
            show(f"{mode}, by {outcomes[mode].strategy}, s", cost.clock)
            show(f"{mode}, s of processor time", cost.processor)
        for mode in ("first", "later"):
            show(f"{mode} run / exact", costs[mode].clock / costs["exact"].clock)
            show(
                f"{mode} run / exact, processor time",
                costs[mode].processor / costs["exact"].processor,
            )
            outcome = outcomes[mode]
            show("lists visited by each left row", outcome.accuracy.nprobes or 0)
            show("pairs compared, share of all", outcome.pairs / (left_rows * right_rows))
            show(f"recall@{K} that the {mode} run reports", outcome.accuracy.recall or 0)
            recall = measured_recall(folder / "exact.lance", folder / f"{mode}.lance")
            show(f"recall@{K} of the whole result", recall)


if __name__ == "__main__":
    main()
