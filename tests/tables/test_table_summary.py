"""Updating a summary reads and writes only its changed groups."""

from __future__ import annotations

import logging
from pathlib import Path

import lance
import pytest

import lancestat.tables.coverage
import lancestat.tables.run
from lancestat.errors import StateUnreachable
from lancestat.runs.actions import Skip
from lancestat.spec.model import Publish
from lancestat.state.values import TableSummary, table_identity
from tests.runs.world import World, orders
from tests.state.memory import MemoryState
from tests.tables.counted import Counted, check

COLUMNS = 3


@pytest.fixture
def state() -> Counted:
    return Counted()


@pytest.fixture
def world(tmp_path: Path, state: Counted) -> World:
    """100 rows in 20 fragments, of which a run made a summary of 20 groups in ten blocks."""
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), str(path), max_rows_per_file=5)
    world = World(path, state=state)
    assert world.run().status == "success"
    check(world)
    assert [len(summary.groups) for summary in state.summaries] == [20]
    assert state.blocks_written == 10 * COLUMNS
    state.reset()
    return world


def run(world: World, state: Counted) -> None:
    """Run, and count only the reads and writes of the summary."""
    state.reset()
    assert world.run().status == "success"


def test_the_first_run_reads_nothing_back(tmp_path: Path) -> None:
    class Unread(Counted):
        def summary(self, table: str) -> TableSummary | None:
            raise AssertionError("a table that is new has no summary")

    lance.write_dataset(orders(0, 100), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    state = Unread()
    world = World(tmp_path / "orders.lance", state=state)
    assert world.run().status == "success"
    assert (state.partials_read, state.blocks_written) == (0, 10 * COLUMNS)


def test_many_partials_are_read_back_for_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not kept in memory."""
    monkeypatch.setattr(lancestat.tables.run, "_PARTIALS_KEPT", 20 * COLUMNS - 1)
    lance.write_dataset(orders(0, 100), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    state = Counted()
    world = World(tmp_path / "orders.lance", state=state)
    assert world.run().status == "success"
    assert state.partials_read == 20 * COLUMNS
    check(world)


def test_a_skip_writes_nothing(world: World, state: Counted) -> None:
    assert isinstance(world.action(), Skip)
    run(world, state)
    assert not state.summaries


def test_an_append_rewrites_the_last_block(world: World, state: Counted) -> None:
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    # All 20 fragments are merged for the table; the partials of the appended one are at hand.
    assert state.partials_read == 20 * COLUMNS
    assert (state.blocks_read, state.blocks_written) == (0, COLUMNS)
    check(world)


def test_an_append_merges_existing_groups_with_new_fragments(
    world: World, state: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lancestat.tables.coverage, "MOST_GROUPS", 8)
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    assert [len(summary.groups) for summary in state.summaries] == [6]
    # Groups of four are merged of groups of one: no partial of an old fragment is read for them.
    assert state.partials_read == 20 * COLUMNS
    check(world)
    lance.write_dataset(orders(105, 5), str(world.path), mode="append")
    run(world, state)
    # The table is merged of five groups, and of the one fragment that was a group by itself.
    assert state.partials_read == COLUMNS
    assert state.blocks_written == COLUMNS
    check(world)


def test_deleted_rows_rewrite_their_block(world: World, state: Counted) -> None:
    world.dataset.delete("o_id = 12")
    run(world, state)
    assert state.blocks_written == COLUMNS
    check(world)


def test_an_added_column_is_summarized_alone(world: World, state: Counted) -> None:
    world.dataset.add_columns({"o_double": "o_id * 2"})
    run(world, state)
    assert state.blocks_written == 10
    check(world)


def test_commits_that_keep_rows_and_fragments_write_no_block(world: World, state: Counted) -> None:
    world.dataset.create_scalar_index("o_id", "BTREE")
    assert world.action().verb == "restamp"
    run(world, state)
    [summary] = state.summaries
    assert summary.version == world.dataset.version
    assert (state.blocks_read, state.blocks_written) == (0, 0)
    check(world)


@pytest.mark.parametrize("rows_per_fragment", [12, 1000])
def test_compacted_fragments_are_summarized_from_carried_partials(
    world: World, state: Counted, rows_per_fragment: int
) -> None:
    world.dataset.optimize.compact_files(target_rows_per_fragment=rows_per_fragment)
    assert world.action().verb == "restamp"
    world.reads.clear()
    run(world, state)
    assert not world.reads
    assert state.blocks_written
    check(world)
    world.dataset.delete("o_id = 12")
    run(world, state)
    check(world)


def test_lost_blocks_of_a_summary_are_rebuilt(world: World, state: Counted) -> None:
    state._blocks[table_identity(str(world.path))].clear()
    lance.write_dataset(orders(100, 5), str(world.path), mode="append")
    run(world, state)
    assert state.blocks_written == 11 * COLUMNS
    check(world)


def test_a_summary_that_cannot_be_written_does_not_fail_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise StateUnreachable("the state cannot be reached")

    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"))
    world = World(tmp_path / "orders.lance")
    monkeypatch.setattr(MemoryState, "add_summary", refuse)
    with caplog.at_level(logging.WARNING, "lancestat.run"):
        assert world.run().status == "success"
    assert "is not summed up by groups of fragments" in caplog.text
    assert isinstance(world.action(), Skip)


def test_unpublished_statistics_are_summarized_too(tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "orders.lance"), max_rows_per_file=5)
    world = World(tmp_path / "orders.lance", publish=Publish.NONE)
    world.run()
    check(world)
