from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.history import commits_since, rows_changed_between
from lancestat.lake.observe import snapshot

Rows = Callable[[int, int], pa.Table]


def changed_since(
    dataset: lance.LanceDataset, version: int, columns: Sequence[str] = ("id", "x")
) -> tuple[float, float]:
    """The share for statistics of some columns, with and without the help of history."""
    now = lance.dataset(dataset.uri)
    old, new = snapshot(lance.dataset(dataset.uri, version=version)), snapshot(now)
    history = commits_since(now, version)
    return (
        rows_changed_between(old, new, columns, history),
        rows_changed_between(old, new, columns),
    )


def test_an_unchanged_table_has_no_changed_rows(orders: lance.LanceDataset) -> None:
    orders.update_config({"a": "b"})
    orders.create_scalar_index("id", "BTREE")
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_appended_and_deleted_rows_count_once(orders: lance.LanceDataset, rows: Rows) -> None:
    orders.insert(rows(100, 125))
    assert changed_since(orders, 1) == (25 / 125, 25 / 125)
    orders.delete("id < 5")
    assert changed_since(orders, 1) == (30 / 120, 30 / 120)


def test_updated_rows_count_twice(orders: lance.LanceDataset) -> None:
    orders.update({"x": "-1"}, where="id in (1, 50)")
    assert changed_since(orders, 1) == (0.04, 0.04)


def test_a_compaction_changes_no_rows(orders: lance.LanceDataset) -> None:
    orders.delete("id in (3, 45)")
    orders.optimize.compact_files()
    assert changed_since(orders, 2)[0] == 0.0
    assert changed_since(orders, 2)[1] == 1.0
    assert changed_since(orders, 1)[0] == 2 / 98


def test_rows_that_came_before_a_compaction_are_still_new(
    orders: lance.LanceDataset, rows: Rows
) -> None:
    orders.insert(rows(100, 110))
    orders.optimize.compact_files()
    orders.delete("id in (3, 45)")
    orders.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert changed_since(orders, 1)[0] == pytest.approx(12 / 108)


def test_repeated_compactions_change_no_rows(tmp_path: Path, rows: Rows) -> None:
    dataset = lance.write_dataset(rows(0, 100), tmp_path / "t.lance", max_rows_per_file=10)
    for target in (20, 50, 1000):
        dataset.optimize.compact_files(target_rows_per_fragment=target)
    assert len(dataset.get_fragments()) < 10
    assert changed_since(dataset, 1)[0] == 0.0


def test_an_added_column_changes_no_row(orders: lance.LanceDataset) -> None:
    orders.add_columns({"y": "x + 1"})
    orders.drop_columns(["s"])
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_a_table_without_common_rows_is_wholly_changed(
    orders: lance.LanceDataset, rows: Rows
) -> None:
    orders.add_columns({"y": "x + 1"})
    orders.drop_columns(["id", "x", "s"])
    assert changed_since(orders, 1) == (1.0, 1.0)


def test_overwritten_rows_are_changed_even_if_equal(orders: lance.LanceDataset, rows: Rows) -> None:
    lance.write_dataset(rows(0, 100), orders.uri, mode="overwrite")
    assert changed_since(orders, 1) == (1.0, 1.0)


def test_an_emptied_and_refilled_table_is_wholly_changed(
    tmp_path: Path, orders: lance.LanceDataset, rows: Rows
) -> None:
    orders.truncate_table()
    assert changed_since(orders, 1) == (1.0, 1.0)
    assert changed_since(orders, 2) == (0.0, 0.0)
    orders.insert(rows(0, 5))
    assert changed_since(orders, 2) == (1.0, 1.0)


def test_a_restored_table_has_no_changed_rows(orders: lance.LanceDataset) -> None:
    orders.delete("id < 30")
    lance.dataset(orders.uri, version=1).restore()
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_a_restore_to_before_a_compaction_changes_no_rows(orders: lance.LanceDataset) -> None:
    orders.optimize.compact_files()
    lance.dataset(orders.uri, version=1).restore()
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_deletions_that_may_differ_count_on_both_sides(orders: lance.LanceDataset) -> None:
    """Of the fragment's twenty rows, two were away then and two others are away now."""
    orders.delete("id in (1, 2)")
    lance.dataset(orders.uri, version=1).restore()
    lance.dataset(orders.uri).delete("id in (3, 4)")
    assert changed_since(orders, 2) == (4 / 98, 4 / 98)


