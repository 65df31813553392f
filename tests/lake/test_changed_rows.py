from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.lake.changed_rows import rows_changed_between
from lancestat.lake.history import commits_since
from lancestat.lake.observe import snapshot

Rows = Callable[[int, int], pa.Table]


def changed_since(dataset: lance.LanceDataset, version: int) -> tuple[float, float]:
    """The share with and without the help of history."""
    now = lance.dataset(dataset.uri)
    old, new = snapshot(lance.dataset(dataset.uri, version=version)), snapshot(now)
    history = commits_since(now, version)
    return rows_changed_between(old, new, history), rows_changed_between(old, new)


def test_nothing_changed(orders: lance.LanceDataset) -> None:
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


def test_a_compaction_is_no_change(orders: lance.LanceDataset) -> None:
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


def test_compactions_of_compactions(tmp_path: Path, rows: Rows) -> None:
    dataset = lance.write_dataset(rows(0, 100), tmp_path / "t.lance", max_rows_per_file=10)
    for target in (20, 50, 1000):
        dataset.optimize.compact_files(target_rows_per_fragment=target)
    assert len(dataset.get_fragments()) < 10
    assert changed_since(dataset, 1)[0] == 0.0


def test_an_added_column_changes_no_row(orders: lance.LanceDataset) -> None:
    orders.add_columns({"y": "x + 1"})
    orders.drop_columns(["s"])
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_nothing_in_common(orders: lance.LanceDataset, rows: Rows) -> None:
    orders.add_columns({"y": "x + 1"})
    orders.drop_columns(["id", "x", "s"])
    assert changed_since(orders, 1) == (1.0, 1.0)


def test_overwritten_with_the_same_rows(orders: lance.LanceDataset, rows: Rows) -> None:
    lance.write_dataset(rows(0, 100), orders.uri, mode="overwrite")
    assert changed_since(orders, 1) == (1.0, 1.0)


def test_emptied_and_filled(tmp_path: Path, orders: lance.LanceDataset, rows: Rows) -> None:
    orders.truncate_table()
    assert changed_since(orders, 1) == (1.0, 1.0)
    assert changed_since(orders, 2) == (0.0, 0.0)
    orders.insert(rows(0, 5))
    assert changed_since(orders, 2) == (1.0, 1.0)


def test_restored_to_what_it_was(orders: lance.LanceDataset) -> None:
    orders.delete("id < 30")
    lance.dataset(orders.uri, version=1).restore()
    assert changed_since(orders, 1) == (0.0, 0.0)


def test_restored_to_before_a_compaction(orders: lance.LanceDataset) -> None:
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
