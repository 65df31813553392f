"""Joins of all pairs within a distance, on Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.errors import LancestatError
from lancestat.knn.request import JoinRequest, Metric
from lancestat.knn.work import PinnedTable, Rows
from lancestat.lake.observe import snapshot
from lancestat.plan.actions import JoinAction
from lancestat.spec.model import KnnSide
from tests.execution.joined import vectors
from tests.integration.test_knn_keys import Line, Matrix, assert_same, frame, joined
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.interpreted import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

__all__ = ["world"]


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    return interpreted(spark)


def clustered(rows: int, seed: int) -> Matrix:
    """Some rows have hundreds of others near them, most have none."""
    centres = np.random.default_rng(9).normal(size=(40, 8)) * 4
    random = np.random.default_rng(seed)
    which = np.minimum(random.geometric(0.15, rows), 39)
    return (centres[which] + 0.1 * random.normal(size=(rows, 8))).astype(np.float32)


def expected(
    left: Matrix, right: Matrix, most: float, *, own: str = "any", outer: bool = False
) -> list[Line]:
    matrix = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(axis=2)
    lines: list[Line] = []
    for number, line in enumerate(matrix.astype(np.float32).astype(np.float64)):
        some = [(float(d), at) for at, d in enumerate(line) if d <= most]
        some = [(d, at) for d, at in some if own == "any" or at != number]
        some = sorted((d, at) for d, at in some if own != "behind" or at > number)
        lines += [(number, at, d) for d, at in some]
        if outer and not some:
            lines.append((number, None, None))
    return lines


@pytest.mark.parametrize(
    ("options", "own"),
    [({}, "other"), ({"exclude_self": True}, "self"), ({"pairs": "unordered"}, "behind")],
)
def test_every_pair_within_the_distance_is_found(
    spark: SparkSession, options: dict[str, Any], own: str
) -> None:
    left, right = clustered(900, 1), clustered(1100, 2)
    one = frame(spark, left, [(0,)] * 900, "z int")
    two = one if options else frame(spark, right, [(0,)] * 1100, "z int")
    ours = joined(one, two, "all", max_distance=0.2, join="left_outer", **options)
    others = left if options else right
    wanted = expected(left, others, 0.2, own="any" if own == "other" else own, outer=True)
    assert max(np.bincount([line[0] for line in wanted])) > 64
    assert_same(ours, wanted)


@pytest.mark.parametrize(("width", "most"), [(1, 1), (2, 50), (64, 1 << 20), (5000, 1)])
@pytest.mark.parametrize("kind", ["plain", "self", "once"])
def test_rows_are_found_whatever_is_held_at_once(
    tmp_path: Path, width: int, most: int, kind: str
) -> None:
    from lancestat.spark.knn.ranges import RangeSearch
    from lancestat.spark.knn.reader import VectorReader
    from lancestat.spark.knn.sides import opened_table

    rows = clustered(300, 3)
    values: list[Any] = [None if at % 17 == 5 else row.tolist() for at, row in enumerate(rows)]
    table = pa.table({"id": range(300), "v": pa.array(values, pa.list_(pa.float32(), 8))})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=90)
    pinned = PinnedTable.at(snapshot(dataset, dataset.uri))
    side = opened_table(pinned, "v", ("id",), {}, "left").side
    reader = VectorReader(side, 8, Metric.L2, "left")
    request = JoinRequest(
        64, max_distance=0.3, is_range=True,
        excludes_self=kind == "self", pairs_once=kind == "once",
    )  # fmt: skip
    search = RangeSearch(reader, reader, request, width=width, most=most)
    found, place = [], 20
    for part, is_valid, neighbours in search.search(Rows(20, 290)):
        assert part.start == place
        place = part.stop
        for number, line in zip(np.flatnonzero(is_valid), neighbours.positions, strict=True):
            found += [(part.start + int(number), int(at)) for at in line if at >= 0]
        wide = max(1, int((neighbours.positions >= 0).sum(axis=1).max(initial=0)))
        assert len(part) == 1 or len(neighbours.positions) * wide <= max(most, width * 300)
    assert place == 290
    own = {"plain": "any", "self": "self", "once": "behind"}[kind]
    missing = {at for at in range(300) if at % 17 == 5}
    pairs = [(a, b) for a, b, _ in expected(rows, rows, 0.3, own=own)]
    assert found == [(a, b) for a, b in pairs if 20 <= a < 290 and not {a, b} & missing]
    assert search.excluded == len(missing)
    later = RangeSearch(reader, reader, request, width, most, counts_excluded=False)
    again = [(part, neighbours.positions) for part, _, neighbours in later.search(Rows(20, 290))]
    assert sum(int((positions >= 0).sum()) for _, positions in again) == len(found)
    assert later.pairs == search.pairs and later.excluded is None


def test_a_table_is_joined_within_a_distance_between_changes(world: SparkWorld) -> None:
    world.declare(k="all", max_distance=1.0, metric="l2", join="left_outer", rank=True)
    converge(world)
    lance.write_dataset(vectors(100, 9, name="v"), world.uri("l"), mode="append")
    converge(world)
    assert world.scopes == ["full", "new_left"]
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(left=replace(side, where="id < 15"), right=side, pairs="unordered")
    converge(world)


WITHIN = "every pair is to be compared, and the result has all within 1"


def test_more_pairs_than_are_allowed_leave_the_old_result(world: SparkWorld) -> None:
    world.declare(k="all", max_distance=1.0, metric="l2", max_pairs=10_000)
    converge(world)
    before, version = world.rows(), lance.dataset(world.uri("near")).version
    for most in (len(before) - 1, 0):
        world.declare(max_pairs=most)
        action = world.action()
        assert isinstance(action, JoinAction)
        assert action.decision.why == WITHIN
        [result] = world.run().nodes
        assert result.status == "error" and result.message is not None
        assert f"more than {most:,} pairs are within the distance 1" in result.message
        assert lance.dataset(world.uri("near")).version == version
        assert world.rows() == before
    world.declare(max_pairs=len(before))
    converge(world)


@pytest.mark.parametrize(
    "options",
    [{}, {"max_distance": 1.0, "on": ["z"]}, {"max_distance": 1.0, "max_pairs": -1}],
)
def test_what_all_cannot_be_combined_with_is_refused(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    one = frame(spark, np.ones((2, 2), np.float32), [(0,)] * 2, "z int")
    with pytest.raises(LancestatError) as caught:
        joined(one, one, "all", **options)
    assert caught.value.code == "LS460"
    with pytest.raises(LancestatError) as caught:
        joined(one, one, "some", max_distance=1.0)
    assert caught.value.code == "LS460"
