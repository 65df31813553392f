"""Groups, keys, references and common values that do not fit the columns of their tables."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancestat
from lancestat.errors import UsageError
from lancestat.runs.actions import Blocked
from tests.spec.conftest import PROJECT, write

ORDERS = pa.schema(
    {
        "id": pa.int64(),
        "customer": pa.int32(),
        "day": pa.date32(),
        "tag": pa.string(),
        "points": pa.list_(pa.int32()),
    }
)
CUSTOMERS = pa.schema([("key", pa.int64()), ("day", pa.timestamp("us")), ("name", pa.string())])


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    for name, schema in (("orders", ORDERS), ("customers", CUSTOMERS)):
        lance.write_dataset(schema.empty_table(), folder / f"{name}.lance")
    return folder


def project(root: Path, warehouse: Path, *keys: str, customers: str = "") -> lancestat.Project:
    lines = [f"    {key}" for key in keys]
    tables = [
        "tables:",
        f"  - name: orders\n    uri: {warehouse}/orders.lance",
        *lines,
        f"  - {{name: customers, uri: {warehouse}/customers.lance{customers}}}",
    ]
    local = PROJECT.replace("dev: {}", "dev: {spark: {master: 'local[1]'}}")
    write(root, {"lancestat_project.yml": local, "specs/shop.yml": "\n".join(tables)})
    return lancestat.Project.load(root)


def refusal(root: Path, warehouse: Path, *keys: str, customers: str = "") -> str:
    """Return the code, the place and the message with which the plan refuses `orders`."""
    plan = project(root, warehouse, *keys, customers=customers).plan("orders")
    [action] = plan.actions
    assert isinstance(action, Blocked), action
    return str(action.error)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (
            "groups: [[id, custmer]]",
            "LS114 specs/shop.yml:4:19  table 'orders' has no column 'custmer'\n"
            "      hint: did you mean 'customer'?",
        ),
        (
            "groups: [[id, day], ['d*', day]]",
            "LS114 specs/shop.yml:4:26  table 'orders' has no column 'd*'",
        ),
        (
            "keys: [[points]]",
            "LS115 specs/shop.yml:4:13  column 'points' of table 'orders' cannot have statistics",
        ),
        (
            "common_values: {limit: 5, columns: [id, points]}",
            "LS115 specs/shop.yml:4:45  column 'points' of table 'orders' cannot have statistics",
        ),
        (
            "references: [{columns: [cust], table: customers, to: [key]}]",
            "LS114 specs/shop.yml:4:29  table 'orders' has no column 'cust'",
        ),
        (
            "references: [{columns: [customer], table: customers, to: [keys]}]",
            "LS114 specs/shop.yml:4:63  table 'customers' has no column 'keys'",
        ),
        (
            "references: [{columns: [customer, day], table: customers, to: [key, day]}]",
            "LS117 specs/shop.yml:4:73  column 'day' of table 'customers' is of type "
            "timestamp_ntz, and 'day' of 'orders', which refers to it, of type date",
        ),
    ],
)
def test_each_wrong_column_is_one_error_at_its_place(
    tmp_path: Path, warehouse: Path, declared: str, expected: str
) -> None:
    assert refusal(tmp_path, warehouse, declared).startswith(expected)


@pytest.mark.parametrize(
    "declared", ["groups: [[id, day]]", "keys: [[day]]", "common_values: {columns: [day]}"]
)
def test_a_column_that_is_left_out_has_no_statistics(
    tmp_path: Path, warehouse: Path, declared: str
) -> None:
    error = refusal(tmp_path, warehouse, "columns: [id, customer]", declared)
    assert error.startswith("LS116 specs/shop.yml:5:")
    assert "column 'day' of table 'orders' has no statistics: 'columns' leaves it out" in error
    assert "hint: add it to 'columns'" in error


def test_both_sides_of_a_reference_need_statistics(tmp_path: Path, warehouse: Path) -> None:
    reference = "references: [{columns: [customer], table: customers, to: [key]}]"
    error = refusal(tmp_path, warehouse, reference, customers=", columns: [name]")
    assert error.startswith("LS116 specs/shop.yml:4:63  column 'key' of table 'customers'")


def test_a_table_that_cannot_be_opened_says_nothing_of_references_to_it(
    tmp_path: Path, warehouse: Path
) -> None:
    reference = "references: [{columns: [customer], table: customers, to: [keys]}]"
    keys = [reference, f"description: a\n  - name: b\n    uri: {tmp_path}/gone"]
    declared = project(tmp_path, warehouse, *keys, customers="/gone")
    assert {action.node: type(action) is Blocked for action in declared.plan().actions} == {
        "orders": False,
        "b": True,
        "customers": True,
    }


FITTING = (
    "groups: [[id, tag]]",
    "keys: [[id], [customer, day]]",
    "references: [{columns: [customer, tag], table: customers, to: [key, name]},"
    " {columns: [customer], table: orders, to: [id]}]",
    "common_values: {limit: 20, columns: [tag, id]}",
)


def test_nullable_columns_of_one_kind_of_type_fit(tmp_path: Path, warehouse: Path) -> None:
    assert all(field.nullable for field in lance.dataset(str(warehouse / "orders.lance")).schema)
    plan = project(tmp_path, warehouse, *FITTING).plan("orders")
    assert [action.verb for action in plan.actions] == ["analyze"]


def test_no_table_waits_for_one_that_it_refers_to(tmp_path: Path, warehouse: Path) -> None:
    declared = project(tmp_path, warehouse, *FITTING)
    assert [action.node for action in declared.plan("+orders").actions] == ["orders"]
    assert [action.node for action in declared.plan("customers+").actions] == ["customers"]
    # A cycle of references is none of tables.
    back = ", references: [{columns: [key], table: orders, to: [id]}]"
    both = project(tmp_path, warehouse, *FITTING, customers=back).plan()
    assert [action.verb for action in both.actions] == ["analyze", "analyze"]


def test_columns_may_be_analyzed_without_those_that_are_declared_with_them(
    tmp_path: Path, warehouse: Path
) -> None:
    declared = project(tmp_path, warehouse, *FITTING)
    result = declared.analyze("orders", columns=["ID", "customer"])
    result.raise_for_status()
    with pytest.raises(UsageError, match="has no column 'ids'"):
        declared.analyze("orders", columns=["ids"])


def test_unknown_tables_are_told_of_once_sources_are_known(tmp_path: Path, warehouse: Path) -> None:
    text = (
        f"tables:\n  - name: orders\n    uri: {warehouse}/orders.lance\n"
        "    references:\n      - {columns: [customer], table: REFERRED, to: [key]}\n"
        f"sources: [{{uri: {warehouse}}}]\n"
    )
    for table, is_known in (("customers", True), ("customer", False)):
        files = {"specs/shop.yml": text.replace("REFERRED", table)}
        write(tmp_path, {"lancestat_project.yml": PROJECT, **files})
        [action] = lancestat.Project.load(tmp_path).plan("orders").actions
        if is_known:
            assert action.verb == "analyze"
        else:
            assert isinstance(action, Blocked)
            error = str(action.error)
            assert error.startswith("LS110 specs/shop.yml:5:38  unknown table 'customer'")
            assert "did you mean 'customers'?" in error
