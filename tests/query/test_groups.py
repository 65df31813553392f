"""Groups of fragments: pruning by filters, and known partials as the table changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancestat.tables.table_summary
from lancestat.errors import StateUnreachable
from lancestat.lake.observe import snapshot
from lancestat.query.groups import GroupedStatistics, load_groups
from lancestat.query.predicates.filter import (
    Comparison,
    Filter,
    IsNull,
    Not,
    Operator,
    TextMatch,
    TextOperator,
)
from lancestat.query.pruning import FragmentStatistics, GroupColumn, NoFragmentStatistics
from lancestat.state.identity import table_identity
from lancestat.state.memory import MemoryState
from lancestat.state.store import open_state
from lancestat.state.values import BlockKey, SummaryBlock
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import merge
from tests.examples import examples
from tests.query.values import SCHEMA, tables
from tests.runs.world import World, orders
from tests.tables.grouped import check_filter, check_whole, one_pass

BELOW_30: list[Filter] = [Comparison("o_id", Operator.LESS, 30)]


@pytest.fixture(params=[512, 2], ids=["one fragment each", "two groups"])
def most_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    most: int = request.param
    monkeypatch.setattr(lancestat.tables.table_summary, "MOST_GROUPS", most)
    return most


@pytest.fixture
def world(tmp_path: Path, most_groups: int) -> World:
    """100 rows in order in 5 fragments, all known to the state."""
    lance.write_dataset(orders(0, 100), str(tmp_path / "o.lance"), max_rows_per_file=20)
    world = World(tmp_path / "o.lance", state=open_state(str(tmp_path / "state")))
    world.run()
    return world


def known(world: World, version: int | None = None) -> FragmentStatistics:
    dataset = lance.dataset(str(world.path), version=version)
    return load_groups(world.state, table_identity(str(world.path)), snapshot(dataset))


def test_a_filter_leaves_the_fragments_that_may_match(world: World, most_groups: int) -> None:
    left = check_filter(known(world), world.dataset, BELOW_30)
    assert left is not None
    assert list(left.fragment_ids) == ([0, 1] if most_groups > 2 else [0, 1, 2, 3])
    assert left.is_known
    check_whole(known(world), world.dataset)


def test_filters_that_rule_nothing_out_return_none(world: World) -> None:
    assert known(world).prune([]) is None
    assert known(world).prune([Not(IsNull("o_id"))]) is None
    assert known(world).prune([Comparison("o_id", Operator.GREATER, -1)]) is None


def test_a_filter_may_rule_out_all_fragments(world: World) -> None:
    left = check_filter(known(world), world.dataset, [Comparison("o_id", Operator.GREATER, 1000)])
    assert left is not None
    assert (list(left.fragment_ids), left.rows, left.is_known) == ([], 0, True)


def test_appended_fragments_are_kept_without_partials(world: World) -> None:
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    left = check_filter(known(world), world.dataset, BELOW_30)
    assert left is not None
    assert 5 in left.fragment_ids
    assert not left.is_known
    assert left.partial("o_id") is None
    assert known(world).partial("o_id") is None


def test_a_group_that_lost_rows_is_not_known(world: World) -> None:
    world.dataset.delete("o_id = 5")
    left = check_filter(known(world), world.dataset, BELOW_30)
    assert left is not None
    assert not left.is_known
    assert 0 in left.fragment_ids


def test_a_group_with_a_dropped_fragment_is_used(world: World) -> None:
    world.dataset.delete("o_id < 80")
    assert known(world).prune(BELOW_30) is not None
    world.run()
    check_whole(known(world), world.dataset)
    world.dataset.delete("o_id >= 0")
    world.run()
    assert known(world) == NoFragmentStatistics()


def test_a_rewritten_column_is_unknown_and_others_are_known(world: World) -> None:
    world.dataset.alter_columns({"path": "o_total", "data_type": pa.float32()})
    assert known(world).partial("o_total") is None
    assert known(world).partial("o_id") is not None
    cheap: list[Filter] = [Comparison("o_total", Operator.LESS, 1.0)]
    assert known(world).prune(cheap) is None
    both = known(world).prune([*cheap, *BELOW_30])
    assert both is not None
    assert not both.is_known
    world.run()
    assert check_filter(known(world), world.dataset, cheap)


def test_an_earlier_version_is_known_by_its_fingerprints(world: World, most_groups: int) -> None:
    version = world.dataset.version
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.run()
    dataset = lance.dataset(str(world.path), version=version)
    left = check_filter(known(world, version), dataset, [Comparison("o_id", Operator.GREATER, 90)])
    assert left is not None
    assert list(left.fragment_ids) == [4]
    # The group of the last fragment has grown: it is known only with the appended rows.
    assert left.is_known == (most_groups > 2)


def test_columns_that_cannot_be_analyzed_are_not_known(tmp_path: Path) -> None:
    table = orders(0, 10).append_column("list", pa.array([[1]] * 10))
    lance.write_dataset(table, str(tmp_path / "o.lance"), max_rows_per_file=5)
    world = World(tmp_path / "o.lance")
    world.run()
    assert known(world).partial("list") is None
    assert known(world).partial("none such") is None
    left = known(world).prune([Comparison("o_id", Operator.LESS, 3), Not(IsNull("list"))])
    assert left is not None
    assert (list(left.fragment_ids), left.is_known) == ([0], False)


def test_a_table_without_a_summary_is_not_pruned(tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "o.lance"))
    world = World(tmp_path / "o.lance")
    assert known(world) == NoFragmentStatistics()
    lance.write_dataset(orders(0, 0), str(tmp_path / "empty.lance"))
    empty = World(tmp_path / "empty.lance")
    assert empty.run().status == "success"
    assert known(empty) == NoFragmentStatistics()


def test_a_recreated_table_does_not_use_the_old_summary(world: World, tmp_path: Path) -> None:
    version = world.dataset.version
    lance.LanceDataset.drop(str(world.path))
    lance.write_dataset(orders(1000, 100), str(world.path), max_rows_per_file=20)
    while world.dataset.version < version:
        world.dataset.update_config({"owner": "shop"})
    assert known(world).prune(BELOW_30) is None
    assert known(world).partial("o_id") is None


class Unreachable(MemoryState):
    """A state from which only summaries can be read."""

    is_silent = False

    def summary_blocks(self, table: str, wanted: Collection[BlockKey]) -> Iterator[SummaryBlock]:
        raise StateUnreachable("the state cannot be reached")

    def summary(self, table: str):  # type: ignore[no-untyped-def]
        if self.is_silent:
            raise StateUnreachable("the state cannot be reached")
        return super().summary(table)


def test_an_unreachable_state_prunes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "o.lance"), max_rows_per_file=5)
    state = Unreachable()
    world = World(tmp_path / "o.lance", state=state)
    world.run()
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        assert known(world).prune(BELOW_30) is None
        state.is_silent = True
        assert known(world) == NoFragmentStatistics()
    assert [entry.name for entry in caplog.records] == ["lancestat.read"] * 2


def test_a_partial_whose_rows_differ_from_the_manifest_is_not_used(world: World) -> None:
    statistics = known(world)
    assert isinstance(statistics, GroupedStatistics)
    first = statistics._snapshot.fragments[0]
    statistics._snapshot = replace(
        statistics._snapshot,
        fragments=(replace(first, physical_rows=7), *statistics._snapshot.fragments[1:]),
    )
    other = GroupedStatistics(
        statistics._state, statistics._identity, statistics._snapshot, statistics._summary
    )
    assert other.partial("o_id") is None


def test_filters_nested_too_deeply_rule_nothing_out(world: World) -> None:
    deep: Filter = IsNull("o_id")
    for _ in range(5000):
        deep = Not(deep)
    assert known(world).prune([deep]) is None


def test_strings_are_pruned_by_their_prefix(tmp_path: Path) -> None:
    names = pa.table({"name": [f"{letter}{n}" for letter in "abc" for n in range(5)]})
    lance.write_dataset(names, str(tmp_path / "n.lance"), max_rows_per_file=5)
    world = World(tmp_path / "n.lance")
    world.run()
    left = check_filter(
        known(world), world.dataset, [TextMatch("name", TextOperator.STARTS_WITH, "b")]
    )
    assert left is not None
    assert list(left.fragment_ids) == [1]


@settings(max_examples=examples(60))
@given(st.lists(tables(), min_size=1, max_size=6), st.data())
def test_merging_groups_equals_merging_partials(
    groups: list[pa.Table], data: st.DataObject
) -> None:
    import numpy as np

    chosen = data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))
    partials = [analyze(group.to_batches(), SCHEMA, quantiles=["whole"]) for group in groups]
    for field in SCHEMA:
        type = column_type(field.type)
        assert type is not None
        column = GroupColumn.of([partial[field.name] for partial in partials], type)
        expected = merge(
            partial[field.name] for partial, taken in zip(partials, chosen, strict=True) if taken
        )
        assert column.merged(np.array(chosen)) == expected


def test_unsigned_values_beyond_bigint_are_not_known() -> None:
    table = pa.table({"c": pa.array([1, 2**63], pa.uint64())})
    dataset = lance.write_dataset(table, "memory://")
    partial = one_pass(dataset, None)["c"]
    type = column_type(pa.uint64())
    assert type is not None
    fitting = replace(partial, maximum=7)
    assert GroupColumn.of([partial, fitting], type).bounds.known.tolist() == [False, True]
