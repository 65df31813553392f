"""Aggregates are answered exactly, from what is known of the very content that is read."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.query.estimates import Aggregate, Function, PushDownReason, push_down
from lancestat.query.predicates.filter import Comparison, Filter, IsNull, Not, Operator
from lancestat.query.table import DeclaredTables, ReadSettings, ReadTable, open_table
from lancestat.spec.model import Policy, Publish
from tests.examples import examples
from tests.query.answers import assert_same, truth
from tests.query.values import COLUMNS, FILTERS, holds, tables
from tests.runs.world import World, orders

ON = ReadSettings()
EXACT, UNPROVEN, INEXACT = PushDownReason.EXACT, PushDownReason.UNPROVEN, PushDownReason.INEXACT
COUNT, MIN, MAX = Function.COUNT, Function.MIN, Function.MAX
ROWS = Aggregate(COUNT)


def opened(world: World) -> ReadTable:
    spec = world.observer.spec
    [table] = DeclaredTables(spec, world.state, world.clock).open([world.table]).values()
    assert isinstance(table, ReadTable), table
    return table


def made(folder: Path, rows: pa.Table, per_file: int = 1024) -> World:
    """A table that is analyzed."""
    lance.write_dataset(rows, str(folder / "t.lance"), max_rows_per_file=per_file)
    world = World(folder / "t.lance")
    assert world.run().status == "success"
    return world


def answered(
    table: ReadTable, asked: Aggregate, filters: Sequence[Filter] = ()
) -> tuple[PushDownReason, Any]:
    decision = push_down(table, [asked], filters, ON)
    assert decision.functions == (str(asked),)
    return decision.reason, decision.values[0] if decision.values else None


# Columns whose bounds are not exact where values are long.
LONG = ("text", "blob")
Change = Callable[[World], None]


def delete(world: World) -> None:
    world.dataset.delete("tiny < 0 or flag")


def update(world: World) -> None:
    world.dataset.update({"tiny": "3", "real": "7.5"}, where="whole >= 0")


def append(world: World) -> None:
    lance.write_dataset(world.dataset.to_table().slice(0, 1), str(world.path), mode="append")


def compact(world: World) -> None:
    world.dataset.optimize.compact_files()


def index(world: World) -> None:
    world.dataset.create_scalar_index("whole", "BTREE")


def analyze(world: World) -> None:
    assert world.run().status == "success"


CHANGES: tuple[Change, ...] = (delete, update, append, compact, index, analyze)


@settings(max_examples=examples(60))
@given(tables(12), st.lists(st.sampled_from(CHANGES), max_size=4), st.none() | FILTERS)
def test_answers_are_those_of_the_rows(
    rows: pa.Table, changes: list[Change], filter: Filter | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = made(Path(folder), rows, per_file=3)
        for change in changes:
            change(world)
        table, filters = opened(world), [] if filter is None else [filter]
        live = [
            row
            for row in world.dataset.to_table().to_pylist()
            if all(holds(filter, row) is True for filter in filters)
        ]
        reason, count = answered(table, ROWS, filters)
        assert (reason, count) == (EXACT, len(live)) or (filters and count is None)
        for name in COLUMNS:
            for function in Function:
                asked = Aggregate(function, name)
                reason, answer = answered(table, asked, filters)
                if reason is EXACT:
                    assert_same(answer, truth(asked, live))
                elif not filters and (not changes or changes[-1] is analyze):
                    assert reason is INEXACT, (asked, reason)
                    assert_inexact(asked, live)


def assert_inexact(asked: Aggregate, rows: Sequence[dict[str, Any]]) -> None:
    values = [row[asked.column or ""] for row in rows]
    assert asked.function is not COUNT
    if asked.column in LONG:
        sizes = [len(v if isinstance(v, bytes) else v.encode()) for v in values if v is not None]
        assert max(sizes) > 256
    else:
        assert truth(asked, rows) == 0.0


def orders_world(folder: Path) -> World:
    """100 rows in 5 fragments."""
    return made(folder, orders(0, 100), per_file=20)


def test_one_that_is_not_known_leaves_all_to_spark(tmp_path: Path) -> None:
    table = opened(orders_world(tmp_path))
    all_known = [ROWS, Aggregate(MAX, "o_id"), Aggregate(COUNT, "o_status")]
    assert push_down(table, all_known, [], ON).values == (100, 99, 66)
    one_is_not = push_down(table, [*all_known, Aggregate(MIN, "o_total")], [], ON)
    assert (one_is_not.reason, one_is_not.values) == (INEXACT, ())
    assert not one_is_not.use
    assert "sign" in one_is_not.detail


def test_without_a_state_rows_are_counted_and_nothing_else(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    plain = open_table(str(world.path))
    assert plain.verdict(ON, world.clock()).reason.value == "current"
    assert answered(plain, ROWS) == (EXACT, 100)
    assert answered(plain, Aggregate(MAX, "o_id")) == (UNPROVEN, None)


def test_stale_statistics_that_a_policy_accepts_answer_nothing(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    world.policy = Policy(allow_stale=True)
    lance.write_dataset(orders(500, 10), str(world.path), mode="append")
    table = opened(world)
    assert table.verdict(ON, world.clock()).reason.value == "stale_accepted"
    assert answered(table, ROWS) == (EXACT, 110)
    for name in ("o_id", "o_status"):
        for function in Function:
            assert answered(table, Aggregate(function, name)) == (UNPROVEN, None)


def test_a_forged_manifest_answers_nothing(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    version = str(world.dataset.version + 1)
    world.dataset.update_config(
        {
            "lance.stats.computedAtVersion": version,
            "lance.stats.numRows": "7",
            "lance.stats.column.o_id.max": "7",
            "lance.stats.column.o_id.nullCount": "7",
        }
    )
    table = opened(world)
    verdict = table.verdict(ON, world.clock())
    assert verdict.reason.value == "current"
    assert verdict.statistics is not None
    assert verdict.statistics.columns["o_id"].maximum == "7"
    assert answered(table, ROWS) == (EXACT, 100)
    assert answered(table, Aggregate(COUNT, "o_id")) == (EXACT, 100)
    assert answered(table, Aggregate(MAX, "o_id")) == (EXACT, 99)


def test_a_version_that_moved_without_its_rows_is_known(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    world.dataset.create_scalar_index("o_id", "BTREE")
    assert answered(opened(world), Aggregate(MAX, "o_id")) == (EXACT, 99)
    world.dataset.update({"o_total": "1e9"}, where="o_id = 50")
    assert answered(opened(world), Aggregate(MAX, "o_id"))[0] is UNPROVEN


def test_statistics_that_are_not_published_answer(tmp_path: Path) -> None:
    lance.write_dataset(orders(0, 10), str(tmp_path / "t.lance"))
    world = World(tmp_path / "t.lance", publish=Publish.NONE)
    world.run()
    assert answered(opened(world), Aggregate(MAX, "o_id")) == (EXACT, 9)


FROM_40: list[Filter] = [Comparison("o_id", Operator.GREATER_OR_EQUAL, 40)]


def test_filters_that_keep_whole_fragments_are_answered(tmp_path: Path) -> None:
    table = opened(orders_world(tmp_path))
    assert answered(table, ROWS, FROM_40) == (EXACT, 60)
    assert answered(table, Aggregate(MIN, "o_id"), FROM_40) == (EXACT, 40)
    assert answered(table, Aggregate(MIN, "o_total"), FROM_40) == (EXACT, 10.0)
    assert answered(table, Aggregate(COUNT, "o_status"), FROM_40) == (EXACT, 40)
    nothing = [Comparison("o_id", Operator.LESS, 0)]
    assert answered(table, ROWS, nothing) == (EXACT, 0)
    assert answered(table, Aggregate(MIN, "o_total"), nothing) == (EXACT, None)


@pytest.mark.parametrize(
    "filter",
    [
        Comparison("o_id", Operator.GREATER_OR_EQUAL, 41),
        Not(IsNull("o_status")),
        Comparison("o_total", Operator.EQUAL, 1.0),
        IsNull("gone"),
    ],
    ids=str,
)
def test_filters_that_may_leave_parts_of_fragments_are_not(tmp_path: Path, filter: Filter) -> None:
    table = opened(orders_world(tmp_path))
    assert answered(table, ROWS, [filter]) == (PushDownReason.FILTERED, None)


def test_zone_maps_prove_filters_for_counts(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(orders(0, 100), uri, max_rows_per_file=20)
    lance.dataset(uri).create_scalar_index("o_id", "ZONEMAP")
    lance.dataset(uri).delete("o_id = 50")
    table = open_table(uri)
    assert answered(table, ROWS, FROM_40) == (EXACT, 59)
    assert answered(table, Aggregate(MAX, "o_id"), FROM_40) == (UNPROVEN, None)
    lance.write_dataset(orders(100, 10), uri, mode="append")
    assert answered(open_table(uri), ROWS, FROM_40)[0] is PushDownReason.FILTERED


def test_an_empty_table_is_known_whatever_its_types(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([], pa.int64()), "list": pa.array([], pa.list_(pa.int64()))})
    lance.write_dataset(rows, str(tmp_path / "t.lance"))
    table = open_table(str(tmp_path / "t.lance"))
    asked = [ROWS, Aggregate(COUNT, "list"), Aggregate(MIN, "list"), Aggregate(MAX, "a")]
    assert push_down(table, asked, [], ON).values == (0, 0, None, None)


def test_a_table_of_which_all_rows_are_deleted_is_empty(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    world.dataset.delete("o_id < 40")
    world.dataset.delete("true")
    assert answered(opened(world), ROWS) == (EXACT, 0)
    assert answered(opened(world), Aggregate(MAX, "o_id")) == (EXACT, None)


NS, S = pa.timestamp("ns", "UTC"), pa.timestamp("s", "UTC")
BEYOND = (
    pa.array([2**60, 0], pa.int64()).view(pa.date64()),
    pa.array([2**62, 0], pa.int64()).view(S),
    pa.array([2**63, 1], pa.uint64()),
    pa.array([Decimal("1000.00"), None], pa.decimal128(38, 2)).view(pa.decimal128(5, 2)),
)


@pytest.mark.parametrize("values", BEYOND, ids=lambda values: str(values.type))
@pytest.mark.parametrize("function", Function)
def test_values_that_spark_cannot_hold_are_left_to_it(
    tmp_path: Path, values: pa.Array, function: Function
) -> None:
    table = opened(made(tmp_path, pa.table({"c": values})))
    assert answered(table, Aggregate(function, "c"))[0] in (INEXACT, UNPROVEN)
    assert answered(table, ROWS) == (EXACT, 2)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (pa.array([-1_001, 1_999], pa.int64()).view(NS), -2, 1),
        (pa.array([-1, 3], pa.int64()).view(S), -1_000_000, 3_000_000),
        (pa.array([-1, 86_400_000], pa.int64()).view(pa.date64()), -1, 1),
        (pa.array([date(1582, 10, 10), date(9999, 12, 31)]), -141_432, 2_932_896),
        (pa.array(["b", None, "a"]).dictionary_encode(), b"a", b"b"),
        (pa.array([b"\xff" * 256, b"\x80"]), b"\x80", b"\xff" * 256),
        (pa.array([b"ab", b"aa"], pa.binary(2)), b"aa", b"ab"),
        (pa.array(["é" * 128, "z"]), b"z", ("é" * 128).encode()),
        (pa.array([True, None, False]), 0, 1),
        (
            pa.array([Decimal("-99999999.99"), Decimal("0.01")], pa.decimal128(38, 2)),
            -9999999999,
            1,
        ),
        (pa.array([np.float16(-2), np.float16(1.5)]), -2.0, 1.5),
        (pa.array([-math.inf, 1e-45], pa.float32()), -math.inf, float(np.float32(1e-45))),
        (pa.array([2**63 - 1, 0], pa.uint64()), 0, 2**63 - 1),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_bounds_have_the_forms_of_spark(
    tmp_path: Path, values: pa.Array, low: Any, high: Any
) -> None:
    table = opened(made(tmp_path, pa.table({"c": values})))
    assert answered(table, Aggregate(MIN, "c")) == (EXACT, low)
    assert answered(table, Aggregate(MAX, "c")) == (EXACT, high)


NAN = math.nan


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, NAN, 3.0], 1.0, NAN),
        ([NAN, None], NAN, NAN),
        ([None, None], None, None),
        ([0.0, NAN], INEXACT, NAN),
        ([-0.0, 0.0, 5.0], INEXACT, 5.0),
        ([-3.0, -0.0], -3.0, INEXACT),
        ([math.inf, NAN], math.inf, NAN),
    ],
)
def test_nan_is_the_greatest_and_zeros_are_left_to_spark(
    tmp_path: Path, values: list[float | None], low: Any, high: Any
) -> None:
    table = opened(made(tmp_path, pa.table({"c": pa.array(values, pa.float64())})))
    for function, expected in ((MIN, low), (MAX, high)):
        reason, answer = answered(table, Aggregate(function, "c"))
        if expected is INEXACT:
            assert reason is INEXACT
        else:
            assert reason is EXACT
            assert repr(answer) == repr(expected)


LONG_TEXT = ["a" * 257, "b"]


@pytest.mark.parametrize(
    "values", [pa.array(LONG_TEXT), pa.array([b"\xff" * 300, b"a"]), pa.array(["\U0010ffff" * 70])]
)
def test_long_text_has_no_exact_bounds(tmp_path: Path, values: pa.Array) -> None:
    table = opened(made(tmp_path, pa.table({"c": values})))
    assert answered(table, Aggregate(MIN, "c"))[0] is INEXACT
    assert answered(table, Aggregate(MAX, "c"))[0] is INEXACT
    assert answered(table, Aggregate(COUNT, "c")) == (EXACT, len(values))


@pytest.mark.parametrize(
    "values", [pa.array([[1]]), pa.array([{"x": 1}]), pa.array([timedelta(1)])], ids=str
)
def test_types_without_statistics_are_left_to_spark(tmp_path: Path, values: pa.Array) -> None:
    table = opened(made(tmp_path, pa.table({"c": values, "n": [1]})))
    for function in Function:
        assert answered(table, Aggregate(function, "c"))[0] is PushDownReason.UNSUPPORTED
    assert answered(table, ROWS) == (EXACT, 1)


def test_a_column_that_is_not_analyzed_is_left_to_spark(tmp_path: Path) -> None:
    world = orders_world(tmp_path)
    world.dataset.add_columns({"extra": "o_id * 2"})
    assert answered(opened(world), Aggregate(MAX, "extra"))[0] is UNPROVEN
    assert answered(opened(world), Aggregate(MAX, "o_id")) == (EXACT, 99)


def test_a_count_of_rows_asks_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(orders_world(tmp_path))

    def fail() -> None:
        raise AssertionError("the state is read")

    monkeypatch.setattr(ReadTable, "fragments", property(lambda self: fail()))
    assert answered(table, ROWS) == (EXACT, 100)
