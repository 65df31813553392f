"""A name that passes to another column: statistics of the old column are never used for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.runs.actions import Reason
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Policy,
    Publish,
    Refresh,
    StaleBounds,
)
from lancestat.tables.judgement import TableStatistics
from lancestat.tables.wire import GuardReason
from tests.examples import each
from tests.runs.world import World

pytestmark = pytest.mark.whole

LITTLE = StaleBounds(max_changed_rows=0.01)
Step = Callable[[World], None]


@pytest.fixture
def small(tmp_path: Path) -> World:
    """A table of five fragments whose column `x` has three values."""
    path = tmp_path / "t.lance"
    columns = {"id": range(1000), "x": [number % 3 for number in range(1000)]}
    lance.write_dataset(pa.table(columns), path, max_rows_per_file=200)
    return World(path, policy=Policy(allow_stale=LITTLE, refresh=Refresh.WHEN_STALE))


def drop_and_add(world: World) -> None:
    world.dataset.drop_columns(["x"])
    world.dataset.add_columns({"x": "id * 1000000"})


def rename_another(world: World) -> None:
    world.dataset.drop_columns(["x"])
    world.dataset.alter_columns({"path": "y", "name": "x"})
    world.dataset.add_columns({"y": "id % 7"})


def cast_to_and_fro(world: World) -> None:
    world.dataset.alter_columns({"path": "x", "data_type": pa.int8()})
    world.dataset.alter_columns({"path": "x", "data_type": pa.int64()})


def reuse_the_id(world: World) -> None:
    """Lance gives the dropped column's id away again, and the new column is null in every row."""
    before = world.dataset.lance_schema.field("x").id()
    world.dataset.drop_columns(["x"])
    world.dataset.optimize.compact_files()
    world.dataset.add_columns(pa.field("x", pa.int64()))
    assert world.dataset.lance_schema.field("x").id() == before


REPLACEMENTS = [drop_and_add, rename_another, cast_to_and_fro, reuse_the_id]


def judged(world: World) -> TableStatistics:
    return world.assess()[0]


def expected_of(world: World) -> dict[str, str]:
    """Return the entries that a project without any state would publish."""
    fresh = World(world.path, clock=world.clock, publish=Publish.NONE)
    assert fresh.run().status == "success"
    return columns_of(fresh)


def columns_of(world: World) -> dict[str, str]:
    entries = judged(world).entries
    return {key: text for key, text in entries.items() if key.startswith("lance.stats.column.")}


@pytest.mark.parametrize(("replace_column", "publish"), each(REPLACEMENTS, Publish))
def test_a_bound_on_changed_rows_refuses_statistics_of_a_column_that_was_replaced(
    small: World, replace_column: Step, publish: Publish
) -> None:
    if replace_column is rename_another:
        small.dataset.add_columns({"y": "id * 1000000"})
    small.publish = publish
    assert small.run().status == "success"
    replace_column(small)
    known = judged(small)
    assert known.schema_hash == known.entries["lance.stats.schemaHash"], "only names are the same"
    assert known.changed_rows == 1.0
    assert known.verdict(small.clock()).reason is GuardReason.STALE
    assert Reason.POLICY_ACCEPTS not in small.action().reasons
    assert small.run().status == "success"
    assert columns_of(small) == expected_of(small)
    assert judged(small).verdict(small.clock()).reason is GuardReason.CURRENT


@pytest.mark.parametrize("publish", Publish)
def test_a_replaced_column_without_statistics_does_not_affect_others(
    small: World, publish: Publish
) -> None:
    small.publish = publish
    small.columns = ColumnSelection(all=False, rules=(ColumnRule((ColumnPattern("id"),)),))
    assert small.run().status == "success"
    drop_and_add(small)
    assert judged(small).changed_rows == 0.0
    assert judged(small).verdict(small.clock()).reason is GuardReason.STALE_ACCEPTED


@pytest.mark.parametrize("publish", Publish)
def test_partials_of_a_dropped_column_are_not_used_for_a_column_with_its_id(
    small: World, publish: Publish
) -> None:
    small.policy = Policy()
    small.publish = publish
    assert small.run().status == "success"
    reuse_the_id(small)
    assert small.run().status == "success"
    assert columns_of(small)["lance.stats.column.x.nullCount"] == "1000"
    assert columns_of(small) == expected_of(small)


def test_statistics_of_the_state_describe_their_own_version(
    small: World,
) -> None:
    """Nothing was committed: relative to the version before, half of the table has changed."""
    lance.write_dataset(
        pa.table({"id": range(1000, 2000), "x": [0] * 1000}), small.path, mode="append"
    )
    small.publish = Publish.NONE
    assert small.run().status == "success"
    small.dataset.delete("id < 10")
    assert judged(small).changed_rows == 10 / 1990
    assert judged(small).verdict(small.clock()).reason is GuardReason.STALE_ACCEPTED


def test_published_statistics_are_stale_after_an_unobserved_version(
    small: World,
) -> None:
    """A full refresh that finds the same commits nothing, so no version has its tag yet."""
    assert small.run().status == "success"
    assert small.run(full_refresh=True).status == "success"
    small.publish = Publish.NONE
    assert judged(small).verdict(small.clock()).reason is GuardReason.CURRENT
    small.dataset.delete("id < 500")
    assert judged(small).changed_rows == 1.0
    assert judged(small).verdict(small.clock()).reason is GuardReason.STALE


def test_a_record_of_a_recreated_table_bounds_nothing(small: World) -> None:
    small.publish = Publish.NONE
    small.policy = Policy(allow_stale=StaleBounds(max_changed_rows=1.0))
    assert small.run().status == "success"
    other = pa.table({"id": range(5000, 6000), "x": [7] * 1000})
    lance.LanceDataset.drop(str(small.path), {})
    lance.write_dataset(other, small.path)
    small.dataset.delete("id < 5001")
    statistics = judged(small)
    assert statistics.changed_rows is None
    assert statistics.verdict(small.clock()).reason is GuardReason.STALE
