"""Zone maps of real tables: they rule out fragments that cannot match, also after later changes."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileWriter

import lancestat.tables.summary
from lancestat.errors.codes import StateUnreachable
from lancestat.lake.open import snapshot
from lancestat.lake.snapshot import DataFile, Overlay
from lancestat.query import fragments
from lancestat.query.fragments import (
    FragmentStatistics,
    GroupedStatistics,
    load_groups,
    load_zone_maps,
)
from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    Instant,
    IsNull,
    LocalTime,
    Not,
    Operator,
    TextMatch,
    TextOperator,
    TimeOfDay,
)
from lancestat.query.predicates.filter_sql import to_lance
from lancestat.query.pruning import ColumnBounds
from lancestat.state.store import open_state
from lancestat.state.values import table_identity
from lancestat.tables.statistics.column_type import column_type
from tests.examples import examples
from tests.integration.object_store import ObjectStore
from tests.query.values import FILTERS, tables
from tests.runs.world import World, orders
from tests.state.fresh import FreshState
from tests.tables.grouped import check_filter, check_whole, one_pass

BELOW_12: list[Filter] = [Comparison("a", Operator.LESS, 12)]


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"k": range(start, start + count), "a": range(start, start + count)})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """40 rows in order in 4 fragments, with a zone map of column a."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(0, 40), uri, max_rows_per_file=10)
    lance.dataset(uri).create_scalar_index("a", "ZONEMAP")
    return uri


def known(path: str) -> FragmentStatistics:
    dataset = lance.dataset(path)
    return load_zone_maps(dataset, snapshot(dataset))


def left_of(path: str, filters: Sequence[Filter]) -> list[int] | None:
    left = check_filter(known(path), lance.dataset(path), filters)
    return None if left is None else list(left.fragment_ids)


def test_a_filter_rules_fragments_out(path: str) -> None:
    assert left_of(path, BELOW_12) == [0, 1]
    assert left_of(path, [And(BELOW_12[0], Not(IsNull("k")))]) == [0, 1]
    assert left_of(path, [Comparison("k", Operator.LESS, 12)]) is None
    left = known(path).prune(BELOW_12)
    assert left is not None
    assert (left.rows, left.is_known) == (20, True)
    assert (left.partial("a"), known(path).partial("a")) == (None, None)
    assert left.range("a") == (0, 19, 0)
    assert left.range("k") is None


def test_a_range_with_nan_has_no_bounds(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    values = [*map(float, range(10)), *[math.nan] * 10, *map(float, range(50, 60))]
    lance.write_dataset(pa.table({"x": values}), uri, max_rows_per_file=10)
    lance.dataset(uri).create_scalar_index("x", "ZONEMAP")
    above = known(uri).prune([Comparison("x", Operator.GREATER, 40.0)])
    below = known(uri).prune([Comparison("x", Operator.LESS, 20.0)])
    assert above is not None and below is not None
    assert (list(above.fragment_ids), above.range("x")) == ([1, 2], (None, None, 0))
    assert (list(below.fragment_ids), below.range("x")) == ([0], (-0.0, 9.0, 0))


def test_a_table_without_zone_maps_is_not_pruned(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(0, 40), uri, max_rows_per_file=10)
    assert known(uri).is_empty
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    assert known(uri).is_empty


def test_deleted_rows_do_not_affect_pruning(path: str) -> None:
    lance.dataset(path).delete("a in (5, 19) or a >= 35")
    assert left_of(path, BELOW_12) == [0, 1]
    lance.dataset(path).create_scalar_index("a", "ZONEMAP", replace=True)
    assert left_of(path, BELOW_12) == [0, 1]
    assert left_of(path, [Comparison("a", Operator.GREATER_OR_EQUAL, 35)]) == []


def test_fragments_without_index_coverage_are_kept(path: str) -> None:
    lance.write_dataset(numbers(100, 10), path, mode="append")
    assert left_of(path, BELOW_12) == [0, 1, 4]
    lance.dataset(path).optimize.optimize_indices()
    assert left_of(path, BELOW_12) == [0, 1]


def test_updated_rows_are_found(path: str) -> None:
    lance.dataset(path).update({"a": "a - 30"}, where="k = 35")
    assert left_of(path, BELOW_12) == [0, 1, 4]
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
    assert left_of(path, BELOW_12) is None


def test_replaced_values_are_found(path: str) -> None:
    """The values of one column of a fragment are exchanged, and the fragment stays."""
    lance.dataset(path).add_columns({"b": "a"})
    lance.dataset(path).create_scalar_index("b", "ZONEMAP")
    high: list[Filter] = [Comparison("b", Operator.GREATER, 30)]
    assert left_of(path, high) == [3]
    dataset = lance.dataset(path)
    field = next(field.id() for field in dataset.lance_schema.fields() if field.name() == "b")
    [old] = [file for file in dataset.get_fragment(1).metadata.files if file.fields == [field]]
    file = Path(path) / "data" / f"{uuid.uuid4()}.lance"
    form = (old.file_major_version, old.file_minor_version)
    schema = pa.schema([("b", pa.int64())])
    with LanceFileWriter(str(file), schema, version=f"{form[0]}.{form[1]}") as writer:
        writer.write_batch(pa.record_batch({"b": pa.array(range(1000, 1010))}))
    size = file.stat().st_size
    new = lance.fragment.DataFile(file.name, old.fields, old.column_indices, *form, size)
    group = lance.LanceOperation.DataReplacementGroup(1, new)
    operation = lance.LanceOperation.DataReplacement([group])
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)
    assert left_of(path, high) == [1, 3]


