"""A bounded state: partials of neighbouring fragments are folded into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import lancestat.state.retention
import lancestat.tables.analyze
import lancestat.tables.folding
import lancestat.tables.run
import lancestat.tables.work_items
from lancestat.errors import Location, StateTooSmall, StateUnreachable
from lancestat.joins.action import JoinAction
from lancestat.runs.actions import Blocked, Plan, Skip, has_work
from lancestat.spec.column_selection import ColumnPattern
from lancestat.spec.model import ColumnSelection, CommonValues, Policy, Refresh
from lancestat.state.values import table_identity, weight
from lancestat.tables.action import FoldPartials, RecordStatistics, TableAction
from lancestat.tables.folding import PARTIAL_BYTES, fold_to_fit
from lancestat.tables.stored import add_partials, read_partials, table_records
from tests.examples import examples
from tests.joins.joined import vectors
from tests.runs.world import World, orders, publish_and_die, write_project
from tests.tables.counted import Counted, check

pytestmark = pytest.mark.whole

COLUMNS = 3
HERE = Location("lancestat_project.yml", 3, 9)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of few fragments are folded: as if a summary had four groups."""
    monkeypatch.setattr(lancestat.tables.folding, "MOST_GROUPS", 4)


class Bounded(World):
    """A world whose target has a budget for its state, and whose reads are those of runs."""

    state: Counted
    budget: int | None = None

    def plan(self, *, full_refresh: bool = False) -> Plan:
        plan = super().plan(full_refresh=full_refresh)
        if self.budget is None:
            return plan
        planned = {action.node: action for action in plan.actions}
        records = {record.node: record for record in table_records(self.state).values()}
        folded = fold_to_fit(planned, self.budget, HERE, records)
        return replace(plan, actions=tuple(folded.values()))

    def rows(self) -> Mapping[int, int]:
        """How many rows of partials the state has, by how many fragments they describe."""
        index = self.state.partial_index(table_identity(str(self.path)))
        sizes = [1] * len(index.singles) + [len(members) for members in index.groups]
        return {size: sizes.count(size) for size in sorted(set(sizes))}


def budget(fragments: int) -> int:
    """Bytes for so many fragments."""
    return fragments * COLUMNS * PARTIAL_BYTES


@pytest.fixture
def world(tmp_path: Path) -> Bounded:
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 64), str(path), max_rows_per_file=2)
    return Bounded(path, state=Counted())


def test_what_is_read_is_stored_in_groups_that_fit(world: Bounded) -> None:
    world.budget = budget(16)
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.table.fold == 2
    assert "folds partials of up to 2 fragments" in action.notes[-1]
    assert world.run().status == "success"
    assert world.rows() == {2: 16}
    check(world)


