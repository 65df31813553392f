"""The time of the last change of rows, compared with the times of commits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import lance
import pyarrow as pa
import pytest

from lancestat.lake.history import rows_changed_at

Rows = Callable[[int, int], pa.Table]
Dataset = lance.LanceDataset


def committed_at(dataset: Dataset, version: int) -> datetime:
    at: datetime = lance.dataset(dataset.uri, version=version).get_version()["timestamp"]
    return at.astimezone(timezone.utc)


def changed_at(dataset: Dataset, limit: int = 200) -> datetime:
    return rows_changed_at(lance.dataset(dataset.uri), limit=limit)


def touch(dataset: Dataset, times: int = 1) -> None:
    """Commits that change no row."""
    for number in range(times):
        lance.dataset(dataset.uri).update_config({"touched": str(number)})


def test_a_new_table_changed_when_it_was_created(orders: Dataset) -> None:
    time = changed_at(orders)
    assert time == committed_at(orders, 1)
    assert time.tzinfo is timezone.utc


CHANGES: dict[str, Callable[[Dataset, Rows], object]] = {
    "append": lambda d, rows: d.insert(rows(100, 110)),
    "delete": lambda d, rows: d.delete("id = 3"),
    "update": lambda d, rows: d.update({"x": "0.5"}, where="id = 3"),
    "overwrite": lambda d, rows: lance.write_dataset(rows(0, 5), d.uri, mode="overwrite"),
    "restore": lambda d, rows: lance.dataset(d.uri, version=1).restore(),
    "new column": lambda d, rows: d.add_columns({"z": "x * 2"}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("touches", [0, 1, 2, 9])
def test_commits_that_change_rows_are_found_behind_those_that_do_not(
    change: str, touches: int, orders: Dataset, rows: Rows
) -> None:
    CHANGES[change](orders, rows)
    dataset = lance.dataset(orders.uri).version
    touch(orders, touches)
    assert changed_at(orders) == committed_at(orders, dataset) > committed_at(orders, 1)


STILL: dict[str, Callable[[Dataset], object]] = {
    "property": touch,
    "compaction": lambda d: d.optimize.compact_files(),
    "index": lambda d: d.create_scalar_index("id", "BTREE"),
    "dropped column": lambda d: d.drop_columns(["s"]),
    "empty deletion": lambda d: d.delete("id < 0"),
}


@pytest.mark.parametrize("change", STILL)
def test_commits_that_change_no_row_are_skipped(change: str, orders: Dataset) -> None:
    STILL[change](orders)
    assert lance.dataset(orders.uri).version > 1
    assert changed_at(orders) == committed_at(orders, 1)


def test_the_number_of_inspected_commits_is_bounded(orders: Dataset) -> None:
    touch(orders, 6)
    assert [changed_at(orders, limit) for limit in (1, 2, 3, 5, 6, 7, 8)] == [
        committed_at(orders, version) for version in (7, 6, 5, 3, 2, 1, 1)
    ]


def test_after_a_cleanup_the_oldest_existing_version_counts(orders: Dataset) -> None:
    touch(orders, 2)
    dataset = lance.dataset(orders.uri)
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert changed_at(orders) == committed_at(orders, 3)


def test_a_version_in_the_past_is_judged_as_it_was(orders: Dataset, rows: Rows) -> None:
    touch(orders)
    orders.insert(rows(100, 110))
    assert rows_changed_at(lance.dataset(orders.uri, version=2)) == committed_at(orders, 1)
