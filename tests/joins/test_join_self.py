"""Joins of a table with itself: how they are planned, extended and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import pytest

from lancestat.errors import Location
from lancestat.joins.action import JoinAction
from lancestat.runs.actions import Blocked, Skip
from lancestat.spec.model import KnnSide
from tests.joins.joined import JoinWorld, vectors

PLACE = Location("specs/near.yml", 11, 5)


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "r.lance"), max_rows_per_file=7)
    world = JoinWorld(tmp_path)
    side = KnnSide("v", ("id",), ("l",), table="l")
    world.declare(left=side, right=side, exclude_self=True, self_location=PLACE)
    return world


@pytest.mark.parametrize("mode", ["exact", "approx"])
def test_a_self_join_compares_every_pair(world: JoinWorld, mode: str) -> None:
    world.declare(mode=mode, recall=0.9 if mode == "approx" else None)
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "exact"
    assert action.decision.why == "every pair of rows of the table is to be compared"
    assert (action.work.request.k, action.work.request.searched) == (2, 3)


def test_changes_of_the_table_are_joined_in_full(world: JoinWorld) -> None:
    world.run()
    assert world.rows() == world.expected() != []
    assert isinstance(world.action(), Skip)
    lance.write_dataset(vectors(20, 5, name="v"), world.uri("l"), mode="append")
    world.run()
    assert world.rows() == world.expected()
    world.declare(pairs="unordered")
    world.run()
    assert world.rows() == world.expected()
    assert all(row["id"] < row["id_right"] for row in world.rows())
    assert world.scopes == ["full", "full", "full"]


def test_a_table_by_its_name_and_by_its_place_is_one(world: JoinWorld) -> None:
    world.declare(right=KnnSide("v", ("id",), format="lance", uri=world.uri("l")))
    assert isinstance(world.action(), JoinAction)


@pytest.mark.parametrize("key", ["exclude_self", "pairs: unordered"])
@pytest.mark.parametrize("other", ["table", "query", "files"])
def test_sides_that_are_not_the_same_rows_are_refused(
    world: JoinWorld, key: str, other: str
) -> None:
    if key != "exclude_self":
        world.declare(exclude_self=False, pairs="unordered")
    side = world.join.right
    match other:
        case "table":
            world.declare(right=replace(side, table="r", refs=("r",)))
        case "query":
            query = replace(side, table=None, sql="select * from l")
            world.declare(left=query, right=query)
        case "files":
            world.declare(right=replace(side, table=None, refs=(), format="csv", uri="gs://b/x"))
    action = world.action()
    assert isinstance(action, Blocked)
    assert (action.error.code, action.error.location) == ("LS463", PLACE)
    assert action.error.message == f"'{key}' of knn join 'near' needs one Lance table on both sides"
