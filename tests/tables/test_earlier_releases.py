"""Statistics that earlier releases published are published anew, without reading rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import Field
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Policy, Publish, Refresh
from lancestat.tables import assembly, judgement
from lancestat.tables.manifest.wire import (
    COLUMN_PREFIX,
    COMPUTED_AT_VERSION,
    REVISION,
    SCHEMA_HASH,
    WRITER,
    GuardReason,
    encode_statistics,
)
from lancestat.tables.stored import table_records
from tests.runs.world import World


def table(values: Iterable[float]) -> pa.Table:
    x = pa.array(list(values), pa.float64())
    return pa.table({"id": range(len(x)), "x": x, "whole": pa.array(range(len(x)), pa.int32())})


@pytest.fixture
def world(tmp_path: Path) -> World:
    path = tmp_path / "orders.lance"
    lance.write_dataset(table([1.5, math.nan, -2.0, 7.0]), path, max_rows_per_file=2)
    return World(path)


def run_as_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as releases did whose bounds left NaN out, and which named no revision."""

    def encoded(*arguments: Any, **named: Any) -> dict[str, str]:
        entries = encode_statistics(*arguments, **named)
        del entries[WRITER]
        if f"{COLUMN_PREFIX}x.version" in entries:
            entries |= {f"{COLUMN_PREFIX}x.min": "-2.0", f"{COLUMN_PREFIX}x.max": "7.0"}
            entries[f"{COLUMN_PREFIX}x.distinctCount"] = "4"
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(assembly, "encode_statistics", encoded)
        assert world.run().status == "success"
    assert world.reads
    world.reads.clear()


def bounds(world: World) -> dict[str, str]:
    keys = [f"{COLUMN_PREFIX}x.{suffix}" for suffix in ("min", "max", "distinctCount")]
    return {key: text for key, text in world.dataset.config().items() if key in keys}


def assert_settled(world: World) -> None:
    assert world.run().status == "success"
    assert not world.reads
    assert isinstance(world.action(), Skip)


def test_bounds_that_leave_nan_out_are_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_before(world, monkeypatch)
    assert bounds(world)
    action = world.action()
    assert (action.verb, action.reasons) == ("refresh", (Reason.RULES_CHANGED,))
    assert_settled(world)
    assert not bounds(world)


def test_they_are_not_used_before_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_before(world, monkeypatch)
    verdict = judged(world)
    assert verdict.reason is GuardReason.CURRENT
    assert verdict.statistics.columns["x"].maximum is None
    assert verdict.statistics.columns["whole"].maximum == "3"


def judged(world: World) -> Any:
    return world.assess()[0].finding


def test_a_policy_that_accepts_stale_statistics_does_not_keep_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.policy = Policy("tolerant", allow_stale=True, refresh=Refresh.WHEN_STALE)
    run_as_before(world, monkeypatch)
    world.dataset.update_config({"user.key": "v"})
    assert Reason.RULES_CHANGED in world.action().reasons
    assert_settled(world)
    assert not bounds(world)


def test_they_are_not_stamped_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_before(world, monkeypatch)
    world.dataset.create_scalar_index("id", "BTREE")
    assert (world.action().verb, Reason.RULES_CHANGED in world.action().reasons) == (
        "refresh",
        True,
    )
    assert_settled(world)
    assert not bounds(world)


def test_unpublished_ones_are_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish = Publish.NONE
    run_as_before(world, monkeypatch)
    assert world.action().reasons == (Reason.RULES_CHANGED,)
    assert_settled(world)
    [record] = table_records(world.state).values()
    assert f"{COLUMN_PREFIX}x.max" not in record.values


def test_bounds_of_columns_without_nan_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders.lance"
    lance.write_dataset(table([1.5, 7.0, -2.0, 5.0]), path)
    world = World(path)
    run_as_before(world, monkeypatch)
    assert world.action().reasons == (Reason.RULES_CHANGED,)
    assert_settled(world)
    assert len(bounds(world)) == 3


def test_tables_without_floats_get_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "orders.lance"
    lance.write_dataset(table([1.5, 7.0]).drop_columns(["x"]), path)
    world = World(path)
    run_as_before(world, monkeypatch)
    assert world.action().reasons == (Reason.RULES_CHANGED,)
    assert_settled(world)
    assert f"lancestat/{REVISION}@" in world.dataset.config()[WRITER]


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
    assert judged(world).reason is GuardReason.SCHEMA_CHANGED
    assert world.action().reasons == (Reason.SCHEMA_CHANGED,)
    assert_settled(world)
    assert judged(world).reason is GuardReason.CURRENT


def test_statistics_of_another_writer_are_used_whatever_lancestat_left_behind(
    world: World,
) -> None:
    """As those of the connector's ANALYZE TABLE, which leaves lancestat's own entries alone."""
    assert world.run().status == "success"
    lance.write_dataset(table([9.0]), world.path, mode="append")
    dataset = world.dataset
    tag = str(dataset.version + 1)
    dataset.update_config({COMPUTED_AT_VERSION: tag, f"{COLUMN_PREFIX}whole.max": "7"})
    verdict = judged(world)
    assert verdict.reason is GuardReason.CURRENT
    assert verdict.statistics.columns["whole"].maximum == "7"
    assert isinstance(world.action(), Skip)
