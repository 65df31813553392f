"""Runs take sums over groups of fragments instead of their partials, and count nothing twice."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat.tables.summary
from lancestat.state.values import StoredPartials, table_identity
from lancestat.tables.stored import add_partials, read_partials
from tests.runs.world import World, orders
from tests.tables.counted import Counted, check
from tests.tables.test_incremental import check_converged

pytestmark = pytest.mark.whole


@pytest.fixture
def state() -> Counted:
    return Counted()


@pytest.fixture
def world(tmp_path: Path, state: Counted, monkeypatch: pytest.MonkeyPatch) -> World:
    """100 rows in 20 fragments, the last four of them in the third of three groups."""
    monkeypatch.setattr(lancestat.tables.summary, "MOST_GROUPS", 4)
    path = tmp_path / "orders.lance"
    lance.write_dataset(orders(0, 100), str(path), max_rows_per_file=5)
    lance.dataset(str(path)).add_columns([pa.field("o_note", pa.string())])
    world = World(path, state=state)
    assert world.run().status == "success"
    assert [len(summary.groups) for summary in state.summaries] == [3]
    return world


def run(world: World, state: Counted) -> None:
    """Run, count the reads, and compare the result with a full refresh."""
    world.reads.clear()
    state.reset()
    assert world.run().status == "success"
    counted, blocks = state.partials_read, state.blocks_read
    check(world)
    check_converged(world)
    check(world)
    state.partials_read, state.blocks_read = counted, blocks


def test_an_append_reads_groups_and_not_partials(world: World, state: Counted) -> None:
    lance.write_dataset(
        orders(100, 5).append_column("o_note", pa.nulls(5, pa.string())),
        str(world.path),
        mode="append",
    )
    run(world, state)
    assert len(world.reads) == 1
    assert state.blocks_read
    # For its group the new fragment is read; the note, null everywhere, is one partial for all.
    assert state.partials_read <= 8


def test_a_group_that_lost_rows_is_read_by_fragment(world: World, state: Counted) -> None:
    world.dataset.delete("o_id = 12")
    run(world, state)
    assert 7 * 3 <= state.partials_read <= 2 * 8 * 4


def test_a_restamp_reads_groups(world: World, state: Counted) -> None:
    world.dataset.create_scalar_index("o_id", "BTREE")
    run(world, state)
    assert not world.reads
    assert state.partials_read == 0


def test_scanned_fragments_are_not_counted_again_in_their_group(
    world: World, state: Counted
) -> None:
    """Partials of one fragment are lost, which its group still sums up."""
    table = table_identity(str(world.path))
    singles = {(key,): fields for key, fields in state.partial_index(table).singles.items()}
    lost, *others = read_partials(state, table, singles)
    rest = {key: partial for key, partial in lost.partials.items() if key != "0:bigint"}
    dataset = state.partial_table.dataset(latest=True)
    assert dataset is not None
    dataset.delete("true")
    add_partials(state, table, [*others, StoredPartials(lost.fingerprints, rest)])
    world.dataset.update_config({"lance.stats.column.o_id.max": "7"})
    run(world, state)
    assert len(world.reads) == 1
    assert world.published()["lance.stats.numRows"] == "100"


def test_groups_whose_blocks_are_gone_are_read_by_fragment(world: World, state: Counted) -> None:
    class Forgetful(Counted):
        """Lists blocks that it then does not have."""

        def summary_blocks(self, table, keys, decode):  # type: ignore[no-untyped-def]
            return iter(())

    state.__class__ = Forgetful
    world.dataset.delete("o_id = 12")
    state.reset()
    check_converged(world)
    assert state.partials_read >= 20 * 3
