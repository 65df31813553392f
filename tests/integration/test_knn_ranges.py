"""Joins of a table with itself, and of all pairs within a distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lancestat.errors import LancestatError, UsageError
from lancestat.joins.action import JoinAction
from lancestat.joins.search.metrics import L2
from lancestat.joins.search.work import JoinRequest, PinnedTable, Rows, SelfPairs
from lancestat.lake.open import snapshot
from lancestat.spec.knn_join import MOST_PAIRS
from lancestat.spec.model import KnnSide
from tests.examples import each, sample
from tests.integration.test_knn_keys import (
    Line,
    Matrix,
    assert_excluded,
    assert_same,
    frame,
    joined,
    keyed,
)
from tests.integration.test_knn_runs import SparkWorld, converge, world
from tests.joins.joined import vectors
from tests.joins.records import join_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

__all__ = ["world"]


@pytest.mark.parametrize("pairs", sample(["unordered", "ordered"], 1))
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
    sample(
        [
            {"exclude_self": True},
            {"pairs": "unordered", "max_distance": 3.0, "join": "left_outer"},
            {"pairs": "unordered"},
            {"pairs": "unordered", "on": ["area"], "max_distance": 5.0},
            {"exclude_self": True, "on": ["area"]},
        ],
        2,
    ),
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


Key = tuple[Any, ...]


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
    sample(
        [({}, "other"), ({"pairs": "unordered"}, "behind"), ({"exclude_self": True}, "self")], 2
    ),
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


@pytest.mark.parametrize(
    ("sizes", "kind"),
    each([(1, 1), (2, 50), (64, 1 << 20), (5000, 1)], ["once", "self", "plain"]),
)
def test_rows_are_found_whatever_is_held_at_once(
    tmp_path: Path, sizes: tuple[int, int], kind: str
) -> None:
    from lancestat.joins.spark.cells import ChunkCell, ExactCells
    from lancestat.joins.spark.job import RadiusSearch
    from lancestat.joins.spark.reader import VectorReader
    from lancestat.joins.spark.sides import opened_table

    width, most = sizes
    rows = clustered(300, 3)
    values: list[Any] = [None if at % 17 == 5 else row.tolist() for at, row in enumerate(rows)]
    table = pa.table({"id": range(300), "v": pa.array(values, pa.list_(pa.float32(), 8))})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=90)
    pinned = PinnedTable.at(snapshot(dataset, dataset.uri))
    side = opened_table(pinned, "v", ("id",), {}, "left")
    reader = VectorReader(side, 8, L2, "left")
    request = JoinRequest(
        64, max_distance=0.3, max_pairs=MOST_PAIRS,
        self_pairs={"self": SelfPairs.OTHERS, "once": SelfPairs.ONCE}.get(kind),
    )  # fmt: skip
    cells = ExactCells(reader, request, max(1, most // width), right=reader, parts=(Rows(0, 300),))
    cell = ChunkCell(0, Rows(20, 290))
    search = RadiusSearch(cells, cell, request, capacity=width, most=most)
    found: list[tuple[int, int]] = []
    for part, neighbours in search.neighbours():
        for number, line in zip(part.positions.tolist(), neighbours.positions, strict=True):
            found += [(number, int(at)) for at in line if at >= 0]
        wide = max(1, int((neighbours.positions >= 0).sum(axis=1).max(initial=0)))
        assert len(part) == 1 or len(neighbours.positions) * wide <= max(most, width * 300)
    missing = {at for at in range(300) if at % 17 == 5}
    pairs = [
        (a, b)
        for a, b, _ in expected(rows, rows, 0.3, own="behind" if kind == "once" else "any")
        if 20 <= a < 290 and not {a, b} & missing
    ]
    assert found == pairs
    assert search.excluded == len(missing)
    spilled = RadiusSearch(cells, replace(cell, chunk=1), request, capacity=width, most=most)
    parts = list(spilled.counted_pairs(side, side))
    own = sum(a == b for a, b in pairs) if kind == "self" else 0
    assert spilled.found == sum(map(len, parts)) == len(pairs) - own
    assert spilled.compared == search.compared


def test_a_table_is_joined_within_a_distance_between_changes(world: SparkWorld) -> None:
    world.declare(k="all", max_distance=1.0, metric="l2", join="left_outer", rank=True)
    converge(world)
    lance.write_dataset(vectors(100, 9, name="v"), world.uri("l"), mode="append")
    converge(world)
    assert world.scopes == ["full", "new_left"]
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(left=replace(side, where="id < 15"), right=side, pairs="unordered")
    converge(world)


KEYS = ["a", "b", "c", "d", None]


def with_equal_keys(
    lines: list[Line], left: Sequence[Key], right: Sequence[Key], *, outer: bool
) -> list[Line]:
    """Lines of `expected` whose rows have equal keys."""
    kept: list[Line] = []
    for number, key in enumerate(left):
        some = [
            line
            for line in lines
            if line[0] == number and line[1] is not None
            and None not in key and right[line[1]] == key
        ]  # fmt: skip
        kept += some or ([(number, None, None)] if outer else [])
    return kept


@pytest.mark.parametrize(
    ("options", "own"),
    sample(
        [
            ({"join": "left_outer"}, "any"),
            ({}, "any"),
            ({"pairs": "unordered"}, "behind"),
            ({"exclude_self": True, "join": "left_outer"}, "self"),
        ],
        2,
    ),
)
def test_every_pair_of_rows_with_equal_keys_is_found(
    spark: SparkSession, options: dict[str, Any], own: str
) -> None:
    """One key has most of the rows, some rows have none, and some keys one side lacks."""
    left, right = clustered(700, 1), clustered(900, 2)
    random = np.random.default_rng(5)
    left_keys, right_keys = (
        [(0, "a") if n < 7 else (int(n), KEYS[int(m)]) for n, m in
         random.integers(0, (10, 5), (rows, 2))]
        for rows in (700, 900)
    )  # fmt: skip
    one = frame(spark, left, left_keys, "x int, y string")
    same = "exclude_self" in options or "pairs" in options
    if same:
        right, right_keys = left, left_keys
    two = one if same else frame(spark, right, right_keys, "x int, y string")
    ours = joined(one, two, "all", max_distance=0.3, on=["x", "y"], **options)
    outer = "join" in options
    wanted = with_equal_keys(
        expected(left, right, 0.3, own=own), left_keys, right_keys, outer=outer
    )
    assert max(np.bincount([line[0] for line in wanted])) > (32 if own == "behind" else 64)
    assert_same(ours, wanted)


def test_rows_with_keys_that_match_nothing(spark: SparkSession) -> None:
    one = frame(spark, np.ones((3, 2), np.float32), [("a",), (None,), ("b",)], "k string")
    two = frame(spark, np.ones((2, 2), np.float32) * 9, [("a",), ("c",)], "k string")
    for right in (two, two.where("k = 'c'")):
        assert joined(one, right, "all", max_distance=1.0, on=["k"]) == []
        outer = joined(one, right, "all", max_distance=1.0, on=["k"], join="left_outer")
        assert outer == [(number, None, None) for number in range(3)]
    for on in ([], ["k"]):
        assert joined(one.where("id < 0"), two, "all", max_distance=1.0, on=on) == []
        assert joined(one, two.where("id < 0"), "all", max_distance=1.0, on=on) == []


def test_a_table_is_joined_by_keys_within_a_distance_between_changes(world: SparkWorld) -> None:
    for name, column in (("l", "v"), ("r", "w")):
        rows = keyed(0, 60, column)
        lance.write_dataset(rows, world.uri(name), mode="overwrite", max_rows_per_file=25)
    world.declare(
        k="all", max_distance=1.0, metric="l2", join="left_outer", rank=True,
        on=(("shop", "store"),),
    )  # fmt: skip
    converge(world)
    assert_excluded(world)
    lance.write_dataset(keyed(100, 9, "v"), world.uri("l"), mode="append")
    converge(world)
    lance.write_dataset(keyed(100, 9, "w"), world.uri("r"), mode="append")
    converge(world)
    assert world.scopes == ["full", "new_left", "new_right"]
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(on=(("shop", "shop"),), left=replace(side, where="id < 40"), right=side)
    for options in ({"exclude_self": True}, {"exclude_self": False, "pairs": "unordered"}):
        world.declare(**options)
        converge(world)


@pytest.mark.parametrize(("pairs", "on"), each(["ordered", "unordered"], [(), (("shop", "shop"),)]))
def test_rows_that_cannot_match_are_counted_without_left_rows(
    world: SparkWorld, pairs: str, on: tuple[tuple[str, str], ...]
) -> None:
    lance.write_dataset(keyed(0, 60, "v"), world.uri("l"), mode="overwrite")
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(
        k="all", max_distance=1.0, metric="l2", pairs=pairs, on=on,
        left=replace(side, where="id < 0"), right=side,
    )  # fmt: skip
    converge(world)
    rows = lance.dataset(world.uri("l")).to_table().to_pylist()
    cannot = [
        r for r in rows if (on and r["shop"] is None) or r["v"] is None or np.isnan(r["v"]).any()
    ]
    assert cannot and join_records(world.state)["near"].counts.excluded_right_rows == len(cannot)


WITHIN = "every pair is to be compared, and the result has all within 1"
WITHIN_KEYS = (
    "only rows with equal keys are compared, which the run counts, and the result has all within 1"
)


@pytest.mark.parametrize("on", sample([(("shop", "store"),), ()], 1))
def test_more_pairs_than_are_allowed_are_an_error_before_any_is_written(
    world: SparkWorld, on: tuple[tuple[str, str], ...]
) -> None:
    for name, column in (("l", "v"), ("r", "w")):
        lance.write_dataset(keyed(0, 60, column), world.uri(name), mode="overwrite")
    world.declare(k="all", max_distance=1.0, metric="l2", on=on)
    converge(world)
    before, version = world.rows(), lance.dataset(world.uri("near")).version
    files = sorted(Path(world.uri("near"), "data").iterdir())
    for most in sample((len(before) - 1, 0), 1):
        world.declare(max_pairs=most)
        action = world.action()
        assert isinstance(action, JoinAction)
        assert action.decision.why == (WITHIN_KEYS if on else WITHIN)
        [result] = world.run().nodes
        assert result.status == "error" and result.message is not None
        assert f"more than {most:,} pairs are within the distance 1" in result.message
        assert lance.dataset(world.uri("near")).version == version
        assert world.rows() == before
        assert sorted(Path(world.uri("near"), "data").iterdir()) == files
    world.declare(max_pairs=len(before))
    converge(world)


@pytest.mark.parametrize(
    "options",
    [{}, {"max_distance": 1.0, "max_pairs": -1}],
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
