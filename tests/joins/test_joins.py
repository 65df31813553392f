"""Each kind of change to the sides of a join: its plan, the joined rows, and the result."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import StateUnreachable
from lancestat.joins.action import JoinAction
from lancestat.joins.record import Accuracy, JoinCounts, join_records
from lancestat.joins.search.work import JoinWork
from lancestat.runs.actions import Blocked, Reason, Skip
from lancestat.state.values import RunRecord
from tests.joins.joined import JoinWorld, vectors
from tests.runs.world import PLACE
from tests.state.memory import MemoryState


@pytest.fixture
def world(tmp_path: Path) -> JoinWorld:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"), max_rows_per_file=7)
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"), max_rows_per_file=9)
    return JoinWorld(tmp_path)


def check_converged(world: JoinWorld) -> None:
    """A run leaves nothing to do, and its result is that of a join in full."""
    assert world.run().status == "success"
    assert isinstance(world.action(), Skip)
    assert world.rows() == world.expected()


def settle(world: JoinWorld) -> None:
    check_converged(world)
    world.works.clear()


def append(world: JoinWorld, side: str, start: int, count: int) -> None:
    name = {"l": "v", "r": "w"}[side]
    lance.write_dataset(vectors(start, count, name=name), world.uri(side), mode="append")


def planned(world: JoinWorld) -> JoinAction:
    action = world.action()
    assert isinstance(action, JoinAction), action
    return action


def test_the_first_run_joins_in_full(world: JoinWorld) -> None:
    action = planned(world)
    assert (action.verb, action.reasons) == ("analyze", (Reason.NEW,))
    assert action.figures.counts == JoinCounts(20, 30, None, None)
    check_converged(world)
    assert world.scopes == ["full"]


def test_an_unchanged_join_is_skipped_with_its_recorded_figures(world: JoinWorld) -> None:
    settle(world)
    action = world.action()
    assert isinstance(action, Skip)
    assert (action.kind, action.reasons) == ("knn_join", (Reason.UNCHANGED,))
    [result] = world.run().nodes
    assert result.to_json()["unmatched_left_rows"] == 5
    assert result.to_json()["strategy"] == "exact"
    assert not world.works


def new_fragments(world: JoinWorld) -> frozenset[int]:
    increment = world.works[0].increment
    assert increment is not None
    return increment.new_fragments


def test_only_new_left_rows_are_joined(world: JoinWorld) -> None:
    settle(world)
    append(world, "l", 100, 4)
    append(world, "l", 104, 3)
    action = planned(world)
    assert (action.verb, action.reasons) == ("refresh", (Reason.ROWS_APPENDED,))
    assert action.notes == ("only 7 new left rows are joined, and put behind the result",)
    assert action.new_rows == 7
    check_converged(world)
    assert world.scopes == ["new_left"]
    assert new_fragments(world) == {3, 4}


def test_only_new_right_rows_are_searched(world: JoinWorld) -> None:
    settle(world)
    append(world, "r", 100, 1)
    action = planned(world)
    assert action.reasons == (Reason.ROWS_APPENDED,)
    assert action.notes == ("only 1 new right row is searched, and merged with the result",)
    assert action.decision.strategy == "exact"
    check_converged(world)
    assert world.scopes == ["new_right"]
    assert new_fragments(world) == {4}


def test_new_rows_on_both_sides_join_in_full(world: JoinWorld) -> None:
    settle(world)
    append(world, "l", 100, 4)
    append(world, "r", 100, 4)
    action = planned(world)
    assert action.reasons == (Reason.ROWS_APPENDED, Reason.INPUT_CHANGED)
    assert action.notes == ("the left side has new rows", "the right side has new rows")
    check_converged(world)
    assert world.scopes == ["full"]


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("change", ["delete", "update", "compact", "overwrite", "recreate"])
def test_any_other_change_joins_in_full(world: JoinWorld, side: str, change: str) -> None:
    settle(world)
    dataset = lance.dataset(world.uri(side))
    match change:
        case "delete":
            dataset.delete("id = 4")
        case "update":
            dataset.update({"key": "'new'"}, where="id = 4")
        case "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=1000)
        case "overwrite":
            lance.write_dataset(dataset.to_table(), world.uri(side), mode="overwrite")
        case _:
            rows = dataset.to_table()
            lance.LanceDataset.drop(world.uri(side), {})
            lance.write_dataset(rows, world.uri(side), max_rows_per_file=7)
    action = planned(world)
    name = {"l": "left", "r": "right"}[side]
    assert action.reasons == (Reason.INPUT_CHANGED,)
    assert action.notes == (f"the {name} side has changed",)
    check_converged(world)
    assert world.scopes == ["full"]


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("change", ["index", "config", "add column", "drop column", "other values"])
def test_commits_that_keep_rows_and_columns_are_skipped(
    world: JoinWorld, side: str, change: str
) -> None:
    settle(world)
    dataset = lance.dataset(world.uri(side))
    match change:
        case "index":
            dataset.create_scalar_index("id", "BTREE")
        case "config":
            dataset.update_config({"lance.stats.version": "1"})
        case "add column":
            dataset.add_columns({"more": "id + 1"})
        case "drop column":
            dataset.drop_columns(["other"])
        case _:
            dataset.add_columns({"fresh": "id + 1"})
            dataset.drop_columns(["fresh"])
    assert isinstance(world.action(), Skip)


def test_columns_that_swap_names_are_a_change(world: JoinWorld) -> None:
    world.declare(right=world.join.right.__class__("w", ("a",), table="r", refs=("r",)))
    rows = vectors(0, 9, name="w")
    rows = rows.append_column("a", pa.array(range(9))).append_column("b", pa.array(range(9, 18)))
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    settle(world)
    dataset = lance.dataset(world.uri("r"))
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        dataset.alter_columns({"path": old, "name": new})
    assert planned(world).reasons == (Reason.INPUT_CHANGED,)
    check_converged(world)


def test_a_variable_size_list_is_watched_too(world: JoinWorld) -> None:
    rows = vectors(0, 9, name="w")
    lists = rows.column("w").combine_chunks().cast(pa.list_(pa.float32()))
    rows = rows.set_column(2, "w", lists)
    lance.write_dataset(rows, world.uri("r"), mode="overwrite")
    settle(world)
    dataset = lance.dataset(world.uri("r"))
    dataset.merge_insert("id").when_matched_update_all().execute(
        rows.slice(0, 2).set_column(2, "w", pa.array([[9.0, 9.0]] * 2, pa.list_(pa.float32())))
    )
    assert planned(world).reasons == (Reason.INPUT_CHANGED,)
    check_converged(world)


def test_a_changed_definition_joins_in_full(world: JoinWorld) -> None:
    settle(world)
    world.declare(k=3)
    action = planned(world)
    assert (action.verb, action.reasons) == ("refresh", (Reason.SPEC_CHANGED,))
    check_converged(world)
    assert world.scopes == ["full"]


def test_a_changed_description_does_not_change_the_definition(world: JoinWorld) -> None:
    settle(world)
    world.declare(description="Near ones.", tags=("x",), owner="me")
    assert isinstance(world.action(), Skip)


def test_a_full_refresh_joins_in_full(world: JoinWorld) -> None:
    settle(world)
    action = world.action(full_refresh=True)
    assert isinstance(action, JoinAction)
    assert (action.verb, action.reasons) == ("refresh", (Reason.FULL_REFRESH,))
    assert world.run(full_refresh=True).status == "success"
    assert world.scopes == ["full"]


def test_a_lost_result_is_joined_again(world: JoinWorld) -> None:
    settle(world)
    lance.LanceDataset.drop(world.join.output_uri, {})
    action = planned(world)
    assert (action.verb, action.reasons) == ("analyze", (Reason.OUTPUT_MISSING,))
    check_converged(world)


def test_a_result_that_was_edited_is_not_replaced(world: JoinWorld) -> None:
    settle(world)
    lance.dataset(world.join.output_uri).delete("id = 0")
    append(world, "l", 100, 4)
    action = world.action()
    assert isinstance(action, Blocked)
    assert (action.error.code, action.error.location) == ("LS570", PLACE)
    assert action.error.hint == "give the join another output, or remove what is there"
    lance.LanceDataset.drop(world.join.output_uri, {})
    check_converged(world)
    assert world.scopes == ["full"]


def test_a_compacted_result_is_joined_again(world: JoinWorld) -> None:
    settle(world)
    append(world, "l", 100, 4)
    check_converged(world)
    lance.dataset(world.join.output_uri).optimize.compact_files()
    action = planned(world)
    assert (action.verb, action.reasons) == ("refresh", (Reason.OUTPUT_MISSING,))
    check_converged(world)
    assert world.scopes == ["new_left", "full"]


def test_publishing_statistics_of_a_result_keeps_it_valid(world: JoinWorld) -> None:
    settle(world)
    lance.dataset(world.join.output_uri).update_config({"lance.stats.version": "1"})
    assert isinstance(world.action(), Skip)
    append(world, "l", 100, 4)
    check_converged(world)
    assert world.scopes == ["new_left"]


def test_a_lost_state_only_costs_time(world: JoinWorld) -> None:
    settle(world)
    world.state = MemoryState()
    assert planned(world).reasons == (Reason.NEW,)
    check_converged(world)


def test_a_result_that_moves_while_it_runs_is_joined_in_full(world: JoinWorld) -> None:
    settle(world)
    append(world, "l", 90, 4)
    check_converged(world)
    world.works.clear()
    append(world, "l", 100, 4)

    def spoil(work: object) -> None:
        lance.dataset(world.join.output_uri).optimize.compact_files()
        world.before = None

    world.before = spoil
    [result] = world.run().nodes
    assert (result.status, world.scopes) == ("success", ["new_left", "full"])
    assert result.to_json()["scope"] == "full"
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


def test_measured_recall_of_an_approximate_result_is_preserved(world: JoinWorld) -> None:
    world.declare(mode="approx", recall=0.9)
    world.measured = (0.93, 7)
    settle(world)
    # As where every pair of new rows is compared.
    world.measured = (1.0, None)
    append(world, "r", 100, 4)
    [result] = world.run().nodes
    assert result.figures is not None
    assert (result.figures.scope, result.figures.accuracy) == ("new_right", Accuracy(0.93, 7))
    record = join_records(world.state)["near"]
    assert record.accuracy == Accuracy(0.93, 7)
    for measured in ((0.95, 8), (1.0, None)):
        before = join_records(world.state)["near"]
        world.measured = measured
        append(world, "l", 100 + 4 * (measured[1] is None), 4)
        world.run()
        after = join_records(world.state)["near"]
        # Of the rows that were there, and of the four new ones.
        rows = before.counts.left_rows
        assert before.accuracy.recall is not None and after.counts.left_rows == rows + 4
        expected = (before.accuracy.recall * rows + measured[0] * 4) / (rows + 4)
        assert after.accuracy == Accuracy(pytest.approx(expected), 8)


def test_of_two_runs_with_one_plan_the_second_joins_in_full(world: JoinWorld) -> None:
    """Rows that the first one appended are not appended again."""
    settle(world)
    append(world, "l", 100, 4)
    plan = world.plan()
    for _ in range(2):
        assert world.execute(plan).status == "success"
    assert world.scopes == ["new_left", "new_left", "full"]
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)


class Forgetful(MemoryState):
    """A state that cannot be written to, once."""

    def add_run(self, run: RunRecord) -> None:
        self.add_run = super().add_run  # type: ignore[method-assign]
        raise StateUnreachable("the state is away")


def test_a_result_that_was_not_recorded_is_joined_again(world: JoinWorld) -> None:
    """A run may be killed right after its commit."""
    world.state = Forgetful()
    assert world.run().status == "success"
    assert planned(world).reasons == (Reason.NEW,)
    check_converged(world)
    append(world, "l", 100, 4)
    del world.state.add_run
    assert world.run().status == "success"
    action = planned(world)
    assert Reason.OUTPUT_MISSING in action.reasons
    check_converged(world)
    assert world.rows() == world.expected()


def test_a_side_that_moves_while_it_runs_is_joined_again(world: JoinWorld) -> None:
    world.before = lambda work: append(world, "r", 500, 3)
    world.run()
    world.before = None
    assert planned(world).reasons == (Reason.ROWS_APPENDED,)
    check_converged(world)


@pytest.mark.parametrize("side", ["l", "r"])
def test_rows_added_to_an_empty_side_are_joined_in_full(world: JoinWorld, side: str) -> None:
    world.declare(join="left_outer")
    lance.dataset(world.uri(side)).truncate_table()
    settle(world)
    append(world, side, 50, 5)
    check_converged(world)
    assert world.scopes == ["full"]


def test_a_failed_join_keeps_the_last_result(world: JoinWorld) -> None:
    settle(world)
    rows = world.rows()
    append(world, "r", 100, 4)

    def fail(work: object) -> None:
        raise ValueError("no")

    world.before = fail
    [result] = world.run().nodes
    assert (result.status, result.text) == (
        "error",
        "LS001 specs/shop.yml:1:1  internal error: ValueError: no\n"
        "      hint: run again with --verbose for the traceback",
    )
    assert world.rows() == rows
    world.before = None
    assert planned(world).reasons == (Reason.ROWS_APPENDED,)
    check_converged(world)


@pytest.mark.parametrize("name", ["l", "r"])
def test_a_missing_side_blocks_the_join(world: JoinWorld, name: str) -> None:
    lance.LanceDataset.drop(world.uri(name), {})
    action = world.action()
    assert isinstance(action, Blocked)
    assert (action.kind, action.error.code) == ("knn_join", "LS201")
    assert action.error.location == PLACE


@pytest.mark.parametrize("side", ["l", "r"])
def test_a_side_recreated_before_it_is_read_is_planned_again(world: JoinWorld, side: str) -> None:
    done: list[str] = []

    def recreate_side(work: JoinWork) -> None:
        if not done:
            done.append(side)
            shutil.rmtree(world.uri(side))
            name = {"l": "v", "r": "w"}[side]
            lance.write_dataset(vectors(500, 11, name=name), world.uri(side))

    world.before = recreate_side
    assert world.run().status == "success"
    assert world.rows() == world.expected()
    assert isinstance(world.action(), Skip)
