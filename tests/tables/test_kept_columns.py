"""Columns whose statistics are kept in the state and never published."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest

from lancestat.runs.actions import Action, Reason
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Policy,
    Publish,
    Refresh,
)
from lancestat.state.values import table_identity
from lancestat.tables.stored import table_records
from lancestat.tables.table_status import TableStatus, table_status
from lancestat.tables.wire import COLUMN_PREFIX, COMPUTED_AT_VERSION, VERSION
from tests.runs.world import World
from tests.state.fresh import FreshState

EPOCH = datetime(1970, 1, 1)
UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
EXTREMES = {
    "s": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), EPOCH],
    "ms": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_000)],
    "us": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999)],
    "ns": [datetime(1677, 9, 22), datetime(2262, 4, 11)],
}


def rows(seed: int, count: int = 40) -> pa.Table:
    """Some rows of timestamps without a zone and times of day in all units, a third null."""
    random = Random(seed)

    def some(values: list[object]) -> list[object]:
        return [None if random.random() < 0.3 else random.choice(values) for _ in range(count)]

    columns = {"id": pa.array(range(count), pa.int64())}
    for unit, nanos in UNITS.items():
        near = [EPOCH + timedelta(seconds=random.randrange(-(10**9), 10**9)) for _ in range(20)]
        columns[f"at_{unit}"] = pa.array(some([*EXTREMES[unit], *near]), pa.timestamp(unit))
        type = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        day = 86_400 * 10**9 // nanos
        clocks = some([0, day - 1, *(random.randrange(day) for _ in range(20))])
        stored = pa.array(clocks, pa.int32() if type.bit_width == 32 else pa.int64())
        columns[f"clock_{unit}"] = stored.view(type)
    return pa.table(columns)


KEPT = {name for name in rows(0).column_names if name != "id"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    lance.write_dataset(rows(1), str(tmp_path / "t.lance"), max_rows_per_file=15)
    return World(tmp_path / "t.lance")


def shown(world: World) -> TableStatus:
    """The statistics as `lancestat show` has them."""
    assessment, _ = world.assess()
    return table_status(assessment, world.clock())


def ran(world: World) -> Action:
    action = world.action()
    [node] = world.run().nodes
    assert node.status == "success", node
    return action


def test_bounds_of_instants_are_marked_as_utc_and_others_are_not(tmp_path: Path) -> None:
    at = pa.array([EPOCH], pa.timestamp("us"))
    columns = {"at": at, "instant": at.cast(pa.timestamp("us", "Europe/Berlin"))}
    lance.write_dataset(pa.table(columns), str(tmp_path / "t.lance"))
    world = World(tmp_path / "t.lance")
    ran(world)
    text = "1970-01-01 00:00:00.000000"
    shown_columns = shown(world).columns
    assert (shown_columns["at"].minimum, shown_columns["at"].maximum) == (text, text)
    instant = shown_columns["instant"]
    assert (instant.minimum, instant.maximum) == (f"{text}Z", f"{text}Z")
    assert world.published()[f"{COLUMN_PREFIX}instant.min"] == text


def only(*names: str) -> ColumnSelection:
    return ColumnSelection(all=False, rules=(ColumnRule(tuple(map(ColumnPattern, names))),))


def truth(world: World, name: str) -> tuple[int, str | None, str | None]:
    """Nulls and bounds in text, as numpy counts them."""
    column = world.dataset.to_table(columns=[name]).column(name)
    unit = UNITS[column.type.unit]
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    stored = column.drop_null().cast(width).to_pylist()
    micros = [value * unit // 1_000 for value in stored]

    def text(value: int) -> str:
        moment = EPOCH + timedelta(microseconds=value)
        is_time = pa.types.is_time(column.type)
        of_day: time = moment.time()
        return (
            of_day.isoformat("microseconds") if is_time else moment.isoformat(" ", "microseconds")
        )

    return column.null_count, text(min(micros)), text(max(micros))


@pytest.mark.parametrize("publish", Publish)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_shown_and_not_published(
    tmp_path: Path, publish: Publish, seed: int
) -> None:
    lance.write_dataset(rows(seed), str(tmp_path / "t.lance"), max_rows_per_file=15)
    world = World(tmp_path / "t.lance", publish=publish)
    assert ran(world).reasons == (Reason.NEW,)
    assert not [key for key in world.published() if "at_" in key or "clock_" in key]
    status = shown(world)
    assert (status.use, status.missing, status.dropped) == (True, (), {})
    assert status.kept == KEPT
    assert [*status.columns] == world.dataset.schema.names
    for name in KEPT:
        column = status.columns[name]
        assert (column.nulls, column.minimum, column.maximum) == truth(world, name), name
        distinct = len(world.dataset.to_table(columns=[name]).column(name).unique().drop_null())
        assert column.distinct == pytest.approx(distinct, abs=2)
    assert world.action().reasons == (Reason.UNCHANGED,)


def test_a_table_of_earlier_statistics_gains_the_columns(world: World) -> None:
    world.columns = only("id")
    ran(world)
    world.columns = ColumnSelection()
    version = world.dataset.version
    assert shown(world).missing == tuple(n for n in world.dataset.schema.names if n != "id")
    action = ran(world)
    assert (action.verb, action.reasons) == ("refresh", (Reason.COLUMNS_ADDED,))
    assert {name for _, _, names in world.reads[3:] for name in names} == KEPT
    # The manifest says the same as before, and so nothing is committed.
    assert world.dataset.version == version
    assert shown(world).kept == KEPT
    assert world.action().reasons == (Reason.UNCHANGED,)


def test_a_record_that_knows_of_nothing_kept_is_read(world: World) -> None:
    ran(world)
    record = table_records(world.state)[table_identity(str(world.path))]
    assert record.kept
    assert isinstance(world.state, FreshState)
    forget(world)
    assert shown(world).kept == frozenset()
    action = ran(world)
    assert (action.verb, action.reasons) == ("refresh", (Reason.COLUMNS_ADDED,))
    assert len(world.reads) == 3, "all partials are there"
    assert shown(world).kept == KEPT


def forget(world: World) -> None:
    """Make the record one of a release that kept nothing."""
    from lancestat.state.values import NodeRun, RunRecord

    record = table_records(world.state)[table_identity(str(world.path))]
    known = replace(record, kept={}, columns=("id",))
    node = NodeRun(world.name, "table", "", {}, known.stored())
    now = world.clock()
    world.clock.advance(seconds=1)
    world.state.add_run(RunRecord("old", "run", "dev", now, now, "success", (node,)))


def test_a_restamp_keeps_them(world: World) -> None:
    ran(world)
    before = shown(world)
    world.dataset.create_scalar_index("id", "BTREE")
    stale = shown(world)
    assert (stale.use, stale.reason) == (False, "stale")
    assert stale.columns == before.columns
    assert ran(world).verb == "restamp"
    assert (shown(world).use, shown(world).columns) == (True, before.columns)
    assert len(world.reads) == 3


def test_an_append_reads_the_new_fragment_alone(world: World) -> None:
    ran(world)
    lance.write_dataset(rows(2), str(world.path), mode="append")
    ran(world)
    assert len(world.reads) == 4
    for name in KEPT:
        column = shown(world).columns[name]
        assert (column.nulls, column.minimum, column.maximum) == truth(world, name), name


def test_another_state_gains_them_without_a_commit(world: World) -> None:
    ran(world)
    version = world.dataset.version
    other = replace(world, state=FreshState(), reads=[])
    assert shown(other).kept == frozenset()
    assert ran(other).verb == "refresh"
    assert shown(other).columns == shown(world).columns
    assert (world.dataset.version, world.action().verb, other.action().verb) == (
        version,
        "skip",
        "skip",
    )


def test_statistics_of_somebody_else_come_without_what_is_kept(world: World) -> None:
    ran(world)
    world.dataset.update_config({f"{COLUMN_PREFIX}id.distinctCount": "7"})
    world.dataset.update_config({COMPUTED_AT_VERSION: str(world.dataset.version + 1)})
    status = shown(world)
    assert (status.use, status.kept) == (True, frozenset())
    assert status.columns.keys() == {"id"}
    ran(world)
    assert shown(world).kept == KEPT


def test_what_somebody_else_published_of_them_is_refused_and_removed(world: World) -> None:
    ran(world)
    entries = {"version": "2", "distinctCount": "3", "nullCount": "0"}
    world.dataset.update_config(
        {
            **{f"{COLUMN_PREFIX}at_us.{key}": text for key, text in entries.items()},
            COMPUTED_AT_VERSION: str(world.dataset.version + 1),
        }
    )
    assert shown(world).dropped == {"at_us": "Spark cannot plan with statistics of timestamp_ntz"}
    assert Reason.PUBLISH_ALTERED in ran(world).reasons
    assert not [key for key in world.published() if "at_us" in key]
    assert (shown(world).dropped, shown(world).kept) == ({}, KEPT)


def test_a_column_that_is_selected_no_more_is_kept_no_more(world: World) -> None:
    ran(world)
    world.columns = only("id", "at_us")
    assert ran(world).reasons == (Reason.COLUMNS_REMOVED,)
    assert shown(world).columns.keys() == {"id", "at_us"}
    assert world.action().verb == "skip"


def test_a_table_without_any_other_column(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(3).select(["at_us"]), str(path))
    world = World(path, columns=only("at_us"))
    ran(world)
    assert world.published().keys() >= {VERSION}
    assert (shown(world).use, shown(world).columns.keys()) == (True, {"at_us"})
    assert world.action().verb == "skip"


def test_a_policy_that_accepts_staleness_waits_for_what_is_kept(world: World) -> None:
    world.columns = only("id")
    world.policy = Policy(allow_stale=True, refresh=Refresh.WHEN_STALE)
    ran(world)
    lance.write_dataset(rows(2), str(world.path), mode="append")
    assert world.action().reasons == (Reason.POLICY_ACCEPTS,)
    world.columns = only("id", "at_us")
    assert Reason.COLUMNS_ADDED in world.action().reasons


def test_histograms_are_kept_too(world: World) -> None:
    world.histogram = True
    ran(world)
    assert world.action().verb == "skip"
    record = table_records(world.state)[table_identity(str(world.path))]
    assert set(record.histograms) == {"id", *KEPT}
