"""A join that is brought up to date after changes, beside joining in full.

    python benchmarks/knn_updates.py           # 60,000 x 60,000 rows of dimension 128, local[2]
    python benchmarks/knn_updates.py --tiny    # a smoke run

Each turn updates a share of the rows of both tables with other vectors, runs the join, which brings
its result up to date, and then joins in full. Runs are whole ones, from the plan to the record, in
a session that is warm, and medians of three turns after one that warms up. Both results of the last
turn have the same rows.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from measure import spark_parser, timed

from lancestat import Project
from lancestat.joins.action import join_figures
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

DIMENSION, K = 128, 10
SIDES = ("queries", "items")


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


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<60} {value:>10.3f}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=3)
    parser.add_argument("--rows", type=int, default=60_000, help="rows of each side")
    parser.add_argument("--share", type=float, default=0.01, help="the share that is updated")
    arguments = parser.parse_args()
    rows = 2_000 if arguments.tiny else arguments.rows
    chosen = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        for side in SIDES:
            lance.write_dataset(table(np.arange(rows), chosen), str(folder / f"{side}.lance"))
        made = project(folder, arguments.cores)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        assert made.run(session=spark).ok
        updates, wholes = [], []
        for _ in range(arguments.runs + 1):
            for side in SIDES:
                ids = chosen.choice(rows, int(rows * arguments.share), replace=False)
                merge = lance.dataset(str(folder / f"{side}.lance")).merge_insert("id")
                merge.when_matched_update_all().execute(table(ids, chosen))
            seconds, run = timed(lambda: made.run(session=spark))
            assert join_figures(run.nodes[0]).scope == "changed", run.nodes[0].text
            updates.append(seconds)
            updated = result(folder)
            seconds, run = timed(lambda: made.run(full_refresh=True, session=spark))
            assert run.ok, run.nodes[0].text
            wholes.append(seconds)
        assert result(folder) == updated
        spark.stop()
    update, whole = (statistics.median(seconds[1:]) for seconds in (updates, wholes))
    show(f"joining {rows:,} x {rows:,} rows in full, s", whole)
    show(f"{arguments.share:.1%} of both sides updated, s", update)
    show("share", update / whole)


if __name__ == "__main__":
    main()
