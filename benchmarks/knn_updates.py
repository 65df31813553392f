"""A join that is brought up to date after changes, beside joining in full.

    python benchmarks/knn_updates.py           # 60,000 x 60,000 rows of dimension 128, local[2]
    python benchmarks/knn_updates.py --tiny    # a smoke run

Each turn updates a share of the rows of both tables with other vectors, runs the join, which brings
its result up to date, and then joins in full. Runs are whole ones, from the plan to the record, in
a session that is warm, and medians of three turns after one that warms up, by the clock and in
processor time of all processes together. Both results of the last turn have the same rows.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from measure import processes, spark_parser, timed
from pyspark.sql import SparkSession

from lancestat import Project
from lancestat.joins.action import join_figures
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

DIMENSION, K = 128, 10
SIDES = ("queries", "items")
Costs = Sequence[float]


def table(ids: np.ndarray, chosen: np.random.Generator) -> pa.Table:
    """Return rows of some ids with normal vectors."""
    values = chosen.standard_normal((len(ids), DIMENSION)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSION)
    return pa.table({"id": ids, "emb": vectors})


def project(folder: Path, cores: int) -> Project:
    """Return a project with the join."""
    target = {
        "state": "state",
        "scratch": "scratch",
        "spark": {"master": f"local[{cores}]"},
    }
    project = {"name": "benchmark", "default_target": "dev", "targets": {"dev": target}}
    left, right = ({"lance": f"{side}.lance", "vector": "emb", "select": ["id"]} for side in SIDES)
    join = {"name": "near", "left": left, "right": right, "k": K, "output": {"lance": "near.lance"}}
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(json.dumps(project), encoding="utf-8")
    (folder / "specs" / "near.yml").write_text(json.dumps({"knn_joins": [join]}), encoding="utf-8")
    return Project.load(folder)


def result(folder: Path) -> list[tuple[int, int, float]]:
    """Return the rows of the result, sorted."""
    columns = lance.dataset(str(folder / "near.lance")).to_table().columns
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def run(
    made: Project, spark: SparkSession, *, full_refresh: bool = False
) -> tuple[Costs, str | None]:
    """Run the join; return seconds by the clock and of all processors, and the join's scope."""
    before = sum(process.cpu_seconds for process in processes())
    clock, done = timed(lambda: made.run(full_refresh=full_refresh, session=spark))
    assert done.ok, done.nodes[0].text
    costs = clock, sum(process.cpu_seconds for process in processes()) - before
    return costs, join_figures(done.nodes[0]).scope


def show(name: str, values: Costs) -> None:
    """One line of the result: by the clock, and in processor time."""
    print(f"{name:<60} {values[0]:>10.3f} {values[1]:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=3)
    parser.add_argument("--rows", type=int, default=60_000, help="rows of each side")
    parser.add_argument("--share", type=float, default=0.01, help="the share that is updated")
    arguments = parser.parse_args()
    rows, turns = (2_000, 0) if arguments.tiny else (arguments.rows, arguments.runs)
    chosen = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        for side in SIDES:
            lance.write_dataset(table(np.arange(rows), chosen), str(folder / f"{side}.lance"))
        made = project(folder, arguments.cores)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        run(made, spark)
        updates, wholes = [], []
        for _ in range(turns + 1):
            for side in SIDES:
                ids = chosen.choice(rows, int(rows * arguments.share), replace=False)
                merge = lance.dataset(str(folder / f"{side}.lance")).merge_insert("id")
                merge.when_matched_update_all().execute(table(ids, chosen))
            costs, scope = run(made, spark)
            assert scope == "changed", scope
            updates.append(costs)
            updated = result(folder)
            wholes.append(run(made, spark, full_refresh=True)[0])
        assert result(folder) == updated
        spark.stop()
    update, whole = (
        tuple(statistics.median(kind) for kind in zip(*(costs[1:] or costs), strict=True))
        for costs in (updates, wholes)
    )
    show(f"joining {rows:,} x {rows:,} rows in full, s", whole)
    show(f"{arguments.share:.1%} of both sides updated, s", update)
    show("share", [some / all for some, all in zip(update, whole, strict=True)])


if __name__ == "__main__":
    main()
