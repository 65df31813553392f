"""The search for neighbours in one process: its rate, and what lists save.

    python benchmarks/knn_kernel.py         # all of it
    python benchmarks/knn_kernel.py rate    # against one large product of matrices
    python benchmarks/knn_kernel.py lists   # laying out and searching lists, against every pair
    python benchmarks/knn_kernel.py --tiny  # a smoke run

Product and search take turns, the best of three of each counts, and every case has a process of its
own, with as many threads as it says. Everything is measured in processor time, so that rates are
those of one processor. Vectors are normal
(`spread`), in 1,000 clusters (`clustered`), in clusters that float32 hardly resolves (`tight`), of
300 kinds (`repeated`), and in 10,000 clusters that touch (`touching`).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from measure import Measures, peak_megabytes, run, run_case

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lancestat.joins.search.metrics import Metric

    Matrix = NDArray[np.float32]

T = TypeVar("T")

K = 10
TURNS = 3
KINDS = ("spread", "clustered", "tight", "repeated")


def main() -> None:
    """Run the parts that the command line selects."""
    cases = {
        f"{kind}, {threads} threads, {dimension} dimensions": partial(
            rate, kind, threads, dimension
        )
        for kind in KINDS
        for threads in (1, 2)
        for dimension in (128, 768)
        if kind == "spread" or (threads == 1 and dimension == 128)
    }
    lists = {f"{metric}, in lists": partial(in_lists, metric) for metric in ("l2", "cosine")}
    parts = {"rate": partial(run_each, list(cases)), "lists": partial(run_each, list(lists))}
    run(__doc__ or "", parts, {**cases, **lists})


def run_each(cases: list[str], folder: Path, tiny: bool) -> Iterator[tuple[str, float]]:
    """Every case in a process of its own."""
    for case in cases:
        for name, value in run_case(case, folder, tiny).items():
            yield f"{case}: {name}", value


def rate(kind: str, threads: int, dimension: int, folder: Path, tiny: bool) -> Measures:
    """100,000 rows and 10,000 queries, or as many as take as long."""
    limit(threads)
    import numpy as np

    from lancestat.joins.search.metrics import COSINE, DOT, L2
    from lancestat.joins.search.search import ExactSearch

    share = 100 if tiny else dimension // 128
    rows, queries = (
        vectors(kind, 1, 100_000 // share, dimension),
        vectors(kind, 2, 10_000 // share, dimension),
    )
    places = np.arange(len(rows))
    product: list[float] = []
    searched: dict[Metric, list[float]] = {metric: [] for metric in (L2, COSINE, DOT)}
    compared = 0.0
    for _ in range(1 if tiny else TURNS):
        product.append(spent(lambda: multiply(queries, rows))[0])
        for metric, seconds in searched.items():
            nearest = ExactSearch(queries, K, metric)
            seconds.append(spent(partial(nearest.add, rows, places))[0])
            compared = max(compared, nearest.compared / len(queries))
    flops = 2.0 * len(rows) * len(queries) * dimension
    measures = {"product, GFLOP/s": flops / min(product) / 1e9}
    for metric, seconds in searched.items():
        measures[f"{metric.name}, share of the product's rate"] = min(product) / min(seconds)
    return {
        **measures,
        "most pairs compared in float64, per query": compared,
    }


def multiply(queries: Matrix, rows: Matrix, step: int = 1_000) -> None:
    """The product, some queries at a time into one place: as a whole it would take 4 GB."""
    import numpy as np

    place = np.empty((min(step, len(queries)), len(rows)), np.float32)
    for start in range(0, len(queries), step):
        part = queries[start : start + step]
        np.matmul(part, rows.T, out=place[: len(part)])


def in_lists(name: str, folder: Path, tiny: bool) -> Measures:
    """1,000,000 rows and 10,000 queries of 128 dimensions in 10,000 clusters that touch."""
    limit(1)
    import numpy as np

    from lancestat.joins.search.centroids import choose_nprobes, recall_curve, train
    from lancestat.joins.search.cost_model import (
        SAMPLE_ROWS,
        TRAIN_ROWS,
        JoinSize,
        Strategy,
        choose,
    )
    from lancestat.joins.search.ivf import commit, search_lists, write_lists
    from lancestat.joins.search.metrics import metric_named
    from lancestat.joins.search.search import BLOCK_BYTES
    from lancestat.joins.search.work import JoinRequest

    metric = metric_named(name)
    count, asked = (5_000, 200) if tiny else (1_000_000, 10_000)
    rows, queries = vectors("touching", 1, count, 128), vectors("touching", 2, asked, 128)
    request = JoinRequest(K, metric, recall=0.95)
    decision = choose(request, JoinSize(asked, count, 128), cores=1)
    lists = decision.lists if decision.strategy is Strategy.IVF else 64
    assert lists is not None
    step = BLOCK_BYTES // (4 * 128)
    seconds: dict[str, float] = {}

    trained = rows[:: max(1, count // (TRAIN_ROWS * lists))]
    seconds["train"], centroids = spent(lambda: train(trained, lists, metric))
    sample = queries[:: max(1, asked // SAMPLE_ROWS)][:SAMPLE_ROWS]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        blocks = (
            (np.arange(start, min(count, start + step)), rows[start : start + step])
            for start in range(0, count, step)
        )
        seconds["build index"], part = spent(
            lambda: write_lists(blocks, centroids, sample, K, scratch + "/laid", {})
        )
        laid_out = commit([part], scratch + "/laid", 128, {})
        assert part.sampled is not None
        true = part.sampled.lists()
        order = centroids.nearest_lists(sample, lists)
        nprobes = choose_nprobes(recall_curve(order[::2], true[::2])[1], 0.95)
        reported = recall_curve(order[1::2], true[1::2])[0][nprobes - 1]
        seconds["search"], (neighbours, pairs, _) = spent(
            lambda: search_lists(
                laid_out,
                queries,
                centroids.nearest_lists(queries, nprobes),
                range(lists),
                K,
                metric,
            )
        )
    seconds["every pair"], exact = spent(lambda: every_pair(queries, rows, metric, step))
    hits = [
        np.isin(all_pairs, mine).mean()
        for mine, all_pairs in zip(neighbours.positions, exact, strict=True)
    ]
    total = sum(seconds.values()) - seconds["every pair"]
    return {
        **{f"{what}, seconds": value for what, value in seconds.items()},
        "lists": lists,
        "lists visited": nprobes,
        "recall": float(np.mean(hits)),
        "recall as the sample tells it": float(reported),
        "share of pairs compared": pairs / count / asked,
        "share of the time for every pair": total / seconds["every pair"],
        "peak, MB": peak_megabytes(),
    }


def every_pair(queries: Matrix, rows: Matrix, metric: Metric, step: int) -> NDArray[np.int64]:
    """True neighbours, block by block."""
    import numpy as np

    from lancestat.joins.search.search import ExactSearch

    nearest = ExactSearch(queries, K, metric)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        nearest.add(block, np.arange(start, start + len(block)))
    return nearest.neighbours().positions


def vectors(kind: str, seed: int, rows: int, dimension: int) -> Matrix:
    """Vectors of one kind; those of different seeds come from the same clusters."""
    import numpy as np

    random = np.random.default_rng(seed)
    matrix = random.standard_normal((rows, dimension), dtype=np.float32)
    if kind == "spread":
        return matrix
    clusters = {"clustered": 1000, "tight": 1000, "repeated": 300, "touching": 10_000}[kind]
    width = {"clustered": 0.1, "tight": 0.001, "repeated": 0.0, "touching": 0.5}[kind]
    middles = np.random.default_rng(0).standard_normal((clusters, dimension), dtype=np.float32)
    matrix *= width
    matrix += middles[random.integers(0, clusters, rows)]
    return matrix


def spent(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds of processor time, which others on the machine hardly change, and the result."""
    began = time.process_time()
    result = action()
    return time.process_time() - began, result


def limit(threads: int) -> None:
    """Set variables that libraries read when they are imported; none has been imported yet."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS"):
        os.environ[variable] = str(threads)


if __name__ == "__main__":
    main()
