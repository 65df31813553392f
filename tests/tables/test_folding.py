"""A bounded state: partials of neighbouring fragments are folded into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import lance
import pytest

import lancestat.tables.folding
from lancestat.errors import Location, StateTooSmall
from lancestat.runs.actions import Blocked, Plan
from lancestat.spec.model import Target
from lancestat.state.values import table_identity, weight
from lancestat.tables.action import ReadFragments, TableAction, TableVersion
from lancestat.tables.analyze import ProcessScanner, Scanned
from lancestat.tables.folding import PARTIAL_BYTES, fold_to_fit
from tests.examples import examples
from tests.runs.world import World, orders, write_project
from tests.tables.counted import Counted, check

COLUMNS = 3
HERE = Location("lancestat_project.yml", 3, 9)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of few fragments are folded: as if a summary had four groups."""
    monkeypatch.setattr(lancestat.tables.folding, "MOST_GROUPS", 4)


class Bounded(World):
    """A world whose target has a budget for its state, and whose reads are those of runs."""

    budget: int | None = None

    def plan(self, *, full_refresh: bool = False) -> Plan:
        plan = super().plan(full_refresh=full_refresh)
        if self.budget is None:
            return plan
        planned = {action.node: action for action in plan.actions}
        return replace(plan, actions=tuple(fold_to_fit(planned, self.budget, HERE).values()))

    def scan(self, node: str, table: TableVersion, stage: ReadFragments) -> Iterator[Scanned]:
        self.reads += ((table.version, scan.fragment_id, scan.fields) for scan in stage.scans)
        with ProcessScanner(Target("dev", "state", spark_master="local[2]")) as scanner:
            yield from scanner.scan(node, table, stage.scans)

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
    # Fewer than are read at once were stored one by one, and the newest range waits for more.
    assert world.rows() == {1: 4, 4: 8}
    lance.write_dataset(orders(72, 8), str(world.path), mode="append", max_rows_per_file=2)
    assert world.run().status == "success"
    assert world.rows() == {1: 4, 4: 9}
    check(world)


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


def test_all_tables_of_a_plan_share_the_budget(world: Bounded) -> None:
    action = world.action()
    assert isinstance(action, TableAction)
    small = replace(action, node="small", table=replace(action.table, fragments=3))
    planned = {action.node: action, "small": small}
    assert weight(frozenset(action.table.needs)) == COLUMNS
    folded = fold_to_fit(planned, budget(16 + 3), HERE)
    assert [action.table.fold for action in folded.values()] == [2, 1]  # type: ignore[union-attr]
    assert fold_to_fit(planned, budget(32 + 3), HERE) == planned


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
