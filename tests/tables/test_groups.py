"""Groups, common values and keys of tables that change: what is read, and the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import lance
import polars as pl
import pyarrow as pa
import pytest

from lancestat.query.fragments import load_groups
from lancestat.query.table import ReadTable
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import CommonValues, Policy, Publish
from lancestat.state.values import partial_key
from lancestat.tables import wire
from lancestat.tables.action import TableAction
from lancestat.tables.relations import KeyStatus
from lancestat.tables.stored import table_records
from lancestat.tables.wire import JOINT_PREFIX, JointStatistics, decode_statistics, unknown_keys
from tests.examples import each
from tests.runs.world import World, orders
from tests.state.fresh import FreshState
from tests.tables.test_incremental import (
    append,
    append_and_compact,
    call,
    check_converged,
    columns_read,
    compact,
    fragments_read,
    merge_insert,
    overwrite,
    settle,
)

pytestmark = pytest.mark.whole

GROUPS = (("o_status", "o_total"), ("o_total", "o_id"))
PAIR = frozenset({"o_status", "o_total"})


def opened(world: World) -> ReadTable:
    """The table as its readers see it."""
    statistics, _ = world.assess()

    def fragments() -> object:
        return load_groups(world.state, statistics.identity, statistics.snapshot)

    return ReadTable("orders", statistics, load_fragments=fragments)  # type: ignore[arg-type]


def frame(world: World) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(world.dataset.to_table()))


def check_rows(world: World) -> None:
    """Joint statistics, common values and keys against the rows."""
    table, rows = opened(world), frame(world)
    for group in GROUPS:
        present = rows.select(group).drop_nulls()
        joint = table.joint(frozenset(group))
        assert joint is not None
        assert joint.nulls == rows.height - present.height
        # Four standard errors of a sketch.
        true = present.n_unique() if present.height else 0
        assert joint.distinct == pytest.approx(true, rel=4 * 1.04 / 64)
        common = table.common_values(frozenset(group))
        if rows.height:
            assert common is not None
            truth = Counter(present.select(joint.columns).rows())
            assert common.is_exact
            assert {_text(one.values): one.lower for one in common.listed} == {
                _text(values): count for values, count in truth.items()
            }
    for name in rows.columns:
        common = table.common_values(name)
        assert not rows.height or common is not None
        for one in common.listed if common else ():
            [value] = one.values
            value = value.decode() if isinstance(value, bytes) else value
            assert one.lower == one.upper == rows.filter(pl.col(name) == value).height
    [record] = table_records(world.state).values()
    for key in record.keys:
        is_key = not rows.select(key.columns).null_count().sum_horizontal().sum()
        is_key &= not rows.select(key.columns).is_duplicated().any() if rows.height else True
        assert (key.status is KeyStatus.PROVEN) == is_key, key


def _text(values: tuple[object, ...]) -> str:
    return str([value.decode() if isinstance(value, bytes) else value for value in values])


@pytest.fixture
def grouped(world: World) -> World:
    world.groups, world.keys = GROUPS, (("o_id",), ("o_status",), ("o_total", "o_id"))
    world.common_values = CommonValues()
    return world


CHANGES: list[tuple[Callable[[World], object], int | None]] = [
    (append, 1),
    (call("delete", "o_id = 30"), 1),
    (call("delete", "o_id < 25"), 0),
    (call("update", {"o_total": "7"}, where="o_id = 3"), 2),
    (merge_insert, 2),
    (overwrite, 2),
    (call("truncate_table"), 0),
    (call("add_columns", {"b": "o_id * 2"}), 4),
    (compact, 0),
    (append_and_compact, None),
    (call("create_scalar_index", "o_id", "BTREE"), 0),
    (call("alter_columns", {"path": "o_id", "name": "o_id"}), 0),
]


@pytest.mark.parametrize(("change_and_fragments", "publish"), each(CHANGES, Publish))
def test_a_change_reads_only_what_is_new(
    grouped: World,
    change_and_fragments: tuple[Callable[[World], object], int | None],
    publish: Publish,
) -> None:
    change, fragments = change_and_fragments
    grouped.publish = publish
    settle(grouped)
    check_rows(grouped)
    change(grouped)
    if publish is Publish.MANIFEST:
        check_converged(grouped)
    else:
        assert grouped.run().status == "success"
    assert fragments is None or fragments_read(grouped) == fragments
    check_rows(grouped)
    assert isinstance(grouped.action(), Skip)


def test_columns_written_to_files_of_their_own_are_grouped(grouped: World) -> None:
    settle(grouped)
    rows = pa.table({"o_id": range(100), "late": [n % 4 for n in range(100)]})
    grouped.dataset.merge(rows, "o_id")
    grouped.groups = (*GROUPS, ("late", "o_status"))
    settle(grouped)
    joint = opened(grouped).joint(frozenset({"late", "o_status"}))
    assert joint == JointStatistics(("o_status", "late"), 4, 34)
    grouped.dataset.delete("o_id = 1")
    grouped.run()
    assert fragments_read(grouped) == 1
    check_rows(grouped)
    compact(grouped)
    grouped.reads.clear()
    check_converged(grouped)
    assert not grouped.reads, "the compaction is followed for groups as well"


def test_a_group_that_is_added_reads_its_columns_alone(world: World) -> None:
    settle(world)
    world.groups = GROUPS[:1]
    action = world.action()
    assert isinstance(action, TableAction)
    assert (action.verb, action.reasons) == ("refresh", (Reason.SPEC_CHANGED,))
    assert f"(2 of {len(world.dataset.schema)} columns)" in action.reads
    check_converged(world)
    assert (columns_read(world), fragments_read(world)) == (set(PAIR), 4)
    world.reads.clear()
    world.groups = (("o_total", "o_status"),)
    assert isinstance(world.action(), Skip), "the order of columns means nothing"
    world.keys = (("o_id",),)
    world.run()
    assert columns_read(world) == {"o_id"}


@pytest.mark.parametrize("publish", Publish)
def test_a_group_that_is_dropped_leaves_no_entry_and_reads_nothing(
    grouped: World, publish: Publish
) -> None:
    grouped.publish = publish
    settle(grouped)
    grouped.groups, grouped.keys = GROUPS[:1], ()
    assert grouped.action().reasons == (Reason.SPEC_CHANGED,)
    grouped.run()
    assert not grouped.reads
    table = opened(grouped)
    assert table.joint(PAIR) is not None
    assert table.joint(frozenset(GROUPS[1])) is None
    assert isinstance(grouped.action(), Skip)


def test_common_values_serve_smaller_sizes_and_not_larger_ones(grouped: World) -> None:
    settle(grouped)
    grouped.common_values = CommonValues(limit=10)
    assert isinstance(grouped.action(), Skip)
    grouped.common_values = CommonValues(limit=200)
    assert grouped.action().reasons == (Reason.SPEC_CHANGED,)
    settle(grouped)
    grouped.common_values = None
    assert isinstance(grouped.action(), Skip)
    append(grouped)
    grouped.run()
    assert fragments_read(grouped) == 1
    assert opened(grouped).common_values("o_id") is None
    [record] = table_records(grouped.state).values()
    assert not any(partial_key(key).quantiles for key in record.columns)


def test_common_values_are_kept_of_what_they_cover(world: World) -> None:
    world.groups, world.common_values = GROUPS, CommonValues(columns=("o_status", "o_total"))
    settle(world)
    table = opened(world)
    assert table.common_values("o_status") is not None
    assert table.common_values(PAIR) is not None
    assert table.common_values("o_id") is None
    assert table.common_values(frozenset(GROUPS[1])) is None


def test_common_values_are_kept_of_the_groups_that_they_name(world: World) -> None:
    world.groups = GROUPS
    world.common_values = CommonValues(columns=("o_id",), groups=GROUPS[1:2])
    settle(world)
    table = opened(world)
    assert table.common_values("o_id") is not None
    assert table.common_values(PAIR) is None
    assert table.common_values(frozenset(GROUPS[1])) is not None


@pytest.mark.parametrize(
    ("wide", "narrow", "is_included"),
    [
        (CommonValues(), CommonValues(columns=("a",), groups=(("a", "b"),)), True),
        (
            CommonValues(columns=("a", "b")),
            CommonValues(columns=("b",), groups=(("b", "a"),)),
            True,
        ),
        (CommonValues(columns=("a",)), CommonValues(columns=("a",), groups=(("a", "b"),)), False),
        (CommonValues(groups=(("a", "b"),)), CommonValues(groups=(("b", "a"),)), True),
        (CommonValues(groups=(("a", "b"),)), CommonValues(), False),
        (CommonValues(columns=("a",), groups=()), CommonValues(groups=()), False),
        (CommonValues(limit=9), CommonValues(limit=10), False),
    ],
)
def test_fewer_common_values_are_among_more(
    wide: CommonValues, narrow: CommonValues, is_included: bool
) -> None:
    assert wide.includes(narrow) == is_included


def test_older_readers_find_what_they_know_and_ignore_the_rest(grouped: World) -> None:
    """Those of the release before know no groups, and the connector only columns."""
    grouped.keys, grouped.common_values = (), None
    settle(grouped)
    config = grouped.dataset.config()
    joint = {key: text for key, text in config.items() if key.startswith(JOINT_PREFIX)}
    assert joint == {
        "lance.stats.joint.o_status.o_total.version": "1",
        "lance.stats.joint.o_status.o_total.distinctCount": "66",
        "lance.stats.joint.o_status.o_total.nullCount": "34",
        "lance.stats.joint.o_id.o_total.version": "1",
        "lance.stats.joint.o_id.o_total.distinctCount": "100",
        "lance.stats.joint.o_id.o_total.nullCount": "0",
    }
    assert not unknown_keys(config)
    columns = {key for key in config if key.startswith(wire.COLUMN_PREFIX)}
    assert {key.split(".")[3] for key in columns} == {"o_id", "o_status", "o_total"}
    assert not wire.is_altered(config), "the digest of earlier releases covers all entries, too"
    world = World(grouped.path)
    world.state = grouped.state
    world.run()
    assert not [key for key in grouped.dataset.config() if key.startswith(JOINT_PREFIX)]


def test_malformed_joint_entries_are_left_out() -> None:
    config = {
        "lance.stats.version": "1",
        "lance.stats.computedAtVersion": "7",
        "lance.stats.joint.a.b.version": "1",
        "lance.stats.joint.a.b.distinctCount": "5",
        "lance.stats.joint.a.b.nullCount": "0",
        "lance.stats.joint.a.version": "1",
        "lance.stats.joint.b.c.version": "2",
        "lance.stats.joint.a.c.version": "1",
        "lance.stats.joint.a.c.distinctCount": "-5",
        "lance.stats.joint.a.c.nullCount": "0",
    }
    columns = {f"lance.stats.column.{name}.version": "2" for name in "abc"}
    mark = {wire.WRITER: f"lancestat/{wire.REVISION}@7"}
    entries = wire.tagged({**config, **columns, **mark}, 7)
    decoded = decode_statistics(entries)
    assert isinstance(decoded, wire.PublishedStatistics)
    assert list(decoded.joint) == [{"a", "b"}]
    # As the connector's ANALYZE leaves them, which changes the tag and the columns.
    analyzed = {"lance.stats.computedAtVersion": "8", "lance.stats.column.a.distinctCount": "5"}
    others = decode_statistics({**entries, **analyzed})
    assert isinstance(others, wire.PublishedStatistics)
    assert not others.joint and others.columns.keys() == {"a", "b", "c"}


def test_a_lost_state_is_made_again(grouped: World) -> None:
    settle(grouped)
    grouped.state = FreshState()
    assert isinstance(grouped.action(), TableAction)
    settle(grouped)
    check_rows(grouped)


def test_keys_are_proven_and_refuted_and_hold_after_deletions(grouped: World) -> None:
    grouped.policy = Policy(allow_stale=True)
    settle(grouped)
    proven = {frozenset({"o_id"}), frozenset({"o_id", "o_total"})}
    assert opened(grouped).proven_keys == proven
    grouped.dataset.delete("o_id > 90")
    assert opened(grouped).proven_keys == proven
    append(grouped)
    assert opened(grouped).proven_keys == frozenset()
    grouped.run()
    assert opened(grouped).proven_keys == proven
    lance.write_dataset(orders(5, 1), str(grouped.path), mode="append")
    grouped.run()
    [record] = table_records(grouped.state).values()
    results = {key.columns: (key.status.value, key.reason) for key in record.keys}
    assert results == {
        ("o_id",): ("refuted", "at least two rows are equal in it"),
        ("o_status",): ("refuted", "34 rows have a null in it"),
        ("o_id", "o_total"): ("refuted", "at least two rows are equal in it"),
    }
    assert opened(grouped).proven_keys == frozenset()
