"""Joins of DataFrames, also with a limit of the distance, held to brute force in float64."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import lancestat
from lancestat.errors import RunError, UsageError
from lancestat.joins import knn_join as result
from lancestat.joins.spark import engine
from lancestat.joins.spark import sides as opened_side
from lancestat.joins.spark.sides import write_side
from tests.examples import each, sample
from tests.integration.knn_oracle import Row, Vector, assert_same, awkward, joined
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.joins.joined import vectors
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark

GATES = {"spark": 1 << 30, "exact": 0}


def frame(
    spark: SparkSession, vectors: list[Vector], element: str = "float", parts: int = 3
) -> DataFrame:
    """Numbered rows in that order."""
    schema = f"id long, emb array<{element}>, name string"
    rows = [(number, vector, f"row {number}") for number, vector in enumerate(vectors)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), schema)


def join(left: DataFrame, right: DataFrame, k: int, **options: Any) -> DataFrame:
    chosen = {"select_left": ["id"], "select_right": ["id", "name"], "rank": True} | options
    return lancestat.knn_join(left, right, left_vector="emb", right_vector="emb", k=k, **chosen)


def rows(neighbours: DataFrame) -> list[Row]:
    return [(row.id, row.id_right, row._distance, row._rank) for row in neighbours.collect()]


METRICS, KINDS = ("l2", "cosine", "dot"), ("inner", "left_outer")


@pytest.mark.parametrize(
    ("gate", "metric", "kind", "element"),
    each(GATES, METRICS, KINDS, ("double", "float")),
)
def test_awkward_rows_have_the_neighbours_of_brute_force(
    spark: SparkSession, gate: str, metric: str, kind: str, element: str
) -> None:
    rng = np.random.default_rng(7)
    left, right = awkward(rng, 40, 4), awkward(rng, 120, 4)

    neighbours = join(
        frame(spark, left, element),
        frame(spark, right, element),
        6,
        metric=metric,
        join=kind,
        min_right_rows=GATES[gate],
    )

    assert_same(rows(neighbours), joined(left, right, 6, metric, kind))


@needs.nearest_by_join
def test_spark_finds_the_same_neighbours(spark: SparkSession) -> None:
    rng = np.random.default_rng(8)
    left, right = rng.standard_normal((30, 16)).tolist(), rng.standard_normal((400, 16)).tolist()
    asked, offered = frame(spark, left), frame(spark, right)

    neighbours = join(asked, offered, 5, min_right_rows=0)

    other = offered.select(sf.col("id").alias("id_right"), sf.col("emb").alias("other"))
    distance = sf.call_function("vector_l2_distance", "emb", "other")
    theirs = asked.nearestByJoin(other, distance, 5, "exact", "distance")
    expected = sorted(
        (row.id, row.root, row.id_right)
        for row in theirs.select("id", "id_right", distance.alias("root")).collect()
    )
    assert [(row[0], row[1]) for row in rows(neighbours)] == [(a, c) for a, _, c in expected]
    for (_, _, ours, _), (_, root, _) in zip(rows(neighbours), expected, strict=True):
        assert ours == pytest.approx(root**2, rel=1e-5)


def test_partitions_without_vectors_are_joined(spark: SparkSession) -> None:
    left: list[Vector] = [None, None, None, [1.0, 2.0], None, [3.0, 4.0]]
    right: list[Vector] = [None, None, [1.0, 2.0], None, None, None]

    neighbours = join(
        frame(spark, left, parts=6), frame(spark, right, parts=3), 2, join="left_outer",
        min_right_rows=0,
    )  # fmt: skip

    assert_same(rows(neighbours), joined(left, right, 2, "l2", "left_outer"))


@pytest.mark.parametrize(("sizes", "kind"), each([(0, 3), (3, 0), (0, 0)], KINDS))
def test_empty_sides_are_joined(spark: SparkSession, sizes: tuple[int, int], kind: str) -> None:
    left, right = ([[1.0, 2.0]] * size for size in sizes)

    neighbours = join(frame(spark, left), frame(spark, right), 2, join=kind)

    assert_same(rows(neighbours), joined(left, right, 2, "l2", kind))
    assert neighbours.columns == ["id", "id_right", "name", "_distance", "_rank"]


def test_all_columns_of_both_sides_keep_names_and_types(spark: SparkSession) -> None:
    values = {
        "id": (1, "int"),
        "emb": ([1.0, 2.0], "array<double>"),
        "a b": ("x", "string"),
        "dotted.name": (b"\x00\xff", "binary"),
        "ß": (Decimal("12345678901234567890.123"), "decimal(38,3)"),
        "day": (datetime.date(1969, 7, 20), "date"),
        "at": (datetime.datetime(1969, 7, 20, 20, 17, 40, 5), "timestamp"),
        "local": (datetime.datetime(1969, 7, 20, 20, 17, 40, 5), "timestamp_ntz"),
        "nested": ((1, [("k", None)]), "struct<a: tinyint, b: array<struct<c: string, d: int>>>"),
        "yes": (True, "boolean"),
        "real": (float("nan"), "float"),
    }
    schema = ", ".join(f"`{name}` {type}" for name, (_, type) in values.items())
    side = spark.createDataFrame([tuple(value for value, _ in values.values())], schema)

    neighbours = lancestat.knn_join(side, side, left_vector="emb", right_vector="emb", k=1)

    suffixed = [f"{name}_right" for name in side.columns]
    assert neighbours.columns == [*side.columns, *suffixed, "_distance"]
    types = [field.dataType for field in neighbours.schema.fields]
    expected = [field.dataType for field in side.schema.fields]
    assert types[:-1] == expected * 2
    [row], [original] = neighbours.collect(), side.collect()
    assert repr(row[: len(original)]) == repr(tuple(original))
    assert repr(row[len(original) : -1]) == repr(tuple(original))


def test_columns_that_are_not_selected_are_never_computed(spark: SparkSession) -> None:
    side = frame(spark, [[1.0, 2.0]])
    side = side.withColumn("bad", sf.raise_error(sf.lit("computed")))

    neighbours = join(side, side, 1)

    assert neighbours.count() == 1


def test_the_result_is_computed_once_and_used_many_times(spark: SparkSession) -> None:
    counted = spark.sparkContext.accumulator(0)

    def count(rows: Any) -> Any:
        for row in rows:
            counted.add(1)
            yield row

    side = frame(spark, [[1.0, 2.0], [2.0, 2.0]])
    seen = spark.createDataFrame(side.rdd.mapPartitions(count), side.schema)
    neighbours = join(side, seen, 1, min_right_rows=0)
    once = counted.value

    assert neighbours.count() == 2
    assert neighbours.where("_rank = 1").count() == 2
    assert counted.value == once


@pytest.mark.thorough
def test_vectors_of_different_lengths_name_the_row(spark: SparkSession) -> None:
    left = frame(spark, [[1.0, 2.0]])
    within = frame(spark, [[1.0, 2.0], [1.0]], parts=1)
    across = frame(spark, [[1.0, 2.0], [1.0, 2.0], [1.0]], parts=3)

    with pytest.raises(UsageError, match=r"LS456.* of 1 elements in row 1"):
        join(left, within, 1)
    with pytest.raises(UsageError, match=r"LS456.*from row 2 on"):
        join(left, across, 1)
    with pytest.raises(UsageError, match=r"LS456"):
        join(left, frame(spark, [[1.0]]), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "LS460.*k is 0"),
        ({"k": 100_001}, "LS460.*100,000"),
        ({"k": True}, "LS460.*k is True"),
        ({"k": 2.5}, "LS460.*k is 2.5"),
        ({"k": None}, "LS460.*k is None"),
        ({"k": np.array([1, 2])}, "LS460.*k is a ndarray"),
        ({"k": "all", "max_distance": 1.0, "max_pairs": "9"}, "LS460.*max_pairs is '9'"),
        ({"max_distance": "0.3"}, "LS460.*max_distance is '0.3'"),
        ({"mode": "approx", "nprobes": 1.5}, "LS460.*nprobes is 1.5"),
        ({"mode": "approx", "recall": "0.9"}, "LS460.*recall is '0.9'"),
        ({"min_right_rows": None}, "LS460.*min_right_rows is None"),
        ({"select_right": "id"}, "LS460.*select_right is 'id'.*list of names"),
        ({"metric": "cosin"}, "LS460.*did you mean 'cosine'"),
        ({"join": "outer"}, "LS460.*inner, left_outer"),
        ({"mode": "fast"}, "LS460.*exact, approx"),
        ({"nprobes": 3}, "LS460.*mode"),
        ({"mode": "approx", "nprobes": 0}, "LS460.*nprobes"),
        ({"mode": "approx", "recall": 1.5}, "LS460.*recall"),
        ({"min_right_rows": -1}, "LS460.*min_right_rows"),
        ({"select_left": ["id", "ID"]}, "LS450"),
        ({"select_left": ["nothing"]}, "LS454.*left.*nothing"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_spark_runs(
    spark: SparkSession, options: dict[str, Any], message: str
) -> None:
    side = frame(spark, [[1.0, 2.0]])
    given: dict[str, Any] = {"k": 1, **options}

    with pytest.raises((UsageError, RunError), match=f"(?s){message}"):
        join(side, side, **given)


def test_what_is_no_dataframe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"LS460.*right is a Table; expected a DataFrame"):
        join(frame(spark, [[1.0]]), pa.table({"emb": [[1.0]]}), 1)


def test_a_column_without_vectors_is_refused(spark: SparkSession) -> None:
    side = frame(spark, [[1.0, 2.0]])

    with pytest.raises(UsageError, match="LS455"):
        lancestat.knn_join(side, side, left_vector="name", right_vector="emb", k=1)


def test_a_failing_side_leaves_nothing_in_scratch(spark: SparkSession, tmp_path: Path) -> None:
    side = frame(spark, [[1.0, 2.0]])
    bad = side.withColumn("id", sf.raise_error(sf.lit("no such thing")))

    with pytest.raises(RunError, match=r"LS511.*right side.*no such thing"):
        join(side, bad, 1, scratch=str(tmp_path / "scratch"))

    left_behind = [path for path in tmp_path.rglob("*.lance") if path.is_file()]
    assert left_behind == []


def test_a_failed_join_does_not_cancel_other_jobs_of_the_thread(spark: SparkSession) -> None:
    side = frame(spark, [[1.0, 2.0]])
    bad = side.withColumn("id", sf.raise_error(sf.lit("no such thing")))
    context = spark.sparkContext
    context.setJobGroup("mine", "my jobs")
    try:
        with pytest.raises(RunError, match="no such thing"):
            join(side, bad, 1)

        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "my jobs"
        assert spark.range(3).count() == 3
        assert join(side, side, 1).count() == 1
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)


def parquet(rows: DataFrame, path: Path) -> DataFrame:
    """The same rows in files, so that a plain scan reads them."""
    rows.write.parquet(str(path))
    return rows.sparkSession.read.parquet(str(path))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sides that were written to scratch."""
    sides: list[str] = []

    def write(rows: DataFrame, scan: Any, writing: Any) -> Any:
        sides.append(writing.side)
        return write_side(rows, scan, writing)

    monkeypatch.setattr(engine, "write_side", write)
    return sides


