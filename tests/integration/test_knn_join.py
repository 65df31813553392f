"""Joins of Lance tables by every strategy, held to brute force in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import UsageError
from lancestat.joins.knn_join import run_join
from lancestat.joins.record import OutputFormat
from lancestat.joins.search.cost_model import Decision, JoinSize, Strategy, choose
from lancestat.joins.search.metrics import L2, metric_named
from lancestat.joins.search.work import (
    Increment,
    JoinKind,
    JoinOutcome,
    JoinRequest,
    JoinWork,
    Scope,
    SideSource,
)
from lancestat.joins.spark.engine import Engine
from lancestat.spark.versions import has_nearest_by_join
from tests.examples import each, sample
from tests.integration.knn_oracle import (
    Row,
    Vector,
    assert_same,
    awkward,
    joined,
    pinned,
    table,
    write,
)
from tests.joins.search.counted_distances import assert_counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

METRICS = ("l2", "cosine", "dot")
KINDS = ("inner", "left_outer")
LISTS = 4
# Strategies with exact results: ivf is exact when every list is visited.
STRATEGIES = (*(("spark",) if has_nearest_by_join() else ()), "exact", "ivf")


@dataclass
class Tables:
    """Two tables in a folder, and joins of them."""

    spark: SparkSession
    folder: Path

    def write(self, side: str, vectors: list[Vector], type: pa.DataType, files: int = 3) -> None:
        write(self.folder / f"{side}.lance", vectors, type, files)

    def append(self, side: str, vectors: list[Vector], type: pa.DataType, first: int) -> None:
        uri = str(self.folder / f"{side}.lance")
        lance.write_dataset(table(vectors, type, first), uri, mode="append")

    def work(self, request: JoinRequest, **changes: object) -> JoinWork:
        left = SideSource("emb", ("id",), pinned(self.folder / "left.lance"))
        right = SideSource("emb", ("id", "name"), pinned(self.folder / "right.lance"))
        output = str(self.folder / "output.lance")
        work = JoinWork("join", request, left, right, OutputFormat.LANCE, output)
        return replace(work, **changes)  # type: ignore[arg-type]

    def run(self, request: JoinRequest, **changes: object) -> JoinOutcome:
        engine = Engine(self.spark, str(self.folder / "scratch"), f"run-{np.random.random()}")
        return run_join(engine, self.work(request, **changes))

    def rows(self) -> list[Row]:
        output_table = lance.dataset(str(self.folder / "output.lance")).to_table()
        for right, name in zip(
            output_table["id_right"].to_pylist(), output_table["name"].to_pylist(), strict=True
        ):
            assert name == (None if right is None else f"row {right}")
        columns = (
            output_table[name].to_pylist() for name in ("id", "id_right", "_distance", "_rank")
        )
        return list(zip(*columns, strict=True))


def assert_distances(tables: Tables, outcome: JoinOutcome) -> None:
    """The distances that the run counted are those of the rows that it wrote."""
    lines = [(left, distance) for left, _, distance, _ in tables.rows()]
    assert outcome.distances is not None
    assert outcome.distances.left_rows == outcome.counts.left_rows
    assert_counted(outcome.distances, lines)


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path)


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Approximate joins use IVF lists and others split, however small the sides are."""

    def chosen(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
        if request.is_approximate:
            return Decision(Strategy.IVF, "asked for", lists=LISTS)
        return choose(request, size, cores)

    monkeypatch.setattr("lancestat.joins.planner.choose", chosen)
    monkeypatch.setattr("lancestat.joins.spark.cells.SHUFFLE_SECONDS", 0)


def request(k: int, metric: str, kind: str = "inner", strategy: str = "exact") -> JoinRequest:
    return JoinRequest(
        k=k,
        metric=metric_named(metric),
        kind=JoinKind(kind),
        nprobes=LISTS if strategy == "ivf" else None,
        min_right_rows=1 << 30 if strategy == "spark" else 0,
        with_rank=True,
    )


@pytest.mark.parametrize(("strategy", "metric", "kind"), each(STRATEGIES, METRICS, KINDS))
def test_awkward_rows_have_the_neighbours_of_brute_force(
    tables: Tables, strategy: str, metric: str, kind: str
) -> None:
    rng = np.random.default_rng(len(metric) + len(kind))
    left, right = awkward(rng, 60, 4), awkward(rng, 150, 4)
    tables.write("left", left, pa.list_(pa.float32(), 4))
    tables.write("right", right, pa.list_(pa.float32(), 4))

    outcome = tables.run(request(7, metric, kind, strategy))

    assert outcome.strategy == strategy
    assert outcome.accuracy.recall == (1.0 if strategy == "ivf" else None)
    assert_same(tables.rows(), joined(left, right, 7, metric, kind))
    assert_distances(tables, outcome)


TYPES = (
    pa.list_(pa.float16(), 5),
    pa.list_(pa.float32(), 5),
    pa.list_(pa.float64(), 5),
    pa.list_(pa.float16()),
    pa.list_(pa.float64()),
    pa.large_list(pa.float32()),
)


@pytest.mark.parametrize(("type", "strategy"), each(TYPES, STRATEGIES), ids=str)
def test_every_type_of_vector_is_compared_in_float32(
    tables: Tables, strategy: str, type: pa.DataType
) -> None:
    rng = np.random.default_rng(5)
    precision = np.float16 if pa.types.is_float16(type.value_type) else np.float64
    left = rng.standard_normal((20, 5)).astype(precision).tolist()
    right = [None, *rng.standard_normal((80, 5)).astype(precision).tolist()]
    tables.write("left", left, type)
    tables.write("right", right, type)

    tables.run(request(4, "l2", "inner", strategy))

    assert_same(tables.rows(), joined(left, right, 4, "l2", "inner"))


FRUITLESS: dict[str, tuple[list[Vector], list[Vector]]] = {
    "no left": ([], [[1.0, 2.0]]),
    "no right": ([[1.0, 2.0]], []),
    "neither": ([], []),
    "right without vectors": ([[1.0, 2.0]], [None]),
    "left without vectors": ([None], [[1.0, 2.0]]),
}


@pytest.mark.parametrize(("sides", "strategy", "kind"), each(FRUITLESS, STRATEGIES, KINDS))
def test_sides_without_rows_to_match_are_joined(
    tables: Tables, strategy: str, kind: str, sides: str
) -> None:
    left, right = FRUITLESS[sides]
    tables.write("left", left, pa.list_(pa.float32(), 2))
    tables.write("right", right, pa.list_(pa.float32(), 2))

    outcome = tables.run(request(3, "l2", kind, strategy))

    assert_same(tables.rows(), joined(left, right, 3, "l2", kind))
    assert outcome.counts.unmatched_left_rows == sum(
        1 for vector in left if vector is None or all(other is None for other in right)
    )
    assert outcome.counts.excluded_right_rows == sum(vector is None for vector in right)


def test_deleted_rows_of_either_side_are_not_joined(tables: Tables) -> None:
    rng = np.random.default_rng(9)
    left, right = awkward(rng, 40, 3), awkward(rng, 90, 3)
    tables.write("left", left, pa.list_(pa.float32(), 3))
    tables.write("right", right, pa.list_(pa.float32(), 3))
    for side in ("left", "right"):
        lance.dataset(str(tables.folder / f"{side}.lance")).delete("id % 3 = 1")

    tables.run(request(5, "l2", "left_outer"))

    kept_left = [number for number in range(40) if number % 3 != 1]
    kept_right = [number for number in range(90) if number % 3 != 1]
    rows = joined(
        [left[n] for n in kept_left], [right[n] for n in kept_right], 5, "l2", "left_outer"
    )
    assert_same(
        tables.rows(),
        [
            (kept_left[a], None if b is None else kept_right[b], distance, rank)
            for a, b, distance, rank in rows
        ],
    )


@pytest.mark.parametrize(("metric", "kind"), each(METRICS, KINDS))
def test_joins_of_new_left_rows_equal_a_full_join(tables: Tables, metric: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    type = pa.list_(pa.float32(), 3)
    left, right = awkward(rng, 50, 3), awkward(rng, 4, 3)
    tables.write("left", left, type)
    tables.write("right", right, type)
    asked = request(6, metric, kind)
    outcome = tables.run(asked)

    for count in (30, 25):
        before = {fragment.id for fragment in pinned(tables.folder / "left.lance").fragments}
        more = awkward(rng, count, 3)
        tables.append("left", more, type, len(left))
        left += more
        after = {fragment.id for fragment in pinned(tables.folder / "left.lance").fragments}
        new = frozenset(after - before)
        known = (outcome.output, outcome.counts)
        increment = Increment(Scope.NEW_LEFT, new, frozenset(), *known)
        outcome = tables.run(asked, increment=increment)

        expected = joined(left, right, 6, metric, kind)
        assert_same(tables.rows(), expected)
        assert outcome.pairs < len(left) * len(right)
        assert outcome.counts.left_rows == len(left)
        assert outcome.counts.right_rows == len(right)
        fresh = tables.run(asked)
        assert fresh.counts == outcome.counts
        outcome = replace(outcome, output=fresh.output)


@pytest.mark.parametrize("strategy", sample(STRATEGIES, 1))
def test_vectors_of_different_lengths_are_an_error_that_names_the_row(
    tables: Tables, strategy: str
) -> None:
    tables.write("left", [[0.0, 1.0]], pa.list_(pa.float32()))
    tables.write("right", [[0.0, 1.0], [1.0, 2.0], [1.0, 2.0, 3.0]], pa.list_(pa.float32()))

    with pytest.raises(UsageError, match=r"LS456.*right side.* of 3 elements in row 2"):
        tables.run(request(1, "l2", "inner", strategy))
    assert not (tables.folder / "output.lance" / "_versions").exists()


def test_sides_with_different_vector_lengths_are_refused_by_their_types(tables: Tables) -> None:
    tables.write("left", [[0.0, 1.0]], pa.list_(pa.float32(), 2))
    tables.write("right", [[0.0, 1.0, 2.0]], pa.list_(pa.float32(), 3))

    with pytest.raises(UsageError, match=r"LS456.* of 2 elements.* of 3"):
        tables.run(request(1, "l2"))


def test_a_column_that_holds_no_vectors_is_an_error(tables: Tables) -> None:
    tables.write("left", [[0.0, 1.0]], pa.list_(pa.float32(), 2))
    tables.write("right", [[0.0, 1.0]], pa.list_(pa.float32(), 2))
    work = tables.work(request(1, "l2"))
    work = replace(work, right=replace(work.right, vector="name"))

    with pytest.raises(UsageError, match="LS455"):
        run_join(Engine(tables.spark, str(tables.folder), "run"), work)


def test_a_vector_index_of_the_metric_is_used_and_its_recall_reported(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(11)
    left, right = rng.standard_normal((300, 16)).tolist(), rng.standard_normal((4000, 16)).tolist()
    right[7], right[8] = None, [float("nan")] * 16
    tables.write("left", left, pa.list_(pa.float32(), 16))
    tables.write("right", right, pa.list_(pa.float32(), 16))
    uri = str(tables.folder / "right.lance")
    lance.dataset(uri).create_index(
        "emb", "IVF_PQ", metric="cosine", num_partitions=8, num_sub_vectors=8
    )
    lance.dataset(uri).delete("id = 100")
    asked = replace(request(5, "cosine"), nprobes=None, recall=0.9)
    seen: list[JoinSize] = []

    def chosen(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
        seen.append(size)
        return Decision(Strategy.INDEX, "asked for")

    monkeypatch.setattr("lancestat.joins.planner.choose", chosen)
    outcome = tables.run(asked)

    assert seen[-1].has_index
    assert outcome.strategy == "index"
    assert outcome.counts.excluded_right_rows == 2
    remaining: list[Vector] = [None if number == 100 else row for number, row in enumerate(right)]
    expected = joined(left, remaining, 5, "cosine", "inner")
    distances = {(a, b): d for a, b, d, _ in tables.rows()}
    truth = {(a, b): d for a, b, d, _ in expected}
    both = distances.keys() & truth.keys()
    recall = len(both) / len(truth)
    assert recall >= 0.85
    assert_distances(tables, outcome)
    assert outcome.accuracy.recall == pytest.approx(recall, abs=0.1)
    assert all(distances[pair] == pytest.approx(truth[pair], rel=1e-5) for pair in both)
    assert len(distances) == len(truth)

    tables.run(replace(asked, metric=L2, recall=None, nprobes=1))
    assert not seen[-1].has_index
