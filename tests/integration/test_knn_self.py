"""Joins of a table or a DataFrame with itself, on Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pytest
from pyspark.sql import functions as sf

from lancestat.errors import UsageError
from lancestat.spec.model import KnnSide
from tests.integration.test_knn_keys import assert_same, frame, joined
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.interpreted import interpreted
from tests.joins.joined import vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

__all__ = ["world"]


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return interpreted(spark)


@pytest.mark.parametrize("pairs", ["ordered", "unordered"])
def test_a_table_is_joined_with_itself_between_changes(world: SparkWorld, pairs: str) -> None:
    """Many rows have equal vectors; the filters of the sides differ."""
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(left=side, right=side, exclude_self=True, pairs=pairs, k=3, join="left_outer")
    lance.write_dataset(
        vectors(0, 60, name="v"), world.uri("l"), mode="overwrite", max_rows_per_file=17
    )
    converge(world)
    lance.dataset(world.uri("l")).delete("id in (0, 18, 19, 40)")
    lance.write_dataset(vectors(100, 9, name="v"), world.uri("l"), mode="append")
    converge(world)
    world.declare(
        left=replace(side, where="id < 50 and id <> 20"), right=replace(side, where="id > 10")
    )
    converge(world)
    world.declare(right=side, max_distance=1.0, metric="l2", on=(("other", "other"),))
    converge(world)
    world.declare(right=replace(side, where="id between 17 and 34"), min_right_rows=0)
    converge(world)


@pytest.mark.parametrize(
    "options",
    [
        {"exclude_self": True},
        {"pairs": "unordered"},
        {"pairs": "unordered", "max_distance": 3.0, "join": "left_outer"},
        {"exclude_self": True, "on": ["area"]},
        {"pairs": "unordered", "on": ["area"], "max_distance": 5.0},
    ],
)
def test_a_frame_is_joined_with_itself(spark: SparkSession, options: dict[str, Any]) -> None:
    random = np.random.default_rng(4)
    rows = random.normal(size=(700, 6)).astype(np.float32)
    rows[random.integers(0, 700, 100)] = rows[random.integers(0, 700, 100)]
    areas = [("xyz"[n],) for n in random.integers(0, 3, 700)]
    same = frame(spark, rows, areas, "area string")

    ours = joined(same, same, 4, mode="approx", recall=0.9, **options)

    matrix = ((rows[:, None].astype(np.float64) - rows[None]) ** 2).sum(axis=2)
    most = options.get("max_distance", np.inf)
    expected = []
    for number in range(700):
        near = [
            (float(np.float32(matrix[number, other])), other)
            for other in range(number + 1 if "pairs" in options else 0, 700)
            if other != number
            and ("on" not in options or areas[other] == areas[number])
            and float(np.float32(matrix[number, other])) <= most
        ]
        expected += [(number, other, distance) for distance, other in sorted(near)[:4]]
        if not near and "join" in options:
            expected.append((number, None, None))
    assert_same(ours, expected)


@pytest.mark.parametrize("options", [{"exclude_self": True}, {"pairs": "unordered"}])
def test_other_frames_are_refused_before_anything_is_read(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    fails = sf.expr("cast(raise_error('it was read') as array<float>)")
    one = spark.range(3).select("id", fails.alias("emb"))
    with pytest.raises(UsageError) as caught:
        joined(one, one.select("*"), 1, **options)
    assert caught.value.code == "LS463"
    two = one.withColumn("other", sf.col("emb"))
    with pytest.raises(UsageError) as caught:
        joined(two, two, 1, right_vector="other", **options)
    assert caught.value.code == "LS463"
