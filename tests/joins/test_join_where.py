"""Sides with a `where`: how they are planned, extended and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat.errors import LancestatError, Location
from lancestat.joins.action import JoinAction
from lancestat.runs.actions import Blocked, Reason, Skip
from lancestat.spec.model import KnnSide
from tests.joins.joined import JoinWorld, for_parquet, vectors
from tests.runs.world import PLACE

WHERE = Location("specs/near.yml", 7, 12)


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    world = JoinWorld(tmp_path)
    filter(world, "left", "id < 12 or id >= 100")
    filter(world, "right", "id > 3 and key not like '%7'")
    return world


def filter(world: JoinWorld, side: str, where: str | None) -> None:
    changed = replace(getattr(world.join, side), where=where, where_location=WHERE)
    world.declare(**{side: changed})


def append(world: JoinWorld, name: str, start: int, count: int) -> None:
    rows = vectors(start, count, name={"l": "v", "r": "w"}[name])
    lance.write_dataset(rows, world.uri(name), mode="append")


def refused(world: JoinWorld) -> LancestatError:
    action = world.action()
    assert isinstance(action, Blocked), action
    return action.error


def test_only_rows_that_pass_are_joined(world: JoinWorld) -> None:
    world.run()
    ids = {(row["id"], row["id_right"]) for row in world.rows()}
    assert {left for left, _ in ids} <= set(range(12))
    assert {right for _, right in ids} <= set(range(4, 30)) - {7, 17, 27}
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


def test_appended_rows_that_pass_are_joined_alone(world: JoinWorld) -> None:
    world.declare(join="left_outer")
    world.run()
    append(world, "l", 98, 9)
    world.run()
    assert world.rows() == world.expected()
    append(world, "r", 95, 9)
    world.run()
    assert world.rows() == world.expected()
    assert world.scopes == ["full", "new_left", "new_right"]


def test_a_plan_does_not_know_how_many_rows_pass(world: JoinWorld) -> None:
    action = world.action()
    assert isinstance(action, JoinAction)
    assert (action.figures.counts.left_rows, action.figures.counts.right_rows) == (None, None)
    world.run()
    append(world, "l", 98, 9)
    action = world.action()
    assert isinstance(action, JoinAction)
    note = "only new left rows that pass the filter are joined, and put behind the result"
    assert action.notes == (note,)


@pytest.mark.parametrize("change", ["a value that is compared", "the filter", "no filter"])
def test_what_may_select_other_rows_is_joined_in_full(world: JoinWorld, change: str) -> None:
    filter(world, "right", "other = 0")
    world.run()
    match change:
        case "a value that is compared":
            lance.dataset(world.uri("r")).update({"other": "1"}, where="id = 9")
        case "the filter":
            filter(world, "right", "other <= 0")
        case "no filter":
            filter(world, "right", None)
    [reason] = world.action().reasons
    assert reason in (Reason.INPUT_CHANGED, Reason.SPEC_CHANGED)
    world.run()
    assert world.scopes == ["full", "full"]
    assert world.rows() == world.expected()


def test_columns_that_are_not_read_change_nothing(world: JoinWorld) -> None:
    world.run()
    lance.dataset(world.uri("r")).update({"other": "1"}, where="id = 9")
    # The update rewrites the row, and with it all columns of its fragment.
    assert isinstance(world.action(), JoinAction)
    lance.dataset(world.uri("l")).add_columns({"more": "id + 1"})
    world.run()
    assert isinstance(world.action(), Skip)


def test_a_vector_index_is_not_searched_under_a_filter(world: JoinWorld) -> None:
    rows = vectors(0, 600, name="w")
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    lance.dataset(world.uri("r")).create_index("w", "IVF_FLAT", num_partitions=2, metric="l2")
    world.declare(mode="approx", recall=0.9, min_right_rows=0, metric="l2")
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "ivf"
    filter(world, "right", None)
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "index"


def test_an_unknown_column_is_refused_with_its_place(world: JoinWorld) -> None:
    filter(world, "right", "idd < 20")
    assert str(refused(world)) == (
        f"LS454 {WHERE}  the right side of knn join 'near' names column 'idd', which "
        f"{world.uri('r')} does not have\n      hint: did you mean 'id'?"
    )


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("id < ", "has its end where a literal is expected"),
        ("id < 'x'", "compares 'id', which is of type int64, with 'x'"),
        ("w is null and wide = 0.1", "compares what Lance does not compare as Spark does"),
    ],
)
def test_what_cannot_be_pushed_is_refused_with_its_place(
    world: JoinWorld, where: str, reason: str
) -> None:
    rows = vectors(0, 5, name="w").append_column("wide", pa.array([None] * 5, pa.decimal256(9, 2)))
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    filter(world, "right", where)
    error = refused(world)
    assert (error.code, error.location) == ("LS461", WHERE)
    assert error.message == f"'where' of the right side of knn join 'near' {reason}"


def test_a_result_that_is_parquet_has_no_filter(world: JoinWorld) -> None:
    uri = str(world.folder / "before.parquet")
    before = replace(world.join, name="before", output_format="parquet", output_uri=uri)
    world.others = (before,)
    parquet.write_table(for_parquet(vectors(0, 5, name="v")), uri)
    side = KnnSide("v", ("id",), ("before",), table="before", where="id < 3", where_location=WHERE)
    world.declare(left=side)
    error = refused(world)
    assert (error.code, error.location) == ("LS461", WHERE)


def test_a_side_without_a_filter_is_placed_where_it_is_declared(world: JoinWorld) -> None:
    filter(world, "right", None)
    world.declare(right=replace(world.join.right, select=("nope",)))
    assert refused(world).location == PLACE
