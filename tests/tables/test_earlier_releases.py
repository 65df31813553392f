"""Statistics by earlier rules or another hash are published again, without reading rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import Field
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Policy, Publish, Refresh
from lancestat.tables import judgement, planner, wire
from lancestat.tables.judgement import TableStatistics
from lancestat.tables.stored import table_records
from lancestat.tables.wire import (
    COLUMN_PREFIX,
    COMPUTED_AT_VERSION,
    REVISION,
    SCHEMA_HASH,
    WRITER,
    GuardReason,
)
from tests.runs.world import World

ROWS = pa.table({"id": range(4), "x": [1.5, -2.0, 7.0, 0.0]})


@pytest.fixture
def world(tmp_path: Path) -> World:
    path = tmp_path / "orders.lance"
    lance.write_dataset(ROWS, path, max_rows_per_file=2)
    return World(path)


def run_by_earlier_rules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run().status == "success"
    for module in (wire, planner):
        monkeypatch.setattr(module, "REVISION", REVISION + 1)
    assert world.reads
    world.reads.clear()


def statistics(world: World) -> TableStatistics:
    return world.assess()[0]


def assert_settles(world: World) -> None:
    """A run publishes by the rules of today, and the next one has nothing to do."""
    assert world.run().status == "success"
    assert not world.reads
    assert isinstance(world.action(), Skip)
    [record] = table_records(world.state).values()
    assert record.values[WRITER].startswith(f"lancestat/{wire.REVISION}@")


@pytest.mark.parametrize("publish", Publish)
@pytest.mark.parametrize("has_index", [False, True])
def test_statistics_by_earlier_rules_are_published_again(
    world: World, publish: Publish, has_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are used until then, and not stamped again."""
    world.publish = publish
    run_by_earlier_rules(world, monkeypatch)
    assert statistics(world).finding.reason is GuardReason.CURRENT
    if has_index:
        world.dataset.create_scalar_index("id", "BTREE")
    action = world.action()
    assert (action.verb, Reason.RULES_CHANGED in action.reasons) == ("refresh", True)
    assert_settles(world)


def test_a_policy_that_accepts_stale_statistics_does_not_keep_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.policy = Policy("tolerant", allow_stale=True, refresh=Refresh.WHEN_STALE)
    run_by_earlier_rules(world, monkeypatch)
    world.dataset.update_config({"user.key": "v"})
    assert Reason.RULES_CHANGED in world.action().reasons
    assert_settles(world)


def test_another_hash_of_the_same_schema_costs_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for columns of JSON, whose hash is no longer that of strings."""
    path = tmp_path / "orders.lance"
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "[]"]))
    lance.write_dataset(pa.table({"id": [1, 2], "document": json}), path)
    world = World(path)

    def as_strings(fields: Iterable[Field]) -> str:
        return "ab" * 32

    with monkeypatch.context() as patched:
        patched.setattr(judgement, "schema_hash", as_strings)
        assert world.run().status == "success"
    assert world.dataset.config()[SCHEMA_HASH] == "ab" * 32
    world.reads.clear()
    assert statistics(world).finding.reason is GuardReason.SCHEMA_CHANGED
    assert world.action().reasons == (Reason.SCHEMA_CHANGED,)
    assert_settles(world)
    assert statistics(world).finding.reason is GuardReason.CURRENT


def test_statistics_of_another_writer_are_used_whatever_lancestat_left_behind(
    world: World,
) -> None:
    """As those of the connector's ANALYZE TABLE, which leaves lancestat's own entries alone."""
    assert world.run().status == "success"
    lance.write_dataset(ROWS, world.path, mode="append")
    tag = str(world.dataset.version + 1)
    world.dataset.update_config({COMPUTED_AT_VERSION: tag, f"{COLUMN_PREFIX}x.max": "7.5"})
    found = statistics(world)
    assert found.finding.reason is GuardReason.CURRENT
    assert found.published is not None
    assert found.published.columns["x"].maximum == "7.5"
    assert isinstance(world.action(), Skip)
