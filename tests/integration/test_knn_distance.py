"""Joins with a largest distance, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pytest
from pyspark.sql import functions as sf

import lancestat
from lancestat.errors import UsageError
from tests.examples import combinations
from tests.integration.knn_oracle import awkward, joined
from tests.integration.test_knn_dataframe import METRICS, frame, join, rows
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.interpreted import interpreted
from tests.joins.joined import vectors
from tests.versions import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

__all__ = ["world"]
GATES = {"spark": 1 << 30, "exact": 0}


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return interpreted(spark)


@pytest.mark.parametrize(
    ("gate", "metric", "kind"), combinations(GATES, METRICS, ("inner", "left_outer"))
)
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


@pytest.mark.parametrize("min_right_rows", [10_000, 0])
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
        assert "under 'max_distance' new right rows are not merged with the result" in action.notes
        converge(world)
    assert world.scopes == ["full", "new_left", "full"] * 2


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
