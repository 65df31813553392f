"""Events of Spark to the uses of columns, on plans in Spark's own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lancestat.query.workload.plans import (
    Operator,
    PlanNode,
    expected_rows,
    plan_uses,
    scanned_table,
)
from lancestat.query.workload.queries import ColumnUse, Role
from lancestat.query.workload.spark_events import read_workload
from tests.query.workload.logs import ended, lines, operator, scan, stage, started

ORDERS = scan("orders", "o_id#1L", "o_cust#2L", "o_cat#3L", "o_sub#4L")
CUSTOMERS = scan("customers", "c_id#7L", "c_nation#8L")


def uses(plan: dict[str, Any]) -> set[ColumnUse]:
    import msgspec

    return plan_uses(msgspec.convert(plan, PlanNode)).uses


def test_conditions_by_equality_are_used_together() -> None:
    nulls = "(isnotnull(o_cat#3L) AND isnotnull(o_sub#4L))"
    text = f"Filter ((({nulls} AND (o_cat#3L = 7)) AND (o_sub#4L = 22)) AND (o_id#1L > 5))"
    assert uses(operator("Filter", text, ORDERS)) == {
        ColumnUse("orders", ("o_cat",), Role.EQUALITY),
        ColumnUse("orders", ("o_sub",), Role.EQUALITY),
        ColumnUse("orders", ("o_cat", "o_sub"), Role.EQUALITY),
        ColumnUse("orders", ("o_id",), Role.RANGE),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SortMergeJoin", "SortMergeJoin [o_cust#2L], [c_id#7L], Inner"),
        ("SortMergeJoin", "SortMergeJoin(skew=true) [o_cust#2L], [c_id#7L], LeftOuter"),
        (
            "BroadcastHashJoin",
            "BroadcastHashJoin [o_cust#2L], [c_id#7L], LeftSemi, BuildRight, false",
        ),
        ("ShuffledHashJoin", "ShuffledHashJoin [o_cust#2L], [c_id#7L], Inner, BuildLeft"),
    ],
)
def test_joins_have_a_use_from_either_side(name: str, text: str) -> None:
    assert uses(operator(name, text, ORDERS, CUSTOMERS)) == {
        ColumnUse("orders", ("o_cust",), Role.JOIN, "customers", ("c_id",)),
        ColumnUse("customers", ("c_id",), Role.JOIN, "orders", ("o_cust",)),
    }


def test_groups_are_known_under_other_names_of_their_columns() -> None:
    project = operator("Project", "Project [o_cat#3L AS kind#9L, o_sub#4L]", ORDERS)
    text = "HashAggregate(keys=[kind#9L, o_sub#4L], functions=[count(1)])"
    assert uses(operator("HashAggregate", text, project)) == {
        ColumnUse("orders", ("o_cat", "o_sub"), Role.GROUP)
    }


def test_what_a_query_computes_is_no_column() -> None:
    project = operator("Project", "Project [(o_cat#3L % 7) AS kind#9L]", ORDERS)
    text = "HashAggregate(keys=[kind#9L], functions=[count(1)])"
    assert uses(operator("HashAggregate", text, project)) == set()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("BatchScan orders", "orders"),
        ("BatchScan lance lake.sales.orders", "lake.sales.orders"),
        ("BatchScan /data/orders.lance", "/data/orders.lance"),
        ("Scan parquet spark_catalog.default.orders", "spark_catalog.default.orders"),
        ("BatchScan s3://key:secret@bucket/orders.lance", None),
        ("Scan JDBCRelation((select 'x') SPARK_GEN) [numPartitions=1]", None),
        ("Scan ExistingRDD", None),
        ("Filter", None),
    ],
)
def test_names_of_tables_hold_no_credentials_or_queries(name: str, table: str | None) -> None:
    assert scanned_table(name) == table


COSTS = """== Optimized Logical Plan ==
Filter (o_cat#3L = 7), Statistics(sizeInBytes=1.0 KiB, rowCount=400)
+- RelationV2[o_id#1L, o_cat#3L] orders, Statistics(sizeInBytes=1.0 MiB, rowCount=2.00E+4)

== Physical Plan ==
Filter (o_cat#3L = 7)
"""


def test_the_q_error_is_that_of_the_rows_that_spark_expected(tmp_path: Path) -> None:
    plan = operator("Filter", "Filter (o_cat#3L = 7)", ORDERS, rows=11)
    events = [started(plan, text=COSTS), stage({11: 40}), ended()]
    (tmp_path / "app-1").write_bytes(lines(*events))
    workload = read_workload([tmp_path]).workload
    assert workload.sets["orders", ("o_cat",)].q_error == 10


@pytest.mark.parametrize(("ranges", "error"), [(1, 5), (200, 10)])
def test_rows_that_are_sampled_for_ranges_count_once(
    tmp_path: Path, ranges: int, error: float
) -> None:
    filter = operator("Filter", "Filter (o_cat#3L = 7)", ORDERS, rows=11)
    text = f"Exchange rangepartitioning(o_id#1L ASC NULLS FIRST, {ranges}), ENSURE_REQUIREMENTS"
    exchange = operator("Exchange", text, filter)
    plan = operator("Sort", "Sort [o_id#1L ASC NULLS FIRST], true, 0", exchange)
    events = [started(plan, text=COSTS), stage({11: 80}), ended()]
    (tmp_path / "app-1").write_bytes(lines(*events))
    workload = read_workload([tmp_path]).workload
    assert workload.sets["orders", ("o_cat",)].q_error == error


INHERITED = """== Optimized Logical Plan ==
Aggregate [c_nation#8L], [c_nation#8L, count(1) AS n#9L], Statistics(sizeInBytes=1.0 B, rowCount=60)
+- Join Inner, (o_cust#2L = c_id#7L), Statistics(sizeInBytes=1.0 KiB, rowCount=800)
   :- Filter (o_cat#3L = 7), Statistics(sizeInBytes=1.0 KiB, rowCount=400)
   :  +- RelationV2[o_cust#2L, o_cat#3L] orders, Statistics(sizeInBytes=1.0 MiB, rowCount=2.00E+4)
   +- RelationV2[c_id#7L, c_nation#8L] customers, Statistics(sizeInBytes=1.0 MiB, rowCount=100)

== Physical Plan ==
"""


def test_an_operator_does_not_answer_for_the_errors_of_its_inputs(tmp_path: Path) -> None:
    filter = operator("Filter", "Filter (o_cat#3L = 7)", ORDERS, rows=11)
    exchange = operator("BroadcastExchange", "BroadcastExchange", CUSTOMERS)
    text = "BroadcastHashJoin [o_cust#2L], [c_id#7L], Inner, BuildRight"
    join = operator("BroadcastHashJoin", text, filter, exchange, rows=12)
    text = "HashAggregate(keys=[c_nation#8L], functions=[{}count(1)])"
    partial = operator("HashAggregate", text.format("partial_"), join, rows=13)
    plan = operator("HashAggregate", text.format(""), partial, rows=14)
    # Expected are 400 rows, 800 and 60.
    events = [started(plan, text=INHERITED), stage({11: 40, 12: 20, 13: 7, 14: 3}), ended()]
    (tmp_path / "app-1").write_bytes(lines(*events))
    workload = read_workload([tmp_path]).workload
    errors = {columns: usage.q_error for (_, columns), usage in workload.sets.items() if columns}
    assert errors == {("o_cat",): 10, ("o_cust",): 4, ("c_id",): 4, ("c_nation",): 1}


def test_without_estimates_the_q_error_is_unknown(tmp_path: Path) -> None:
    plan = operator("Filter", "Filter (o_cat#3L = 7)", ORDERS, rows=11)
    (tmp_path / "app-1").write_bytes(lines(started(plan), stage({11: 40}), ended()))
    workload = read_workload([tmp_path]).workload
    assert workload.sets["orders", ("o_cat",)].q_error is None
    assert not workload.has_estimates


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("5", {5.0}),
        ("2.00E+4", {20_000.0}),
        ("5, isRuntime=true", {5.0}),
        ("1E+999", set()),
        ("1-2-3", set()),
    ],
)
def test_rows_that_spark_expected_stand_at_the_end_of_a_line(
    rows: str, expected: set[float]
) -> None:
    literal = (
        "Statistics(sizeInBytes=1, rowCount=TOP-SECRET), Statistics(sizeInBytes=1, rowCount=1-2)"
    )
    line = f"Filter (s#1 = {literal}), Statistics(sizeInBytes=1.0 B, rowCount={rows})"
    found = expected_rows(f"== Optimized Logical Plan ==\n{line}\n+- x\n")
    assert {*found.values()} == expected
    assert {*found} <= {Operator("filter", frozenset({"1"}))}


def test_a_literal_is_not_taken_for_the_rows_that_spark_expected() -> None:
    line = "Filter (s#1 = Statistics(sizeInBytes=1, rowCount=7)), Statistics(sizeInBytes=1.0 B)"
    assert expected_rows(f"== Optimized Logical Plan ==\n{line}") == {}


def test_long_literals_take_no_longer_than_they_are() -> None:
    text = f"Filter ((o_cat#3L = {'x' * 1_000_000}) AND (o_sub#4L = {'(' * 1_000_000}))"
    assert {use.table for use in uses(operator("Filter", text, ORDERS))} == {"orders"}
