"""Filters on the sides of joins, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat.lake.open import snapshot
from lancestat.query.predicates.filter import parse_filter
from lancestat.query.predicates.filter_sql import to_lance
from lancestat.runs.actions import Skip
from tests.integration import knn_oracle
from tests.integration.test_knn_runs import SparkWorld
from tests.joins.joined import vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BELOW = float(np.nextafter(np.float32(0.1), np.float32(0)))
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "size": pa.int32(),
        "name": pa.string(),
        "ok": pa.bool_(),
        "half": pa.float32(),
        "wide": pa.float64(),
    }
)
ROWS: Mapping[str, list[Any]] = {
    "id": list(range(6)),
    "size": [1, 20, None, -3, 0, 7],
    "name": ["a", "it's", "ba", None, "", "abc"],
    "ok": [True, False, None, True, None, False],
    "half": [0.1, BELOW, float("nan"), None, float("inf"), 0.5],
    "wide": [0.1, BELOW, float("nan"), None, float("-inf"), 0.0],
}
TEXTS = (
    "size < 20", "size <> 1", "size <=> null", "size = null", "not size = null", "size in (1, 7)",
    "not size in (1, null)", "size not between 0 and 7", "name like 'a%'", "name not like '%a%'",
    "ok", "not ok", "ok is null or size < 0", "not (ok and size > 0)", "half < 0.1", "half <= 0.1",
    "half > 0.1", "half >= 0.1", "half = 0.1", "half <> 0.1", "half <=> 0.1", "half in (0.1, 0.5)",
    "wide < 0.1", "wide >= 0.1", "wide = 0", "name = 'it''s' or name = ''", "half > 1e300",
    "half >= -1e300", "wide <> 0.1",
)  # fmt: skip


def test_filters_select_what_spark_selects(spark: SparkSession, tmp_path: Path) -> None:
    """The text is evaluated by Spark over Parquet, and in Lance's SQL over the same rows."""
    table = pa.table(dict(ROWS), schema=SCHEMA)
    parquet.write_table(table, tmp_path / "rows.parquet")
    dataset = lance.write_dataset(table, str(tmp_path / "rows.lance"))
    fields = {field.name: field for field in snapshot(dataset, dataset.uri).fields}
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    for text in TEXTS:
        # Two quotes are one in SQL and in ours; Spark reads them like that from 4.1 on.
        in_spark = text.replace("'it''s'", '"it\'s"')
        expected = [row.id for row in rows.where(in_spark).select("id").orderBy("id").collect()]
        pushed = to_lance(parse_filter(text, fields), fields)
        assert pushed is not None, text
        selected = dataset.to_table(columns=["id"], filter=pushed).column("id").to_pylist()
        assert sorted(selected) == expected, text


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> SparkWorld:
    lance.write_dataset(vectors(0, 40, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=9)
    lance.write_dataset(vectors(0, 60, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=13)
    world = SparkWorld(tmp_path)
    world.spark = spark
    world.declare(
        left=replace(world.join.left, where="id between 3 and 30 or id >= 100"),
        right=replace(world.join.right, where="id > 5 and key not like '%7'"),
        k=3,
    )
    return world


def converge(world: SparkWorld) -> None:
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


@pytest.mark.parametrize("min_right_rows", [10_000, 0])
def test_filtered_sides_are_joined_between_changes(world: SparkWorld, min_right_rows: int) -> None:
    world.declare(join="left_outer", rank=True, min_right_rows=min_right_rows)
    lance.dataset(world.uri("l")).delete("id in (4, 11)")
    lance.dataset(world.uri("r")).delete("id in (6, 20, 21)")
    converge(world)
    lance.write_dataset(vectors(98, 9, name="v"), world.uri("l"), mode="append")
    converge(world)
    lance.write_dataset(vectors(98, 9, name="w"), world.uri("r"), mode="append")
    converge(world)
    assert world.scopes == ["full", "new_left", "new_right"]


def test_a_filter_that_no_row_passes_leaves_nothing(world: SparkWorld) -> None:
    world.declare(right=replace(world.join.right, where="id < 0"), join="left_outer")
    converge(world)
    assert {row["_distance"] for row in world.rows()} == {None}
    world.declare(left=replace(world.join.left, where="id < 0"))
    converge(world)
    assert world.rows() == []


@pytest.mark.parametrize("strategy", ["exact", "ivf"])
def test_large_filtered_sides_equal_brute_force(world: SparkWorld, strategy: str) -> None:
    """Rows are chosen by NumPy, and compared in float64."""
    random = np.random.default_rng(5)
    left, right = (random.normal(size=(n, 8)).astype(np.float32) for n in (1500, 4000))
    sizes = random.integers(0, 50, 4000)
    chosen = np.flatnonzero(sizes < 20)
    for name, rows, column in (("l", left, "v"), ("r", right, "w")):
        vector = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 8)
        table = pa.table({"id": np.arange(len(rows)), column: vector})
        if name == "r":
            table = table.append_column("size", pa.array(sizes))
        lance.write_dataset(table, world.uri(name), mode="overwrite", max_rows_per_file=900)
    dataset = lance.dataset(world.uri("r"))
    dataset.delete("id >= 1000 and id < 1100")
    chosen = chosen[(chosen < 1000) | (chosen >= 1100)]
    dataset.create_scalar_index("size", "BTREE")
    world.declare(
        left=replace(world.join.left, where="id >= 700", select=("id",)),
        right=replace(world.join.right, where="size < 20", select=("id", "size")),
        min_right_rows=0,
    )
    if strategy == "ivf":
        world.declare(mode="approx", nprobes=10_000)
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert result.figures is not None
    counts = result.figures.counts
    assert (counts.left_rows, counts.right_rows) == (800, len(chosen))
    matrix = knn_oracle.distances(left[700:], right[chosen], "l2").astype(np.float32)
    order = np.argsort(matrix, axis=1, kind="stable")[:, :3]
    expected = [
        (700 + row, int(chosen[at]), int(sizes[chosen[at]]))
        for row, line in enumerate(order)
        for at in line
    ]
    rows = [(row["id"], row["id_right"], row["size"]) for row in world.rows()]
    assert rows == expected
