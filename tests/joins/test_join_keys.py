"""Joins with `on`: how they are planned and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet

from lancestat.errors import LancestatError, Location
from lancestat.joins.action import JoinAction
from lancestat.joins.record import JoinGroups, join_records
from lancestat.joins.search.work import Scope
from lancestat.presentation.plan_view import explain_stages, plan_view
from lancestat.presentation.views import ActionView
from lancestat.runs.actions import Blocked, Plan, Reason, Skip
from lancestat.runs.result import planned
from tests.joins.joined import JoinWorld, for_parquet, vectors
from tests.presentation.rendering import as_text

ON = Location("specs/near.yml", 9, 5)


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    for name, column in (("l", "v"), ("r", "w")):
        uri = str(tmp_path / f"{name}.lance")
        lance.write_dataset(keyed(0, 20, column), uri, max_rows_per_file=7)
    world = JoinWorld(tmp_path)
    world.declare(on=(("shop", "shop"),), on_location=ON)
    return world


def keyed(start: int, count: int, name: str) -> pa.Table:
    shops = [None if n % 10 == 9 else n % 3 for n in range(start, start + count)]
    rows = vectors(start, count, name=name).append_column("shop", pa.array(shops, pa.int32()))
    return rows.append_column("half", pa.array([0.5] * count, pa.float32()))


def refused(world: JoinWorld) -> LancestatError:
    action = world.action()
    assert isinstance(action, Blocked), action
    return action.error


def test_a_plan_says_that_rows_are_grouped(world: JoinWorld) -> None:
    action = world.action()
    assert isinstance(action, JoinAction)
    assert explain_stages(action) == [
        "strategy: exact, only rows with equal keys are compared, which the run counts",
        "group: the rows of both sides are written to scratch by the keys that they share",
        "probe: left rows against right rows",
        f"commit: written to {world.uri('near')} as lance",
    ]
    assert (action.decision.pairs, action.decision.seconds) == (None, None)


def test_an_approximate_join_with_keys_compares_every_pair_of_a_group(world: JoinWorld) -> None:
    world.declare(mode="approx", recall=0.9)
    action = world.action()
    assert isinstance(action, JoinAction)
    assert action.decision.strategy.value == "exact"
    assert action.decision.why.startswith(
        "rows with equal keys are few enough to compare every pair of them, "
    )


def test_what_may_change_groups_is_joined(world: JoinWorld) -> None:
    world.run()
    assert world.rows() == world.expected() != []
    assert isinstance(world.action(), Skip)
    lance.write_dataset(keyed(30, 5, "v"), world.uri("l"), mode="append")
    world.run()
    assert world.rows() == world.expected()
    lance.write_dataset(keyed(30, 5, "w"), world.uri("r"), mode="append")
    world.run()
    assert world.rows() == world.expected()
    lance.dataset(world.uri("l")).update({"shop": "1"}, where="id = 3")
    action = world.action()
    assert isinstance(action, JoinAction) and action.reasons == (Reason.INPUT_CHANGED,)
    world.run()
    assert world.rows() == world.expected()
    assert world.scopes == ["full", "new_left", "new_right", "full"]


def test_a_missing_key_is_refused_with_its_place(world: JoinWorld) -> None:
    world.declare(on=(("shop", "shp"),))
    assert str(refused(world)) == (
        f"LS454 {ON}  the right side of knn join 'near' names column 'shp', which "
        f"{world.uri('r')} does not have\n      hint: did you mean 'shop'?"
    )


def test_a_missing_key_of_files_is_refused_with_its_place(world: JoinWorld) -> None:
    path = world.folder / "rows.parquet"
    parquet.write_table(for_parquet(vectors(0, 5, name="w")), path)
    side = replace(world.join.right, table=None, refs=(), format="parquet", uri=str(path))
    world.declare(right=side)
    error = refused(world)
    assert (error.code, error.location) == ("LS454", ON)


@pytest.mark.parametrize(("left", "right"), [("shop", "key"), ("half", "half")])
def test_keys_that_cannot_be_compared_are_refused_with_their_place(
    world: JoinWorld, left: str, right: str
) -> None:
    world.declare(on=((left, right),))
    error = refused(world)
    assert (error.code, error.location) == ("LS462", ON)
    assert f"the left key '{left}' is of type" in error.message


def test_a_plan_shows_what_the_last_run_found_of_keys(world: JoinWorld) -> None:
    assert (shown(world).reads, shown(world).choice) == (
        "exact, 20 x 20 rows",
        f"{BY_KEYS}, which the run counts",
    )
    [node] = world.run().nodes
    made = node.figures
    assert made is not None and made.groups == 3 and made.pairs is not None
    known = JoinGroups(3, made.pairs, 20, 20)
    assert join_records(world.state)["near"].groups == known
    again = world.action(full_refresh=True)
    assert isinstance(again, JoinAction)
    [view] = plan_view(Plan("shop", "dev", (again,)), {}).actions
    assert view.reads.startswith("exact, 20 x 20 rows, about ")
    assert view.choice == f"{BY_KEYS}, 3 groups and {made.pairs} pairs in the last full run"
    assert (again.figures.groups, again.figures.pairs) == (3, made.pairs)
    assert again.figures.estimated_seconds is not None
    skipped = planned(world.action()).to_json()
    assert (skipped["groups"], skipped["pairs"]) == (3, None)


def test_new_left_rows_leave_what_is_known_of_all_keys(world: JoinWorld) -> None:
    world.run()
    known = join_records(world.state)["near"].groups
    assert known is not None
    lance.write_dataset(keyed(30, 5, "v"), world.uri("l"), mode="append")
    action = world.action()
    assert isinstance(action, JoinAction) and action.work.scope is Scope.NEW_LEFT
    assert action.figures.pairs == known.pairs * 5 // 20
    assert f"{known.pairs} pairs in the last full run" in as_text(world.plan(), width=160)
    world.run()
    assert join_records(world.state)["near"].groups == known


def test_what_was_found_of_other_keys_is_not_shown(world: JoinWorld) -> None:
    world.run()
    world.declare(on=(("other", "other"),))
    assert shown(world).choice == f"{BY_KEYS}, which the run counts"


BY_KEYS = "exact: only rows with equal keys are compared"


def shown(world: JoinWorld) -> ActionView:
    return plan_view(world.plan(), {}).actions[0]