def test_a_fragment_with_new_cells_in_the_column_is_not_trusted(path: str) -> None:
    dataset = lance.dataset(path)
    now = snapshot(dataset)
    field = next(field.id for field in now.fields if field.name == "a")
    first, *others = now.fragments

    def left(*written: int) -> Sequence[int]:
        cells = Overlay(DataFile("cells.lance", written, None, None), "digest")
        fragments = (replace(first, overlays=(cells,)), *others)
        remaining = load_zone_maps(dataset, replace(now, fragments=fragments)).prune(
            [Comparison("a", Operator.GREATER, 30)]
        )
        assert remaining is not None
        return list(remaining.fragment_ids)

    assert left(field) == [0, 3]
    assert left(field + 1000) == [3]


def test_an_index_that_cannot_be_read_rules_nothing_out(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(Path(path) / "_indices")
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        assert left_of(path, BELOW_12) is None
    assert "zone maps of" in caplog.text


@pytest.mark.s3
def test_zone_maps_are_read_from_an_object_store(object_store: ObjectStore) -> None:
    options = object_store.storage_options
    uri = object_store.fresh_uri("t.lance")
    lance.write_dataset(numbers(0, 40), uri, max_rows_per_file=10, storage_options=options)
    dataset = lance.dataset(uri, storage_options=options)
    dataset.create_scalar_index("a", "ZONEMAP")
    dataset = lance.dataset(uri, storage_options=options)
    remaining = load_zone_maps(dataset, snapshot(dataset), options).prune(BELOW_12)
    assert remaining is not None
    assert list(remaining.fragment_ids) == [0, 1]


def test_a_clone_is_not_pruned(path: str, tmp_path: Path) -> None:
    clone = str(tmp_path / "clone.lance")
    lance.dataset(path).shallow_clone(clone, lance.dataset(path).version)
    assert left_of(clone, BELOW_12) is None


def test_filters_nested_too_deeply_rule_nothing_out(path: str) -> None:
    deep: Filter = BELOW_12[0]
    for _ in range(5000):
        deep = Not(deep)
    assert known(path).prune([deep]) is None


@pytest.mark.parametrize(
    ("values", "filter", "left"),
    [
        (pa.array([1, 2**63, 3, None], pa.uint64()), Comparison("c", Operator.LESS, 3), [0]),
        (pa.array([b"ab", b"cd", b"ef", None], pa.binary(2)), IsNull("c"), [1]),
        (
            pa.array([1.0, -math.nan, math.nan, None], pa.float64()),
            Comparison("c", Operator.GREATER, 9.0),
            None,
        ),
        (
            pa.array([1_999, 2_001, -1, None], pa.timestamp("ns", "UTC")),
            Comparison("c", Operator.LESS, Instant(0)),
            [1],
        ),
        (
            pa.array([1_999, 2_001, -1, None], pa.timestamp("ns")),
            Comparison("c", Operator.LESS, LocalTime(0)),
            [1],
        ),
        (
            pa.array([0, 1, 3, None], pa.time32("s")),
            Comparison("c", Operator.GREATER, TimeOfDay(1_000_000)),
            [1],
        ),
        (
            pa.array([0, 999, 1_000, None], pa.time64("ns")),
            Comparison("c", Operator.LESS, TimeOfDay(1)),
            [0],
        ),
        (
            pa.array([0, 86_400_000, -1, None], pa.date64()),
            Comparison("c", Operator.LESS, Day(0)),
            [1],
        ),
        (
            pa.array([-(2**31), 0, 2_932_897, None], pa.int32()).view(pa.date32()),
            Comparison("c", Operator.GREATER, Day(2_932_896)),
            [1],
        ),
        (
            pa.array(["a", "a" * 100_000, "c", None]),
            TextMatch("c", TextOperator.STARTS_WITH, "a" * 400),
            [0],
        ),
    ],
    ids=[
        "unsigned",
        "fixed size",
        "NaN",
        "nanoseconds",
        "local times of nanoseconds",
        "times of seconds",
        "times of nanoseconds",
        "milliseconds",
        "far years",
        "long strings",
    ],
)
def test_awkward_types_are_pruned_correctly(
    tmp_path: Path, values: pa.Array, filter: Filter, left: list[int] | None
) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": values}), uri, max_rows_per_file=2)
    lance.dataset(uri).create_scalar_index("c", "ZONEMAP")
    remaining = known(uri).prune([filter])
    assert (None if remaining is None else list(remaining.fragment_ids)) == left


@settings(max_examples=examples(30))
@given(
    st.lists(tables(), min_size=2, max_size=3),
    st.lists(FILTERS, min_size=4, max_size=8),
    st.integers(0, 4),
)
def test_ruled_out_fragments_have_no_matching_rows_in_spark_or_lance(
    fragments: list[pa.Table], filters: list[Filter], deleted: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, fragment in enumerate(fragments):
            numbered = fragment.append_column("n", pa.array(range(len(fragment))))
            lance.write_dataset(numbered, folder, mode="append" if number else "overwrite")
        for name in ("whole", "real", "single", "price", "text", "blob", "day", "at"):
            lance.dataset(folder).create_scalar_index(name, "ZONEMAP")
        lance.dataset(folder).delete(f"n = {deleted}")
        fields = {field.name: field for field in snapshot(lance.dataset(folder)).fields}
        for filter in filters:
            left = check_filter(known(folder), lance.dataset(folder), [filter])
            sql = to_lance(filter, fields)
            if left is None or sql is None:
                continue
            for fragment in lance.dataset(folder).get_fragments():
                if fragment.fragment_id not in left.fragment_ids:
                    assert fragment.count_rows(filter=sql) == 0


BELOW_30: list[Filter] = [Comparison("o_id", Operator.LESS, 30)]


@pytest.fixture(params=[512, 2], ids=["one fragment each", "two groups"])
def most_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    most: int = request.param
    monkeypatch.setattr(lancestat.tables.summary, "MOST_GROUPS", most)
    return most


@pytest.fixture
def world(tmp_path: Path, most_groups: int) -> World:
    """100 rows in order in 5 fragments, all known_groups to the state."""
    lance.write_dataset(orders(0, 100), str(tmp_path / "o.lance"), max_rows_per_file=20)
    world = World(tmp_path / "o.lance", state=open_state(str(tmp_path / "state")))
    world.run()
    return world


def known_groups(world: World, version: int | None = None) -> FragmentStatistics:
    dataset = lance.dataset(str(world.path), version=version)
    return load_groups(world.state, table_identity(str(world.path)), snapshot(dataset))


def test_a_filter_leaves_the_fragments_that_may_match(world: World, most_groups: int) -> None:
    left = check_filter(known_groups(world), world.dataset, BELOW_30)
    assert left is not None
    assert list(left.fragment_ids) == ([0, 1] if most_groups > 2 else [0, 1, 2, 3])
    assert left.is_known
    check_whole(known_groups(world), world.dataset)


def test_filters_that_rule_nothing_out_return_none(world: World) -> None:
    assert known_groups(world).prune([]) is None
    assert known_groups(world).prune([Not(IsNull("o_id"))]) is None
    assert known_groups(world).prune([Comparison("o_id", Operator.GREATER, -1)]) is None


def test_a_filter_may_rule_out_all_fragments(world: World) -> None:
    left = check_filter(
        known_groups(world), world.dataset, [Comparison("o_id", Operator.GREATER, 1000)]
    )
    assert left is not None
    assert (list(left.fragment_ids), left.rows, left.is_known) == ([], 0, True)


def test_the_partial_of_a_whole_table_is_merged_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = Mock(wraps=fragments.merge)
    monkeypatch.setattr(fragments, "merge", merge)
    known = known_groups(world)
    assert known.partial("o_id") == known.partial("o_id")
    assert merge.call_count == 1


def test_appended_fragments_are_kept_without_partials(world: World) -> None:
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    left = check_filter(known_groups(world), world.dataset, BELOW_30)
    assert left is not None
    assert 5 in left.fragment_ids
    assert not left.is_known
    assert left.partial("o_id") is None
    assert known_groups(world).partial("o_id") is None


def test_a_group_that_lost_rows_is_not_known(world: World) -> None:
    world.dataset.delete("o_id = 5")
    left = check_filter(known_groups(world), world.dataset, BELOW_30)
    assert left is not None
    assert not left.is_known
    assert 0 in left.fragment_ids


def test_a_group_with_a_dropped_fragment_is_used(world: World) -> None:
    world.dataset.delete("o_id < 80")
    assert known_groups(world).prune(BELOW_30) is not None
    world.run()
    check_whole(known_groups(world), world.dataset)
    world.dataset.delete("o_id >= 0")
    world.run()
    assert known_groups(world).is_empty


def test_a_rewritten_column_is_unknown_and_others_are_known(world: World) -> None:
    world.dataset.alter_columns({"path": "o_total", "data_type": pa.float32()})
    assert known_groups(world).partial("o_total") is None
    assert known_groups(world).partial("o_id") is not None
    cheap: list[Filter] = [Comparison("o_total", Operator.LESS, 1.0)]
    assert known_groups(world).prune(cheap) is None
    both = known_groups(world).prune([*cheap, *BELOW_30])
    assert both is not None
    assert not both.is_known
    world.run()
    assert check_filter(known_groups(world), world.dataset, cheap)


def test_an_earlier_version_is_known_by_its_fingerprints(world: World, most_groups: int) -> None:
    version = world.dataset.version
    lance.write_dataset(orders(100, 10), str(world.path), mode="append")
    world.run()
    dataset = lance.dataset(str(world.path), version=version)
    left = check_filter(
        known_groups(world, version), dataset, [Comparison("o_id", Operator.GREATER, 90)]
    )
    assert left is not None
    assert list(left.fragment_ids) == [4]
    # The group of the last fragment has grown: it is known_groups only with the appended rows.
    assert left.is_known == (most_groups > 2)


def test_columns_that_cannot_be_analyzed_are_not_known(tmp_path: Path) -> None:
    table = orders(0, 10).append_column("list", pa.array([[1]] * 10))
    lance.write_dataset(table, str(tmp_path / "o.lance"), max_rows_per_file=5)
    world = World(tmp_path / "o.lance")
    world.run()
    assert known_groups(world).partial("list") is None
    assert known_groups(world).partial("none such") is None
    left = known_groups(world).prune([Comparison("o_id", Operator.LESS, 3), Not(IsNull("list"))])
    assert left is not None
    assert (list(left.fragment_ids), left.is_known) == ([0], False)


def test_a_table_without_a_summary_is_not_pruned(tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "o.lance"))
    world = World(tmp_path / "o.lance")
    assert known_groups(world).is_empty
    lance.write_dataset(orders(0, 0), str(tmp_path / "empty.lance"))
    empty = World(tmp_path / "empty.lance")
    assert empty.run().status == "success"
    assert known_groups(empty).is_empty


def test_a_recreated_table_does_not_use_the_old_summary(world: World, tmp_path: Path) -> None:
    version = world.dataset.version
    lance.LanceDataset.drop(str(world.path))
    lance.write_dataset(orders(1000, 100), str(world.path), max_rows_per_file=20)
    while world.dataset.version < version:
        world.dataset.update_config({"owner": "shop"})
    assert known_groups(world).prune(BELOW_30) is None
    assert known_groups(world).partial("o_id") is None


def test_an_unreachable_state_prunes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StateUnreachable("the state cannot be reached")

    lance.write_dataset(orders(0, 10), str(tmp_path / "o.lance"), max_rows_per_file=5)
    world = World(tmp_path / "o.lance", state=FreshState())
    world.run()
    with caplog.at_level(logging.WARNING, "lancestat.read"):
        monkeypatch.setattr(FreshState, "summary_blocks", fail)
        assert known_groups(world).prune(BELOW_30) is None
        monkeypatch.setattr(FreshState, "summary", fail)
        assert known_groups(world).is_empty
    assert [entry.name for entry in caplog.records] == ["lancestat.read"] * 2


def test_a_partial_whose_rows_differ_from_the_manifest_is_not_used(world: World) -> None:
    statistics = known_groups(world)
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


def test_unsigned_values_beyond_bigint_are_not_known() -> None:
    table = pa.table({"c": pa.array([1, 2**63], pa.uint64())})
    dataset = lance.write_dataset(table, "memory://")
    partial = one_pass(dataset, None)["c"]
    type = column_type(pa.uint64())
    assert type is not None
    fitting = replace(partial, maximum=7)
    assert ColumnBounds.of([partial, fitting], type).known.tolist() == [False, True]
