"""Near-duplicates of a table as a node, beside the duplicate pairs of pylance.

    python benchmarks/duplicates.py           # 20,000 rows of dimension 64, local[2]
    python benchmarks/duplicates.py --tiny    # a smoke run

A tenth of the rows are planted: copies of others with noise of all sizes up to `max_distance`, and
copies of copies, so that there are groups. True pairs are those of one product of matrices, in
float64 where float32 leaves doubt. The node's run is a whole one, from the plan to the commit, in a
session that is warm; a second one follows a change of `keep`, which only groups again, and a third
one may use IVF lists, where the planner finds that cheaper.

pylance's `find_duplicate_pairs` reads the pairs off a vector index, whose partitions it compares
one by one: pairs across partitions are omitted. Its time is given with that of building an index of
as many partitions, IVF_FLAT, in which stored vectors are compared.

The grouping alone is measured over ten million random pairs.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from measure import processes, spark_parser, timed

from lancestat import Project
from lancestat.joins.duplicates.action import DuplicatesFigures
from lancestat.joins.duplicates.grouping import components
from lancestat.spark.session import start_session
from lancestat.spec.model import Target

MAX_DISTANCE = 1.0
RECALL = 0.95
DIMENSION = 64

Pairs = set[tuple[int, int]]


def planted(rows: int) -> np.ndarray:
    """Return normal vectors, of which a tenth are copies with a little noise."""
    chosen = np.random.default_rng(7)
    values = chosen.standard_normal((rows, DIMENSION)).astype(np.float32)
    for row in range(rows - rows // 10, rows):
        noise = chosen.standard_normal(DIMENSION)
        noise *= chosen.random() * np.sqrt(MAX_DISTANCE) / np.linalg.norm(noise)
        values[row] = values[chosen.integers(0, row)] + noise
    chosen.shuffle(values)
    return values


def true_pairs(values: np.ndarray) -> Pairs:
    """Return all pairs within the distance, by squared distances in float64 near the limit."""
    squares, pairs = np.einsum("nd,nd->n", values, values), set[tuple[int, int]]()
    for start in range(0, len(values), 1_000):
        some = values[start : start + 1_000]
        distances = squares[start : start + 1_000, None] + squares - 2 * some @ values.T
        left, right = np.nonzero(distances < MAX_DISTANCE * 1.01)
        left += start
        wide = values[left].astype("f8") - values[right]
        near = (np.einsum("nd,nd->n", wide, wide).astype("f4") <= MAX_DISTANCE) & (left < right)
        pairs.update(zip(left[near].tolist(), right[near].tolist(), strict=True))
    return pairs


def of_pylance(uri: str) -> Pairs:
    """Return the pairs that pylance reads off the index, by the ids of their rows."""
    dataset = lance.dataset(uri)
    ids = dataset.to_table(columns=["id"], with_row_id=True)
    id_of = dict(zip(ids["_rowid"].to_pylist(), ids["id"].to_pylist(), strict=True))
    # As `lance.vector.find_duplicate_pairs` does, whose module needs tqdm.
    with dataset._ds.find_duplicate_pairs(
        "emb", MAX_DISTANCE, memory_limit=None, max_concurrency=None
    ) as reader:
        table = reader.read_all()
    ends = (table[name].to_pylist() for name in ("row_id_a", "row_id_b"))
    pairs = zip(*ends, strict=True)
    return {tuple(sorted((id_of[one], id_of[other]))) for one, other in pairs}


def processor_seconds() -> float:
    """Processor time of this process and those that it has started."""
    return sum(process.cpu_seconds for process in processes())


def show(name: str, value: float) -> None:
    """One line of the result."""
    print(f"{name:<60} {value:>10.3f}", flush=True)


def project(folder: Path, cores: int, order_by: list[str], recall: float | None = None) -> Project:
    """Return a project with the node, which is approximate with a recall."""
    target = {"state": "state", "spark": {"master": f"local[{cores}]"}}
    project = {"name": "benchmark", "default_target": "dev", "targets": {"dev": target}}
    node = {
        "name": "same",
        "lance": "rows.lance",
        "vector": "emb",
        "max_distance": MAX_DISTANCE,
        "keep": {"order_by": order_by},
        "select": ["id"],
        "output": {"lance": "same.lance"},
        "pairs": {"lance": "pairs.lance"},
        **({"mode": "approx", "approx": {"recall": recall}} if recall else {}),
    }
    (folder / "specs").mkdir(exist_ok=True)
    (folder / "lancestat_project.yml").write_text(json.dumps(project), encoding="utf-8")
    (folder / "specs" / "same.yml").write_text(json.dumps({"duplicates": [node]}), encoding="utf-8")
    return Project.load(folder)


def main() -> None:
    """Measure, and print."""
    parser = spark_parser(__doc__, runs=1)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the table")
    arguments = parser.parse_args()
    rows = 2_000 if arguments.tiny else arguments.rows
    values = planted(rows)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSION)
    truth = true_pairs(values)
    show(f"pairs of {rows:,} rows of dimension {DIMENSION}", len(truth))
    with tempfile.TemporaryDirectory(prefix="lancestat-benchmark-") as name:
        folder = Path(name)
        uri = str(folder / "rows.lance")
        lance.write_dataset(pa.table({"id": range(rows), "emb": vectors}), uri)
        target = Target("dev", name, spark_master=f"local[{arguments.cores}]")
        spark = start_session(target, "benchmark")
        for what, order_by, recall in (
            (None, ["id"], None),
            ("found and grouped", ["id"], None),
            ("grouped again", ["id desc"], None),
            ("approximate", ["id"], RECALL),
        ):
            made = project(folder, arguments.cores, order_by, recall)
            is_full = order_by == ["id"]
            before = processor_seconds()
            seconds, result = timed(
                lambda made=made, is_full=is_full: made.run(full_refresh=is_full, session=spark)
            )
            used = processor_seconds() - before
            assert result.ok, result.nodes[0].text
            if what is not None:
                show(f"lancestat, {what}, s", seconds)
                show(f"lancestat, {what}, s of processor time", used)
                table = lance.dataset(str(folder / "pairs.lance")).to_table()
                ends = (table[name].to_pylist() for name in ("id", "id_right"))
                found = truth & set(zip(*ends, strict=True))
                show(f"lancestat, {what}, recall", len(found) / len(truth))
            figures = result.nodes[0].figures
            if recall is not None and isinstance(figures, DuplicatesFigures):
                accuracy = figures.join.accuracy
                show(f"lancestat, {what}, recall by its own measure", accuracy.recall or 0.0)
                show(f"lancestat, {what}, lists that a row visits", accuracy.nprobes or 0)
        spark.stop()
        for partitions in (1, 4) if arguments.tiny else (1, 16, 64):
            seconds, _ = timed(
                lambda partitions=partitions: lance.dataset(uri).create_index(
                    "emb", "IVF_FLAT", metric="l2", num_partitions=partitions, replace=True
                )
            )
            show(f"pylance, an index of {partitions} partitions, s", seconds)
            before = processor_seconds()
            seconds, pairs = timed(lambda: of_pylance(uri))
            used = processor_seconds() - before
            show(f"pylance, pairs in {partitions} partitions, s", seconds)
            show(f"pylance, pairs in {partitions} partitions, s of processor time", used)
            show(f"pylance, recall with {partitions} partitions", len(truth & pairs) / len(truth))
    many = 100_000 if arguments.tiny else 10_000_000
    left, right = np.random.default_rng(8).integers(0, many, (2, many))
    before = processor_seconds()
    seconds, groups = timed(lambda: components(left, right))
    used = processor_seconds() - before
    show(f"groups of {many:,} random pairs, s", seconds)
    show(f"groups of {many:,} random pairs, s of processor time", used)
    assert len(groups.rows)


if __name__ == "__main__":
    main()
