"""IVF lists of lancestat's own, kept in scratch, against Lance's IVF_FLAT of the same vectors.

    python benchmarks/knn_ivf.py           # 200,000 right and 10,000 left rows, local[2]
    python benchmarks/knn_ivf.py --right 1000000 --left 10000
    python benchmarks/knn_ivf.py --tiny    # a smoke run

Vectors are those of `knn_approx.py`, k is 10. Ours is asked for a recall of 0.95: its first run
builds the index, a later one finds it, and one after 1 % more right rows extends it. Lance's index
has as many partitions as ours has lists, left rows visit as many of them, and the new rows are put
in by `optimize_indices`. Each run is in processor time of all processes together, with the recall
of its result and the bytes of its index; starting jobs and writing the result is part of ours.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import lance
import numpy as np
import pyarrow as pa
from knn_approx import (
    DIMENSION,
    RECALL,
    K,
    clustered,
    content_of,
    partitioning,
    require_ivf,
    show,
    write,
)
from measure import processes, spark_parser

from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.joins.search.metrics import L2
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, PinnedTable, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.lake.open import snapshot
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

T = TypeVar("T")

RUNS = ("first", "later", "after 1 % more rows")
# Left rows of one call of Lance, which share what it reads of the index.
BATCH = 256


def spent(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds of processor time of all processes together, and the result."""
    before = sum(process.cpu_seconds for process in processes())
    result = action()
    return sum(process.cpu_seconds for process in processes()) - before, result


def append(values: np.ndarray, uri: Path, first: int) -> None:
    """Rows with the numbers that follow."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    ids = np.arange(first, first + len(values))
    lance.write_dataset(pa.table({"id": ids, "emb": column}), str(uri), mode="append")


def by_lance(uri: Path, left: np.ndarray, nprobes: int) -> set[tuple[int, int]]:
    """Pairs of left and right numbers that Lance's index finds."""
    dataset, pairs = lance.dataset(str(uri)), set()
    for start in range(0, len(left), BATCH):
        nearest = {"column": "emb", "q": left[start : start + BATCH], "k": K, "nprobes": nprobes}
        found = dataset.scanner(
            columns=["id"], nearest=nearest, disable_scoring_autoprojection=True
        ).to_table()
        pairs |= set(
            zip(
                (start + found["query_index"].to_numpy()).tolist(),
                found["id"].to_pylist(),
                strict=True,
            )
        )
    return pairs


def by_us(uri: Path) -> set[tuple[int, int]]:
    """Pairs of left and right numbers in a result."""
    table = lance.dataset(str(uri)).to_table(["id", "id_right"])
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


def megabytes(folder: Path) -> float:
    """The size of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=1)
    parser.add_argument("--right", type=int, default=200_000, help="right rows")
    parser.add_argument("--left", type=int, default=10_000, help="left rows")
    arguments = parser.parse_args()
    left_rows, right_rows = (1_000, 10_000) if arguments.tiny else (arguments.left, arguments.right)
    clusters = max(1, right_rows // 500)
    left, right = clustered(left_rows, clusters, 1), clustered(right_rows, clusters, 2)
    more = clustered(right_rows // 100, clusters, 3)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        mine, theirs = folder / "right.lance", folder / "indexed.lance"
        left_table = write(left, folder / "left.lance")
        for uri in (mine, theirs):
            write(right, uri)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")

        def join(*, is_fresh: bool) -> JoinOutcome:
            table = PinnedTable.at(snapshot(lance.dataset(str(mine)), str(mine), {}))
            sides = (
                SideSource("emb", ("id",), left_table),
                SideSource("emb", ("id",), table, content=content_of(mine)),
            )
            output = str(folder / "output.lance")
            request = JoinRequest(K, recall=RECALL)
            work = JoinWork("ivf", request, *sides, OutputFormat.LANCE, output)
            engine = Engine(spark, str(folder / "scratch"), uuid.uuid4().hex)
            outcome = run_join(engine, replace(work, is_fresh=is_fresh))
            require_ivf(outcome)
            return outcome

        with partitioning(tiny=arguments.tiny):
            for is_fresh in () if arguments.tiny else (True, False, False):
                join(is_fresh=is_fresh)
            for run in RUNS:
                if run == RUNS[2]:
                    for uri in (mine, theirs):
                        append(more, uri, right_rows)
                rows = right if run != RUNS[2] else np.concatenate([right, more])
                nearest = ExactSearch(left, K, L2)
                nearest.add(rows, np.arange(len(rows)))
                true = nearest.neighbours().positions
                truth = {(n, row) for n, line in enumerate(true.tolist()) for row in line}

                seconds, outcome = spent(lambda run=run: join(is_fresh=run == RUNS[0]))
                found, nprobes = by_us(folder / "output.lance"), outcome.accuracy.nprobes or 1
                kept = IndexStore(str(folder / "scratch")).find("benchmark")
                assert kept is not None
                show(f"ours, {run}, s of processor time", seconds)
                show(f"ours, {run}, recall@{K}", len(truth & found) / len(truth))
                show(f"ours, {run}, index, MB", megabytes(folder / "scratch" / kept.folder))

                def by_index(
                    run: str = run, lists: int = kept.manifest.record.lists, nprobes: int = nprobes
                ) -> set[tuple[int, int]]:
                    dataset = lance.dataset(str(theirs))
                    if run == RUNS[0]:
                        dataset.create_index("emb", "IVF_FLAT", metric="l2", num_partitions=lists)
                    elif run == RUNS[2]:
                        dataset.optimize.optimize_indices()
                    return by_lance(theirs, left, nprobes)

                seconds, found = spent(by_index)
                show(f"Lance, {run}, s of processor time", seconds)
                show(f"Lance, {run}, recall@{K}", len(truth & found) / len(truth))
                show(f"Lance, {run}, index, MB", megabytes(theirs / "_indices"))
                show(f"{run}, lists visited by each left row", nprobes)
        spark.stop()


if __name__ == "__main__":
    main()