def test_what_a_killed_run_published_is_folded_as_it_is_recorded(
    world: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_and_die(world, monkeypatch)
    world.budget = budget(8)
    action = world.action()
    assert [type(stage) for stage in action.stages] == [RecordStatistics]
    assert "folds stored partials of up to 4 fragments" in action.notes[-1]
    assert world.run().status == "success"
    assert (world.reads, world.rows()) == ([], {4: 8})
    assert not has_work(world.action())
    check(world)


@pytest.mark.parametrize("fragments", [None, 4])
def test_rows_that_are_read_together_count_once(
    world: Bounded, monkeypatch: pytest.MonkeyPatch, fragments: int | None
) -> None:
    """Tasks return the partials of a group as one: of a table with many fragments, or folded."""
    monkeypatch.setattr(lancestat.tables.analyze, "group_width", lambda _: 8)
    world.budget = None if fragments is None else budget(fragments)
    assert world.run().status == "success"
    assert world.published()["lance.stats.column.o_status.nullCount"] == "22"
    published = world.published()
    fresh = World(world.path, state=Counted())
    assert fresh.run(full_refresh=True).status == "success"
    assert fresh.published() == published


def test_partials_that_are_not_of_all_rows_are_read_again(
    world: Bounded, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.run().status == "success"
    identity = table_identity(str(world.path))
    index = world.state.partial_index(identity)
    keys = {(one,): fields for one, fields in list(index.singles.items())[:1]}
    [stored] = read_partials(world.state, identity, keys)
    twice = {key: replace(one, rows=4) for key, one in stored.partials.items()}
    damaged = Counted()
    add_partials(damaged, identity, [replace(stored, partials=twice)])
    world.state = damaged
    lance.write_dataset(orders(64, 2), str(world.path), mode="append")
    world.reads.clear()
    assert world.run().status == "success"
    assert "are of 68 rows, of which the table has 66" in caplog.text
    assert {fragment for _, fragment, _ in world.reads} == set(range(33))
    assert world.published()["lance.stats.column.o_status.nullCount"] == "22"


def test_a_change_reads_a_group_again_and_nothing_else(world: Bounded) -> None:
    world.budget = budget(8)
    assert world.run().status == "success"
    assert world.rows() == {4: 8}
    world.reads.clear()
    world.dataset.delete("o_id = 17")
    assert world.run().status == "success"
    assert {fragment for _, fragment, _ in world.reads} == {8, 9, 10, 11}
    check(world)


def test_what_was_stored_by_itself_is_folded_later(world: Bounded) -> None:
    assert world.run().status == "success"
    assert world.rows() == {1: 32}
    world.budget = budget(16)
    lance.write_dataset(orders(64, 8), str(world.path), mode="append", max_rows_per_file=2)
    world.reads.clear()
    assert world.run().status == "success"
    assert len({fragment for _, fragment, _ in world.reads}) == 4, "only what is new is read"
    assert world.rows() == {4: 9}
    check(world)


@pytest.mark.parametrize("per_job", [lancestat.tables.work_items.PARTIALS_PER_JOB, 5 * COLUMNS])
def test_large_fragments_that_are_read_one_by_one_are_folded(
    world: Bounded, monkeypatch: pytest.MonkeyPatch, per_job: int
) -> None:
    """Also those of a range that several jobs have read."""
    monkeypatch.setattr(lancestat.tables.work_items, "_SMALL_ROWS", 1)
    monkeypatch.setattr(lancestat.tables.analyze, "PARTIALS_PER_JOB", per_job)
    world.budget = budget(4)
    assert world.run().status == "success"
    assert world.rows() == {8: 4}
    check(world)


def test_fragments_that_come_one_at_a_time_keep_to_the_budget(world: Bounded) -> None:
    world.budget = budget(8)
    assert world.run().status == "success"
    for number, rows in ((32, {1: 1, 4: 8}), (33, {2: 1, 4: 8}), (34, {3: 1, 4: 8})):
        world.budget = budget(9)
        lance.write_dataset(orders(2 * number, 2), str(world.path), mode="append")
        world.reads.clear()
        assert world.run().status == "success"
        assert {fragment for _, fragment, _ in world.reads} == {number}
        assert world.rows() == rows
    check(world)


def test_content_that_repeats_does_not_keep_others_from_being_folded(tmp_path: Path) -> None:
    path = tmp_path / "orders.lance"
    for number in (0, 2, 4, 6, 8, 10, 12, 14):
        rows = orders(number, 2).select(["o_id", "o_total"])
        lance.write_dataset(rows, str(path), mode="append" if number else "create")
    # No file has the column: it is null in every fragment.
    lance.dataset(str(path)).add_columns(pa.schema([pa.field("o_status", pa.string())]))
    world = Bounded(path, state=Counted())
    assert world.run().status == "success"
    world.budget = budget(5)
    assert world.run().status == "success"
    assert world.rows() == {1: 1, 2: 4}
    check(world)


def test_a_table_without_changes_is_folded_by_and_by(
    world: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lancestat.tables.folding, "_MOST_FOLDED", 16 * COLUMNS)
    assert world.run().status == "success"
    published, version = world.published(), world.dataset.version
    world.reads.clear()
    world.budget = budget(16)
    for rows in ({1: 16, 2: 8}, {2: 16}):
        action = world.action()
        assert isinstance(action, Skip)
        assert action.stages == (FoldPartials(2),)
        assert "folds stored partials of up to 2 fragments" in action.notes[-1]
        assert world.run().status == "success"
        assert world.rows() == rows
    world.state.reset()
    assert world.action().stages == ()
    assert world.run().status == "success"
    assert (world.state.partials_read, world.rows()) == (0, {2: 16})
    assert (world.reads, world.published(), world.dataset.version) == ([], published, version)
    check(world)
    world.dataset.delete("o_id = 17")
    assert world.run().status == "success"
    assert {fragment for _, fragment, _ in world.reads} == {8, 9}
    check(world)


def test_folding_keeps_what_a_refresh_carries_over_a_compaction(
    world: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lancestat.state.retention, "SUPERSEDED_KEPT", 0)
    assert world.run().status == "success"
    world.dataset.optimize.compact_files(target_rows_per_fragment=8)
    lance.write_dataset(orders(64, 2), str(world.path), mode="append")
    world.policy = Policy(allow_stale=True, refresh=Refresh.WHEN_STALE)
    world.budget = budget(4)
    assert isinstance(world.action(), Skip)
    assert world.run().status == "success"
    world.policy, world.budget = Policy(), None
    world.reads.clear()
    assert world.run().status == "success"
    assert len(world.reads) == 1, "of what was appended"
    check(world)


def test_a_plan_goes_on_with_what_another_run_has_folded(world: Bounded) -> None:
    assert world.run().status == "success"
    lance.write_dataset(orders(64, 8), str(world.path), mode="append", max_rows_per_file=2)
    world.budget = budget(16)
    early = world.plan()
    assert world.run().status == "success"
    lance.write_dataset(orders(72, 2), str(world.path), mode="append")
    world.reads.clear()
    [node] = world.execute(early).nodes
    assert node.status == "success"
    assert sorted(fragment for _, fragment, _ in world.reads) == [32, 33, 34, 35, 36]
    check(world)


def test_a_smaller_budget_folds_what_was_folded_before(world: Bounded) -> None:
    world.budget = budget(16)
    assert world.run().status == "success"
    world.budget = budget(4)
    assert world.run().status == "success"
    assert world.rows() == {8: 4}
    world.budget = budget(16)
    assert world.action().stages == ()
    check(world)


def test_fragments_whose_ids_have_gaps_keep_to_the_budget(world: Bounded) -> None:
    """Every other fragment is gone, so that ranges of ids have half as many as they could."""
    world.dataset.delete("o_id % 4 >= 2")
    world.budget = budget(8)
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.table.fold == 4
    assert world.run().status == "success"
    assert world.rows() == {2: 8}
    world.budget = budget(4)
    action = world.action()
    assert isinstance(action, Skip)
    assert action.stages == (FoldPartials(8),), "the record knows of the gaps"
    assert world.run().status == "success"
    assert world.rows() == {4: 4}
    check(world)
    lance.write_dataset(orders(64, 2), str(world.path), mode="append")
    for fragments, expected in ((3, TableAction), (2, Blocked)):
        world.budget = budget(fragments)
        assert isinstance(world.action(), expected)


def without(*columns: str) -> ColumnSelection:
    return ColumnSelection(exclude=tuple(map(ColumnPattern, columns)))


def test_a_column_that_is_selected_later_is_folded_like_others(world: Bounded) -> None:
    world.columns = without("o_status")
    world.budget = budget(16) * 2 // 3
    assert world.run().status == "success"
    assert world.rows() == {2: 16}
    world.columns = ColumnSelection()
    world.reads.clear()
    assert world.run().status == "success"
    assert {names for _, _, names in world.reads} == {frozenset({"o_status"})}
    assert world.rows() == {4: 8}
    check(world)
    for number in range(32, 40):
        lance.write_dataset(orders(2 * number, 2), str(world.path), mode="append")
        world.budget = budget(5)
        assert world.run().status == "success"
    assert world.rows() == {8: 5}, "also where rows have other fields than their neighbours"
    check(world)


def test_a_column_that_is_not_selected_any_more_makes_room(world: Bounded) -> None:
    assert world.run().status == "success"
    world.columns = without("o_status")
    world.budget = budget(16) * 2 // 3
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.reading is None
    assert "folds stored partials of up to 2 fragments" in action.notes[-1]
    assert world.run().status == "success"
    assert world.rows() == {2: 16}, "rows with the column have gone"
    lance.write_dataset(orders(64, 2), str(world.path), mode="append")
    assert world.run().status == "success"
    published = world.published()
    world.state, world.budget = Counted(), None
    assert world.run(full_refresh=True).status == "success"
    assert world.published() == published


def test_a_state_that_cannot_be_written_leaves_folding_to_a_later_run(
    world: Bounded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.run().status == "success"
    world.budget = budget(16)

    def refuse(*_: object) -> None:
        raise StateUnreachable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.state, "add_partials", refuse)
        assert world.run().status == "success"
    assert "the partials of 'orders' are not folded: LS301" in caplog.text
    assert world.rows() == {1: 32}
    assert world.run().status == "success"
    assert world.rows() == {2: 16}


def test_a_budget_for_fewer_than_the_groups_of_a_summary_is_said_before_the_run(
    world: Bounded,
) -> None:
    world.budget = budget(4) - 1
    action = world.action()
    assert isinstance(action, Blocked)
    assert isinstance(action.error, StateTooSmall)
    assert action.error.code == "LS303"
    assert "state_budget" in action.error.message
    assert action.error.location == HERE


def test_a_table_without_changes_is_folded_into_a_budget_that_is_too_small(
    world: Bounded,
) -> None:
    assert world.run().status == "success"
    world.budget = budget(4) - 1
    action = world.action()
    assert isinstance(action, Skip)
    assert "folds stored partials of up to 8 fragments" in action.notes[-2]
    assert "more than its state_budget of" in action.notes[-1]
    assert world.run().status == "success"
    assert world.rows() == {8: 4}
    [note] = world.action().notes
    assert "more than its state_budget of" in note


def test_a_state_that_is_full_before_the_end_of_folding_has_the_summary(
    world: Bounded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.run().status == "success"
    lance.write_dataset(orders(64, 2), str(world.path), mode="append")
    world.budget = budget(16)

    def refuse(*_: object) -> bool:
        raise StateUnreachable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(lancestat.tables.run, "fold_stored", refuse)
        assert world.run().status == "success"
    assert "the partials of 'orders' are not folded: LS301" in caplog.text
    check(world)
    assert isinstance(world.action(), Skip)
    assert world.run().status == "success"
    assert world.rows() == {4: 8, 1: 1}
    check(world)


def test_all_tables_of_a_plan_share_the_budget(world: Bounded) -> None:
    action = world.action()
    assert isinstance(action, TableAction)
    small = replace(
        action, node="small", table=replace(action.table, groups=action.table.groups[:3])
    )
    planned = {action.node: action, "small": small}
    assert weight(frozenset(action.table.needs)) == COLUMNS
    folded = fold_to_fit(planned, budget(16 + 3), HERE, {})
    assert [action.table.fold for action in folded.values()] == [2, 1]  # type: ignore[union-attr]
    assert fold_to_fit(planned, budget(32 + 3), HERE, {}) == planned


def test_tables_that_a_run_leaves_out_share_the_budget(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rows = orders(0, 64)
        lance.write_dataset(rows, str(tmp_path / f"{name}.lance"), max_rows_per_file=2)
    tables = [{"name": name, "uri": f"{name}.lance"} for name in ("a", "b")]
    project = write_project(tmp_path, *tables)
    assert project.run(project.plan("a")).status == "success"
    target = {"state": "state", "spark": {"master": "local[2]"}}
    for fragments, fold in ((64, 1), (63, 2), (32, 2), (31, 4)):
        bounded = {**target, "state_budget": f"{budget(fragments)}B"}
        [action] = write_project(tmp_path, *tables, target=bounded).plan("b").actions
        assert isinstance(action, TableAction)
        assert (fragments, action.table.fold) == (fragments, fold)


def test_joins_are_planned_whatever_the_budget_is(tmp_path: Path) -> None:
    """Alone, as a run does that plans one again, and with tables for which there is no room."""
    for name, vector in (("l", "v"), ("r", "w")):
        lance.write_dataset(vectors(0, 9, name=vector), str(tmp_path / f"{name}.lance"))
    tables = [{"name": name, "uri": f"{name}.lance"} for name in ("l", "r")]
    sides = {
        "left": {"table": "l", "vector": "v", "select": ["id"]},
        "right": {"table": "r", "vector": "w", "select": ["key"]},
    }
    join = {"name": "near", **sides, "k": 1, "output": {"lance": "near.lance"}}
    target = {"state": "state", "spark": {"master": "local[2]"}, "state_budget": "1B"}
    project = write_project(tmp_path, *tables, target=target, knn_joins=[join])
    [alone] = project.plan("near").actions
    beside = {action.node: action for action in project.plan().actions}
    assert isinstance(alone, JoinAction)
    assert beside.pop("near") == alone
    assert [type(action) for action in beside.values()] == [Blocked, Blocked]


COMMON = CommonValues(limit=100)


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"histogram": True},
        {"histogram": True, "common_values": COMMON},
        {"histogram": True, "keys": (("o_id",),), "groups": (("o_id", "o_status"),)},
        {"common_values": COMMON, "keys": (("o_id", "o_total"),)},
    ],
)
def test_all_that_is_stored_of_a_table_weighs_as_much_whether_it_is_read_or_not(
    world: Bounded, declared: Mapping[str, Any]
) -> None:
    for name, value in declared.items():
        setattr(world, name, value)
    action = world.action()
    assert isinstance(action, TableAction)
    each = 32 * weight(frozenset(action.table.needs)) * PARTIAL_BYTES
    assert world.run().status == "success"
    [record] = table_records(world.state).values()
    for less, stages in ((0, ()), (1, (FoldPartials(2),))):
        planned, records = {"orders": world.action()}, {"orders": record}
        skipped = fold_to_fit(planned, each - less, HERE, records)["orders"]
        assert skipped.stages == stages
        beside = fold_to_fit({"other": action}, 2 * each - less, HERE, records)["other"]
        assert isinstance(beside, TableAction)
        assert beside.table.fold == 1 + less


def test_a_compaction_that_takes_sums_apart_keeps_what_is_known(world: Bounded) -> None:
    world.budget = budget(4)
    assert world.run().status == "success"
    world.dataset.delete("o_id = 3")
    assert world.run().status == "success"
    check(world)
    world.dataset.optimize.compact_files(target_rows_per_fragment=5)
    world.budget = None
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.verb == "restamp"
    assert world.run().status == "success"
    check(world)
    lance.write_dataset(orders(1_000, 2), str(world.path), mode="append")
    [node] = world.run().nodes
    assert node.fragments_scanned == 1


@pytest.mark.parametrize("seed", range(examples(12)))
def test_random_histories_end_with_the_statistics_of_all_rows(tmp_path: Path, seed: int) -> None:
    """Appends, deletions, updates and compactions, under budgets that come and go."""
    chosen = Random(seed)
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 24), str(path), max_rows_per_file=2)
    world = Bounded(path, state=Counted())
    following = 24
    for _ in range(6):
        world.budget = chosen.choice([None, budget(12), budget(24)])
        result = world.run()
        assert result.status == "success"
        check(world)
        dataset = lance.dataset(str(path))
        match chosen.choice(["append", "delete", "update", "compact"]):
            case "append":
                count = chosen.choice([2, 8, 16])
                rows = orders(following, count)
                lance.write_dataset(rows, str(path), mode="append", max_rows_per_file=2)
                following += count
            case "delete":
                dataset.delete(f"o_id % 13 = {chosen.randrange(13)}")
            case "update":
                dataset.update({"o_total": "0.5"}, where=f"o_id % 17 = {chosen.randrange(17)}")
            case _:
                dataset.optimize.compact_files(target_rows_per_fragment=chosen.choice([4, 8]))
    world.budget = budget(64)
    assert world.run().status == "success"
    check(world)
    fresh = World(path, state=Counted())
    assert fresh.run(full_refresh=True).status in ("success",)
    assert world.published() == fresh.published()