def test_deletions_only_grow_where_history_shows_it(orders: lance.LanceDataset) -> None:
    orders.delete("id in (1, 2)")
    orders.delete("id = 3")
    with_history, without = changed_since(orders, 2)
    assert with_history == 1 / 97
    assert without == 5 / 97


def drop_and_add(table: lance.LanceDataset) -> None:
    table.drop_columns(["x"])
    table.add_columns({"x": "id * 1000000"})


def rename_another(table: lance.LanceDataset) -> None:
    table.add_columns({"y": "id * 1000000"})
    table.drop_columns(["x"])
    table.alter_columns({"path": "y", "name": "x"})


def rename_and_add(table: lance.LanceDataset) -> None:
    table.alter_columns({"path": "x", "name": "old"})
    table.add_columns({"x": "id * 1000000"})


def swap(table: lance.LanceDataset) -> None:
    table.alter_columns({"path": "x", "name": "spare"}, {"path": "id", "name": "x"})
    table.alter_columns({"path": "spare", "name": "id"})


def cast_to_and_fro(table: lance.LanceDataset) -> None:
    type = table.schema.field("x").type
    table.alter_columns({"path": "x", "data_type": pa.float32()})
    table.alter_columns({"path": "x", "data_type": type})


REPLACED = [drop_and_add, rename_another, rename_and_add, swap, cast_to_and_fro]


@pytest.mark.parametrize("replace", REPLACED)
def test_a_column_that_is_another_by_identity_is_wholly_changed(
    orders: lance.LanceDataset, replace: Callable[[lance.LanceDataset], None]
) -> None:
    replace(orders)
    assert changed_since(orders, 1) == (1.0, 1.0)
    assert changed_since(orders, 1, ["x"]) == (1.0, 1.0)


@pytest.mark.parametrize("replace", [drop_and_add, rename_another, rename_and_add])
def test_a_replaced_column_affects_only_its_own_statistics(
    orders: lance.LanceDataset, replace: Callable[[lance.LanceDataset], None]
) -> None:
    replace(orders)
    assert changed_since(orders, 1, ["id"]) == (0.0, 0.0)
    assert changed_since(orders, 1, ["id", "s"]) == (0.0, 0.0)
    orders.delete("id < 5")
    assert changed_since(orders, 1, ["id"]) == (5 / 95, 5 / 95)


def test_a_column_that_was_renamed_to_and_fro_is_the_same(orders: lance.LanceDataset) -> None:
    orders.alter_columns({"path": "x", "name": "y"})
    orders.alter_columns({"path": "y", "name": "x"})
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_a_dropped_column_is_wholly_changed(orders: lance.LanceDataset) -> None:
    orders.drop_columns(["x"])
    assert changed_since(orders, 1) == (1.0, 1.0)
    assert changed_since(orders, 1, ["id"]) == (0.0, 0.0)


def test_a_reused_field_id_is_another_column(tmp_path: Path) -> None:
    """The dropped column's values are gone, the one that has its id and name now is all null."""
    columns = {"id": range(100), "x": [number % 3 for number in range(100)]}
    table = lance.write_dataset(pa.table(columns), tmp_path / "t.lance", max_rows_per_file=20)
    table.drop_columns(["x"])
    table.optimize.compact_files()
    lance.dataset(table.uri).add_columns(pa.field("x", pa.int64()))
    first, last = snapshot(lance.dataset(table.uri, version=1)), snapshot(lance.dataset(table.uri))
    assert first.fields == last.fields, "Lance did not reuse the id, so this proves nothing"
    assert changed_since(table, 1) == (1.0, 1.0)
    assert changed_since(table, 1, ["id"])[0] == 0.0


def test_a_column_that_a_restore_brought_back_is_the_same(orders: lance.LanceDataset) -> None:
    orders.drop_columns(["x"])
    orders.optimize.compact_files()
    lance.dataset(orders.uri, version=1).restore()
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_nested_columns_do_not_affect_others(tmp_path: Path) -> None:
    """They have no statistics; replacing a member does not affect other columns."""
    inner = pa.array([{"a": number, "b": "text"} for number in range(20)])
    table = lance.write_dataset(pa.table({"id": range(20), "st": inner}), tmp_path / "t.lance")
    table.drop_columns(["st.b"])
    assert changed_since(table, 1, ["id"]) == (0.0, 0.0)
    table.drop_columns(["st"])
    table.add_columns({"st": "id"})
    assert changed_since(table, 1, ["id"]) == (0.0, 0.0)