@pytest.mark.parametrize(("gate", "metric", "kind"), sample(each(GATES, METRICS, KINDS), 2))
def test_plain_parquet_on_the_right_is_searched_where_it_is(
    spark: SparkSession, tmp_path: Path, written: list[str], gate: str, metric: str, kind: str
) -> None:
    rng = np.random.default_rng(9)
    left, right = awkward(rng, 40, 4), awkward(rng, 500, 4)
    offered = parquet(frame(spark, right), tmp_path / "right")

    neighbours = join(
        frame(spark, left),
        offered.select("id", "emb"),
        6,
        metric=metric,
        join=kind,
        min_right_rows=GATES[gate],
        select_right=["id"],
    )

    # Spark reads the largest files first.
    order = [row.id for row in offered.select("id").collect()]
    expected = [
        (row[0], None if row[1] is None else order[row[1]], *row[2:])
        for row in joined(left, [right[id] for id in order], 6, metric, kind)
    ]
    assert_same(rows(neighbours), expected)
    assert written == ["left"]


def test_parquet_is_written_to_scratch_where_it_would_be_read_more_than_once(
    spark: SparkSession, tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(10)
    monkeypatch.setattr(opened_side, "LIGHT_BYTES", 0)
    right = parquet(frame(spark, rng.standard_normal((300, 4)).tolist()), tmp_path / "right")
    few = frame(spark, rng.standard_normal((20, 4)).tolist())
    many = frame(spark, rng.standard_normal((3_000, 4)).tolist())
    thin = frame(spark, rng.standard_normal((300, 1)).tolist())
    heavy = parquet(thin, tmp_path / "heavy")

    join(many, right, 2, select_right=["id"], min_right_rows=0)
    join(few, right, 2, select_right=["id"], mode="approx", min_right_rows=0)
    join(thin, heavy, 2, min_right_rows=0)

    assert written.count("right") == 3


def test_parquet_files_with_incomparable_vectors_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    three = parquet(frame(spark, [[1.0, 2.0, 3.0]] * 3), tmp_path / "three")
    mixed = parquet(frame(spark, [[1.0, 2.0], [1.0, 2.0, 3.0]], parts=1), tmp_path / "mixed")
    nothing = parquet(frame(spark, [None, None]), tmp_path / "nothing")
    two = frame(spark, [[1.0, 2.0]])

    with pytest.raises(UsageError, match=r"2 elements.* 3"):
        join(two, three, 2, select_right=["id"])
    with pytest.raises(UsageError, match="the right side has a vector of 3 elements in row 1"):
        join(two, mixed, 2, select_right=["id"])
    assert rows(join(two, nothing, 2, select_right=["id"], join="left_outer")) == [
        (0, None, None, None)
    ]


def test_a_result_too_large_for_spark_to_hold_is_read_from_scratch(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(11).standard_normal((200, 4)).tolist()
    asked, offered = frame(spark, vectors), frame(spark, vectors)
    local = join(asked, offered, 3, min_right_rows=0)

    monkeypatch.setattr(result, "LOCAL_BYTES", 0)
    read = join(asked, offered, 3, min_right_rows=0)

    assert "LocalRelation" in local._jdf.queryExecution().optimizedPlan().toString()
    assert "LocalRelation" not in read._jdf.queryExecution().optimizedPlan().toString()
    assert rows(read) == rows(local)
    assert read.schema == local.schema


__all__ = ["world"]


@pytest.mark.parametrize(("gate", "metric", "kind"), each(GATES, METRICS, KINDS))
def test_neighbours_within_a_distance_are_those_of_brute_force(
    spark: SparkSession, gate: str, metric: str, kind: str
) -> None:
    rng = np.random.default_rng(7)
    left, right = awkward(rng, 40, 4), awkward(rng, 120, 4)
    everything = joined(left, right, 120, metric, "inner")
    distances = sorted(row[2] for row in everything if row[2] is not None)
    most = distances[len(distances) // 12]

    sides = frame(spark, left), frame(spark, right)
    neighbours = join(
        *sides, 6, metric=metric, join=kind, max_distance=most, min_right_rows=GATES[gate]
    )

    near = [row for row in joined(left, right, 6, metric, "inner") if (row[2] or 0) <= most]
    if kind == "left_outer":
        matched = {row[0] for row in near}
        near += [(n, None, None, None) for n in range(len(left)) if n not in matched]
        near.sort(key=lambda row: (row[0], row[3] or 0))
    ours = rows(neighbours)
    assert [(row[0], row[1], row[3]) for row in ours] == [(a, b, d) for a, b, _, d in near]
    assert 0 < len([row for row in ours if row[1] is not None]) < 40 * 6


@pytest.mark.thorough
@needs.nearest_by_join
def test_spark_finds_the_same_neighbours_within_a_distance(spark: SparkSession) -> None:
    rng = np.random.default_rng(8)
    left, right = rng.standard_normal((30, 16)).tolist(), rng.standard_normal((400, 16)).tolist()
    asked, offered = frame(spark, left), frame(spark, right)

    neighbours = join(asked, offered, 5, max_distance=14.5, min_right_rows=0)

    other = offered.select(sf.col("id").alias("id_right"), sf.col("emb").alias("other"))
    distance = sf.call_function("vector_l2_distance", "emb", "other")
    theirs = asked.nearestByJoin(other, distance, 5, "exact", "distance")
    near = theirs.select("id", "id_right", (distance * distance).alias("square"))
    expected = [(row.id, row.id_right) for row in near.where("square <= 14.5").collect()]
    ours = {(row[0], row[1]) for row in rows(neighbours)}
    assert ours == set(expected)
    assert len(ours) not in (0, 150)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [{"nprobes": 10_000}, {"recall": 0.9}])
def test_an_approximate_search_keeps_to_the_distance(
    spark: SparkSession, how: dict[str, float]
) -> None:
    rng = np.random.default_rng(9)
    left = rng.standard_normal((700, 8)).tolist()
    right = rng.standard_normal((30_000, 8)).astype(np.float32)
    sides = frame(spark, left), frame(spark, right.tolist())
    found = rows(join(*sides, 4, mode="approx", max_distance=1.0, min_right_rows=0, **how))
    matrix = ((np.array(left)[:, None] - right[None].astype(np.float64)) ** 2).sum(axis=2)
    order = np.argsort(matrix, axis=1)[:, :4]
    true = {(row, int(at)) for row, line in enumerate(order) for at in line if matrix[row, at] <= 1}
    ours = {(row[0], row[1]) for row in found}
    assert ours <= {(row, int(at)) for row, at in zip(*np.nonzero(matrix <= 1), strict=True)}
    assert len(ours & true) >= 0.9 * len(true) > 0
    if "nprobes" in how:
        assert ours == true


@pytest.mark.parametrize("min_right_rows", sample([0, 10_000], 1))
def test_changes_to_tables_are_joined_within_a_distance(
    world: SparkWorld, min_right_rows: int
) -> None:
    world.declare(k=3, metric="l2", max_distance=1.0, min_right_rows=min_right_rows)
    for kind in ("inner", "left_outer"):
        world.declare(join=kind)
        converge(world)
        lance.write_dataset(vectors(100, 9, name="v"), world.uri("l"), mode="append")
        converge(world)
        lance.write_dataset(vectors(100, 9, name="w"), world.uri("r"), mode="append")
        [action] = world.plan().actions
        assert action.notes == ("only 9 new right rows are searched, and merged with the result",)
        converge(world)
    assert world.scopes == ["full", "new_left", "new_right"] * 2


@pytest.mark.parametrize(
    ("metric", "most"), [("l2", -1.0), ("cosine", -0.1), ("dot", float("nan"))]
)
def test_a_distance_that_no_row_is_within_is_refused(
    spark: SparkSession, metric: str, most: float
) -> None:
    side = frame(spark, [[1.0]])
    with pytest.raises(UsageError) as caught:
        lancestat.knn_join(
            side,
            side,
            left_vector="emb",
            right_vector="emb",
            k=1,
            metric=metric,
            max_distance=most,
        )
    assert caught.value.code == "LS460"
