"""`histogram: true`: its reads, and that it is never published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lance
import pytest

from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Policy, Publish
from lancestat.spec.model import Refresh as RefreshWhen
from lancestat.state.store import open_state
from lancestat.tables.action import TableAction
from lancestat.tables.statistics.partial import ColumnPartial, merge
from lancestat.tables.stored import read_partials
from tests.runs.world import World, orders
from tests.state.fresh import FreshState
from tests.tables.test_incremental import columns_read, fragments_read, settle

NUMBERS = {"o_id", "o_total"}


def whole(world: World, name: str) -> ColumnPartial:
    """The partial of a column over the table, from the state alone."""
    assessment, changes = world.assess()
    [column] = (field for field in assessment.columns if field.name == name)
    keys = {
        (group.fingerprint,): frozenset(
            key for key in group.fields if key.startswith(f"{column.id}:")
        )
        for group in changes.groups
    }
    stored = read_partials(world.state, assessment.identity, {k: v for k, v in keys.items() if v})
    return merge(partial for entry in stored for partial in entry.partials.values())


def quantiles(world: World, name: str, *ranks: float) -> list[float]:
    sketch = whole(world, name).quantiles
    assert sketch is not None
    return sketch.quantiles(ranks)


def test_a_first_run_stores_quantiles_but_does_not_publish_them(world: World) -> None:
    world.histogram = True
    assert world.action().verb == "analyze"
    settle(world)
    assert [len(quantiles(world, name, 0, 1)) for name in NUMBERS] == [2, 2]
    assert quantiles(world, "o_id", 0, 0.5, 1) == [0, 49, 99]
    assert whole(world, "o_status").quantiles is None
    assert not [key for key in world.dataset.config() if "histogram" in key.lower()]
    assert isinstance(world.action(), Skip)


def test_without_a_histogram_no_column_has_quantiles(world: World) -> None:
    settle(world)
    assert {whole(world, name).quantiles for name in NUMBERS} == {None}


def test_requesting_a_histogram_reads_numeric_columns_once(world: World) -> None:
    settle(world)
    published, version = world.published(), world.dataset.version
    world.histogram = True
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.verb == "refresh"
    assert action.reasons == (Reason.SPEC_CHANGED,)
    settle_reads(world)
    assert (world.published(), world.dataset.version) == (published, version)
    assert isinstance(world.action(), Skip)
    assert whole(world, "o_total").quantiles is not None


def settle_reads(world: World) -> None:
    assert world.run().status == "success"
    assert (columns_read(world), fragments_read(world)) == (NUMBERS, 4)
    world.reads.clear()


def test_dropping_the_request_reads_nothing(world: World) -> None:
    world.histogram = True
    settle(world)
    world.histogram = False
    assert isinstance(world.action(), Skip)
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.run()
    assert fragments_read(world) == 1, "partials with quantiles serve as those without"
    world.reads.clear()
    world.histogram = True
    world.run()
    assert (columns_read(world), fragments_read(world)) == (NUMBERS, 1)


def test_append_reads_the_new_fragment(world: World) -> None:
    world.histogram = True
    settle(world)
    lance.write_dataset(orders(100, 100), str(world.path), mode="append")
    assert world.action().reasons == (Reason.ROWS_APPENDED,)
    world.run()
    assert fragments_read(world) == 1
    assert quantiles(world, "o_id", 0, 0.25, 0.5, 1) == [0, 49, 99, 199]


def test_a_histogram_is_requested_while_rows_change(world: World) -> None:
    settle(world)
    world.histogram = True
    world.dataset.create_scalar_index("o_id", "BTREE")
    action = world.action()
    assert isinstance(action, TableAction)
    assert action.verb == "refresh"
    assert action.reasons == (Reason.SPEC_CHANGED,)
    settle_reads(world)
    world.dataset.update_config({"owner": "shop"})
    assert world.action().verb == "restamp"
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.run()
    assert fragments_read(world) == 1


def test_compaction_carries_quantiles_over(world: World) -> None:
    world.histogram = True
    settle(world)
    world.dataset.optimize.compact_files(target_rows_per_fragment=1000)
    assert world.action().verb == "restamp"
    settle(world)
    assert quantiles(world, "o_id", 0, 0.5, 1) == [0, 49, 99]
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.run()
    assert fragments_read(world) == 1


def test_requesting_a_histogram_of_an_unpublished_table_reads_it_once(world: World) -> None:
    world.publish = Publish.NONE
    settle(world)
    world.histogram = True
    assert world.action().reasons == (Reason.SPEC_CHANGED,)
    settle_reads(world)
    assert isinstance(world.action(), Skip)
    assert whole(world, "o_id").quantiles is not None
    assert not world.published()


def test_a_histogram_of_a_new_column_is_no_change_of_the_declaration(world: World) -> None:
    world.histogram = True
    settle(world)
    world.dataset.add_columns({"o_more": "o_id * 2"})
    assert world.action().reasons == (Reason.COLUMNS_ADDED, Reason.SCHEMA_CHANGED)
    settle(world)
    world.dataset.alter_columns({"path": "o_more", "name": "o_other"})
    assert Reason.SPEC_CHANGED not in world.action().reasons
    settle(world)
    assert quantiles(world, "o_other", 0, 1) == [0, 198]


def test_refresh_when_stale_does_not_delay_a_histogram(world: World) -> None:
    world.policy = Policy(allow_stale=True, refresh=RefreshWhen.WHEN_STALE)
    settle(world)
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    assert world.action().reasons == (Reason.POLICY_ACCEPTS,)
    world.histogram = True
    assert Reason.SPEC_CHANGED in world.action().reasons
    settle(world)
    lance.write_dataset(orders(110, 10), str(world.path), mode="append")
    assert world.action().reasons == (Reason.POLICY_ACCEPTS,)


def test_a_lost_state_is_rebuilt(world: World) -> None:
    world.histogram = True
    settle(world)
    world.state = FreshState()
    assert world.action().reasons == (Reason.NEW,)
    world.run()
    assert isinstance(world.action(), Skip)
    assert whole(world, "o_id").quantiles is not None


def test_statistics_published_by_others_still_need_a_histogram(world: World) -> None:
    """The manifest describes the appended rows, but the state has no quantiles of them."""
    world.histogram = True
    settle(world)
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    replace(world, state=FreshState(), histogram=False).run()
    world.reads.clear()
    assert world.action().verb == "refresh"
    world.run()
    assert fragments_read(world) == 1
    assert isinstance(world.action(), Skip)
    assert quantiles(world, "o_id", 1) == [109]


@pytest.mark.parametrize("asked_first", [True, False])
def test_a_stored_state_behaves_like_one_in_memory(world: World, asked_first: bool) -> None:
    folder = Path(world.path).parent / "stored"
    world.state, world.histogram = open_state(str(folder), {}), asked_first
    settle(world)
    world.state, world.histogram = open_state(str(folder), {}), not asked_first
    world.run()
    assert fragments_read(world) == (0 if asked_first else 4)
    world.state, world.histogram = open_state(str(folder), {}), True
    assert isinstance(world.action(), Skip)
    assert whole(world, "o_id").quantiles is not None
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.histogram = False
    world.reads.clear()
    world.run()
    assert fragments_read(world) == 1
    assert world.published()["lance.stats.column.o_id.max"] == "109"
