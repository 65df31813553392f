"""Joins of rows with equal keys, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyspark.sql import functions as sf

import lancestat
from lancestat.errors import LancestatError
from lancestat.joins.action import JoinAction
from lancestat.runs.actions import Skip
from tests.examples import sample
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.joins.joined import in_order, vectors
from tests.joins.records import join_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

__all__ = ["world"]
Matrix = NDArray[np.float32]
Line = tuple[int, int | None, float | None]


def frame(
    spark: SparkSession, rows: Matrix, keys: Sequence[tuple[Any, ...]], type: str
) -> DataFrame:
    names = [part.split()[0] for part in type.split(", ")]
    values = [
        (number, row, *key)
        for number, (row, key) in enumerate(zip(rows.tolist(), keys, strict=True))
    ]
    parts = spark.sparkContext.parallelize(values, 3)
    assert len(names) == len(keys[0])
    return spark.createDataFrame(parts, f"id long, emb array<float>, {type}")


def expected(
    left: Matrix,
    right: Matrix,
    left_keys: Sequence[tuple[Any, ...]],
    right_keys: Sequence[tuple[Any, ...]],
    k: int,
    *,
    is_outer: bool = False,
    most: float = np.inf,
) -> list[Line]:
    """Every pair in float64; those with equal keys count."""
    matrix = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(axis=2)
    lines: list[Line] = []
    for number, key in enumerate(left_keys):
        equal = [at for at, other in enumerate(right_keys) if None not in key and other == key]
        near = sorted((float(np.float32(matrix[number, at])), at) for at in equal)
        near = [(distance, at) for distance, at in near if distance <= most][:k]
        lines += [(number, at, distance) for distance, at in near]
        if is_outer and not near:
            lines.append((number, None, None))
    return lines


def joined(left: DataFrame, right: DataFrame, k: int | str, **options: Any) -> list[Line]:
    chosen = {"select_left": ["id"], "select_right": ["id"], "min_right_rows": 0}
    chosen |= {"left_vector": "emb", "right_vector": "emb"} | options
    result = lancestat.knn_join(left, right, k=k, **chosen)
    return [(row.id, row.id_right, row._distance) for row in result.collect()]


def assert_same(actual: Sequence[Line], other: Sequence[Line]) -> None:
    assert [line[:2] for line in actual] == [line[:2] for line in other]
    ours, theirs = ([line[2] or 0 for line in lines] for lines in (actual, other))
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.fixture(scope="module")
def sides() -> tuple[Matrix, Matrix, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """A third of the rows have one key; some have none, or one that the other side lacks."""
    random = np.random.default_rng(3)
    left, right = (random.normal(size=(n, 6)).astype(np.float32) for n in (400, 900))
    shops = [None, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    left_keys = [(shops[n], "xyz"[n % 3]) for n in random.integers(0, 14, 400)]
    right_keys = [(shops[n], "xyz"[n % 3]) for n in random.integers(0, 15, 900)]
    return left, right, left_keys, right_keys


@pytest.mark.parametrize("options", [{}, {"join": "left_outer", "max_distance": 3.0}])
def test_neighbours_have_equal_keys(
    spark: SparkSession,
    sides: tuple[Matrix, Matrix, list[tuple[Any, ...]], list[tuple[Any, ...]]],
    options: dict[str, Any],
) -> None:
    left, right, left_keys, right_keys = sides
    asked = frame(spark, left, left_keys, "shop int, area string")
    offered = frame(spark, right, right_keys, "store long, area string")

    ours = joined(asked, offered, 4, on=[("shop", "store"), "area"], **options)

    most, is_outer = options.get("max_distance", np.inf), "join" in options
    wanted = expected(left, right, left_keys, right_keys, 4, is_outer=is_outer, most=most)
    assert_same(ours, wanted)


def test_spark_joins_the_same_rows_by_keys(
    spark: SparkSession,
    sides: tuple[Matrix, Matrix, list[tuple[Any, ...]], list[tuple[Any, ...]]],
) -> None:
    """Spark joins by its own `=`, and ranks by a window."""
    left, right, left_keys, right_keys = sides
    asked = frame(spark, left, left_keys, "shop int, area string")
    offered = frame(spark, right, right_keys, "store long, area string")

    ours = joined(asked, offered, 3, on=[("shop", "store"), "area"])

    other = offered.select(
        sf.col("id").alias("other"),
        sf.col("emb").alias("theirs"),
        "store",
        sf.col("area").alias("z"),
    )
    square = sf.aggregate(
        sf.zip_with("emb", "theirs", lambda a, b: (a.cast("double") - b.cast("double")) ** 2),
        sf.lit(0.0),
        lambda total, value: total + value,
    ).cast("float")
    pairs = asked.join(other, (sf.col("shop") == sf.col("store")) & (sf.col("area") == sf.col("z")))
    ranked = pairs.select("id", "other", square.alias("square"))
    ranked.createOrReplaceTempView("pairs_with_equal_keys")
    nearest = spark.sql(
        "select id, other from (select *, row_number() over (partition by id order by square,"
        " other) as rank from pairs_with_equal_keys) where rank <= 3 order by id, rank"
    )
    assert [line[:2] for line in ours] == [(row.id, row.other) for row in nearest.collect()]


def test_keys_that_the_sides_do_not_share_match_nothing(spark: SparkSession) -> None:
    one = frame(spark, np.ones((3, 2), np.float32), [("a",), (None,), ("b",)], "k string")
    two = frame(spark, np.ones((2, 2), np.float32), [(None,), ("c",)], "k string")
    assert joined(one, two, 2, on=["k"]) == []
    outer = joined(one, two, 2, on=["k"], join="left_outer")
    assert outer == [(number, None, None) for number in range(3)]


@pytest.mark.parametrize(
    ("on", "code"),
    [
        (["k"], "LS462"),
        ([("k", "k"), ("k", "nope")], "LS454"),
        (["emb"], "LS462"),
        ("k", "LS460"),
        ([("k",)], "LS460"),
    ],
)
def test_keys_that_cannot_be_compared_are_refused_before_anything_is_read(
    spark: SparkSession, on: Any, code: str
) -> None:
    fails = sf.expr("cast(raise_error('it was read') as array<float>)").alias("emb")
    one = spark.range(3).select("id", fails, sf.lit("a").alias("k"))
    two = spark.range(3).select("id", fails, sf.lit(1).alias("k"))
    with pytest.raises(LancestatError) as caught:
        joined(one, two, 1, on=on)
    assert caught.value.code == code


def keyed(start: int, count: int, name: str) -> pa.Table:
    rows = vectors(start, count, name=name)
    shops = [None if n % 10 == 9 else n % 4 for n in range(start, start + count)]
    return rows.append_column("shop" if name == "v" else "store", pa.array(shops, pa.int32()))


@pytest.fixture
def keyed_world(world: SparkWorld) -> SparkWorld:
    for name, column in (("l", "v"), ("r", "w")):
        rows = keyed(0, 40, column)
        lance.write_dataset(rows, world.uri(name), mode="overwrite", max_rows_per_file=9)
    world.declare(on=(("shop", "store"),), join="left_outer", k=3, metric="l2", rank=True)
    return world


def assert_excluded(world: SparkWorld) -> None:
    """The right rows that the last run left out are those without a key or a usable vector."""
    counts = join_records(world.state)["near"].counts
    rows = lance.dataset(world.uri("r")).to_table().to_pylist()
    cannot = [r for r in rows if r["store"] is None or r["w"] is None or np.isnan(r["w"]).any()]
    assert counts.excluded_right_rows == len(cannot)


def test_runs_between_changes_have_the_rows_of_a_full_join(keyed_world: SparkWorld) -> None:
    world = keyed_world
    converge(world)
    assert_excluded(world)
    lance.write_dataset(keyed(100, 9, "v"), world.uri("l"), mode="append")
    converge(world)
    lance.write_dataset(keyed(100, 9, "w"), world.uri("r"), mode="append")
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.notes == ("only 9 new right rows are searched, and merged with the result",)
    assert "merged with the neighbours of the last run" in action.decision.why
    converge(world)
    lance.dataset(world.uri("r")).update({"store": "0"}, where="id = 3")
    converge(world)
    assert world.scopes == ["full", "new_left", "new_right", "changed"]
    # A column that is compared, and not shown.
    world.declare(left=replace(world.join.left, where="id >= 5"), right=replace(
        world.join.right, where="id != 8"))  # fmt: skip
    converge(world)
    assert isinstance(world.action(), Skip)


def random_rows(random: np.random.Generator, name: str, keys: Sequence[Any]) -> pa.Table:
    """Rows of some of the keys, of which some have no key and some no vector."""
    start, count = int(random.integers(0, 1 << 40)), int(random.integers(1, 25))
    rows = vectors(start, count, name=name)
    chosen = [keys[n] for n in random.integers(0, len(keys), count)]
    return rows.append_column("shop" if name == "v" else "store", pa.array(chosen, pa.int32()))


@pytest.mark.parametrize("seed", sample([5, 0, 1, 2, 3, 4], 2))
def test_histories_of_appended_rows_have_the_rows_of_a_full_join(
    world: SparkWorld, seed: int
) -> None:
    """Groups come into being, grow beyond k, or have rows on one side alone."""
    random = np.random.default_rng(seed)
    for name, column in (("l", "v"), ("r", "w")):
        rows = random_rows(random, column, [0, 1, 2, None])
        lance.write_dataset(rows, world.uri(name), mode="overwrite", max_rows_per_file=9)
    world.declare(
        on=(("shop", "store"),),
        join=("inner", "left_outer")[seed % 2],
        output_format=("lance", "lance", "parquet")[seed % 3],
        output_uri=str(world.folder / "result"),
        k=int(random.integers(1, 6)),
        metric=("l2", "dot")[seed // 2 % 2],
        rank=seed % 2 == 0,
        mode="approx" if seed == 5 else "exact",
        recall=0.9 if seed == 5 else None,
        right=replace(world.join.right, where="other = 0" if seed >= 3 else None),
    )
    converge(world)
    wanted = ["full"]
    for side in ["r", *random.permutation(["l", "r", "r"])]:
        keys = [[0], [1, 3], [2, 4, None], [None]][int(random.integers(0, 4))]
        more = random_rows(random, "v" if side == "l" else "w", keys)
        lance.write_dataset(more, world.uri(side), mode="append")
        converge(world)
        wanted.append("new_left" if side == "l" else "new_right")
    assert world.scopes == wanted


def test_only_groups_of_new_right_rows_are_compared_again(world: SparkWorld) -> None:
    random = np.random.default_rng(4)
    for name, column, count in (("l", "v", 300), ("r", "w", 500)):
        keys = random.integers(0, 50, count).astype(np.int32)
        key = "shop" if name == "l" else "store"
        rows = vectors(0, count, name=column).append_column(key, pa.array(keys))
        lance.write_dataset(rows, world.uri(name), mode="overwrite", max_rows_per_file=90)
    world.declare(on=(("shop", "store"),), k=4, metric="l2")
    converge(world)
    more = vectors(1000, 3, name="w").append_column("store", pa.array([7, 7, 60], pa.int32()))
    lance.write_dataset(more, world.uri("r"), mode="append")
    [result] = world.run().nodes
    assert result.figures is not None and result.figures.scope == "new_right"
    table = lance.dataset(world.uri("l")).to_table()
    usable = [row is not None and np.isfinite(row).all() for row in table["v"].to_pylist()]
    rows = sum(ok and shop == 7 for ok, shop in zip(usable, table["shop"].to_pylist(), strict=True))
    new = sum(row is not None and np.isfinite(row).all() for row in more["w"].to_pylist()[:2])
    assert rows and new and result.figures.pairs == rows * new
    assert in_order(world.rows()) == in_order(world.expected())


def test_new_right_rows_without_vectors_follow_rows_that_have_some(world: SparkWorld) -> None:
    """Where no left row has a vector either, that of the old rows tells how long they are."""
    lists = pa.list_(pa.float32())

    def rows(first: int, key: str, name: str, values: list[list[float] | None]) -> pa.Table:
        ids = range(first, first + len(values))
        columns = {"id": list(ids), "other": [0] * len(values), name: pa.array(values, lists)}
        return pa.table({**columns, key: pa.array([id % 2 for id in ids], pa.int32())})

    left, right = [None] * 4, [[1.0, 2.0, 3.0, 4.0]] * 5 + [None]
    lance.write_dataset(rows(0, "shop", "v", left), world.uri("l"), mode="overwrite")
    lance.write_dataset(rows(0, "store", "w", right), world.uri("r"), mode="overwrite")
    world.declare(
        on=(("shop", "store"),),
        join="left_outer",
        k=3,
        left=replace(world.join.left, select=("id",)),
        right=replace(world.join.right, select=("id",)),
    )
    [result] = world.run().nodes
    assert result.status == "success", result.message
    lance.write_dataset(rows(10, "store", "w", [None] * 2), world.uri("r"), mode="append")
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert result.figures is not None and result.figures.scope == "new_right"
    assert result.figures.counts.unmatched_left_rows == 4


def test_pairs_are_the_sum_over_groups(spark: SparkSession, world: SparkWorld) -> None:
    """Some groups are far larger than others, and larger than a cell."""
    random = np.random.default_rng(6)
    shops = np.where(random.random(9000) < 0.3, 0, random.integers(1, 400, 9000))
    stores = np.where(random.random(5000) < 0.3, 0, random.integers(1, 400, 5000))
    left, right = (random.normal(size=(n, 16)).astype(np.float32) for n in (9000, 5000))
    for name, rows, column, key, keys in (
        ("l", left, "v", "shop", shops), ("r", right, "w", "store", stores),
    ):  # fmt: skip
        vector = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 16)
        table = pa.table({"id": np.arange(len(rows)), column: vector, key: keys})
        lance.write_dataset(table, world.uri(name), mode="overwrite", max_rows_per_file=2500)
    world.declare(
        on=(("shop", "store"),),
        left=replace(world.join.left, select=("id",)),
        right=replace(world.join.right, select=("id",)),
        k=5,
        mode="approx",
        recall=0.9,
    )
    [result] = world.run().nodes
    assert result.status == "success", result.message
    assert result.figures is not None and result.figures.strategy == "exact"
    pairs = sum(int((shops == key).sum() * (stores == key).sum()) for key in range(400))
    assert result.figures.pairs == pairs
    ours = [(row["id"], row["id_right"]) for row in world.rows()]
    wanted = []
    for number in range(9000):
        equal = np.flatnonzero(stores == shops[number])
        squares = ((right[equal].astype(np.float64) - left[number]) ** 2).sum(axis=1)
        order = np.argsort(squares.astype(np.float32), kind="stable")[:5]
        wanted += [(number, int(at)) for at in equal[order]]
    assert ours == wanted
