"""All near-duplicates of a table, against one product of matrices over all pairs of its rows.

    python benchmarks/knn_self.py           # 200,000 rows of dimension 128, local[2]
    python benchmarks/knn_self.py --tiny    # a smoke run

The table is joined with itself, `k: all` within a `max_distance`, `exclude_self`. With `pairs:
unordered` each pair is compared once, so that half of the product is to be done, and without it
each pair is found from both of its rows. The product is numpy's, in float32, of the whole matrix
with itself, some rows at a time into one place, with as many threads as Spark has cores. Seconds
are printed by the clock, and in processor time, which tells more where other programs run: of this
process for the product, and of all processes for a join, in a session that a join has warmed. The
peak is the largest resident set that a Python worker has had.

Vectors are normal, and the last hundredth of the rows are copies of the first with a little noise:
the join has to find these pairs and no others.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
from knn import multiply, pinned, table, vectors
from measure import processes, spark_parser, timed

from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, SelfPairs, SideSource
from lancestat.joins.spark.engine import Engine
from lancestat.spark.session import start_session
from lancestat.spec.knn_join import MOST_PAIRS
from lancestat.spec.model import Target

# Of normal vectors no two are within this; a row and its copy are at about a hundredth of it.
MAX_DISTANCE = 1.0
NOISE = np.float32(0.01)


def with_copies(rows: int, seed: int) -> tuple[np.ndarray, int]:
    """Vectors of which the last hundredth are copies of the first, and how many these are."""
    values, copies = vectors(rows, seed), rows // 100
    values[-copies:] = values[:copies] + NOISE * vectors(copies, seed + 1)
    return values, copies


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<60} {value:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=1)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the table")
    arguments = parser.parse_args()
    rows = 2_000 if arguments.tiny else arguments.rows
    values, copies = with_copies(rows, 5)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        uri = str(Path(name) / "rows.lance")
        lance.write_dataset(table(values), uri, max_rows_per_file=rows // 4)
        side = SideSource("emb", ("id",), pinned(uri))
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        request = JoinRequest(
            64,
            min_right_rows=0,
            max_distance=MAX_DISTANCE,
            max_pairs=MOST_PAIRS,
            self_pairs=SelfPairs.OTHERS,
        )
        requests = {
            "pairs: unordered": replace(request, self_pairs=SelfPairs.ONCE),
            "both ways": request,
        }

        def join(request: JoinRequest, side: SideSource) -> JoinOutcome:
            output = str(Path(name) / "output.lance")
            work = JoinWork("self", request, side, side, OutputFormat.LANCE, output)
            return run_join(Engine(spark, name, uuid.uuid4().hex), work)

        few = str(Path(name) / "few.lance")
        lance.write_dataset(table(values[:1_000]), few, max_rows_per_file=250)
        join(request, SideSource("emb", ("id",), pinned(few)))
        transposed = np.ascontiguousarray(values.T)
        began = time.process_time()
        product, _ = timed(lambda: multiply(values, transposed))
        worked = time.process_time() - began
        show(f"one product of {rows:,} x {rows:,}, s", product)
        show("one product, s of processor time", worked)
        for how, asked in requests.items():
            before = sum(process.cpu_seconds for process in processes())
            clock, outcome = timed(lambda asked=asked: join(asked, side))
            used = sum(process.cpu_seconds for process in processes()) - before
            found = outcome.output.rows
            assert found == (copies if asked.pairs_once else 2 * copies), found
            show(f"join, {how}, s", clock)
            show(f"join, {how}, s of processor time", used)
            show(f"join / product, {how}", clock / product)
            show(f"join / product, {how}, processor time", used / worked)
            workers = [process for process in processes() if process.is_worker]
            show("peak of a worker so far, MB", max(one.peak_megabytes for one in workers))
        spark.stop()


if __name__ == "__main__":
    main()
