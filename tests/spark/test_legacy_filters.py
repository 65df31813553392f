"""Filters of tables in Lance's first format, with indices and booleans that are null."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import RowRange
from lancestat.spark.fragment_reader import (
    count_matches,
    physical_offsets,
    pinned_dataset,
    read_range,
    read_ranges,
)
from tests.pins import pinned

Row = dict[str, Any]
FILTERS: dict[str, Callable[[Row], bool]] = {
    "x > 30": lambda row: row["x"] > 30,
    "x in (4, 5, 7)": lambda row: row["x"] in (4, 5, 7),
    "x < 0": lambda row: False,
    "b": lambda row: row["b"] is True,
    "not b": lambda row: row["b"] is False,
}
SIZES = [300, 40, 5, 3, 200, 1, 2_000]


def rows_of(first: int, last: int, seed: int) -> pa.Table:
    ids, random = np.arange(first, last), np.random.default_rng(seed)
    # Of some fragments all booleans are the same, or null.
    flags = [None if id % 5 == 2 else first % 3 != 0 or id % 4 > 0 for id in ids.tolist()]
    numbers = pa.array(random.integers(0, 100, len(ids)), pa.int32())
    return pa.table({"id": ids, "x": numbers, "b": pa.array(flags, pa.bool_())})


@pytest.fixture(scope="module", params=["BTREE", "ZONEMAP", "BITMAP", "none"])
def dataset(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> lance.LanceDataset:
    """Small fragments, the last of rows that were updated since there is an index."""
    uri = str(tmp_path_factory.mktemp("legacy") / "t.lance")
    for first, last in pairwise(np.cumsum([0, *SIZES]).tolist()):
        lance.write_dataset(
            rows_of(first, last, first), uri, mode="append", data_storage_version="legacy"
        )
    written = lance.dataset(uri)
    if request.param != "none":
        written.create_scalar_index("x", request.param)
    written.delete("id % 11 = 3")
    every = rows_of(0, sum(SIZES), 1)
    changed = every.filter(pa.array(np.arange(len(every)) % 9 == 1))
    written.merge_insert("id").when_matched_update_all().execute(changed)
    return pinned_dataset(pinned(uri), {})


@pytest.mark.parametrize("filter", FILTERS)
def test_filters_find_the_rows_that_a_scan_shows(dataset: lance.LanceDataset, filter: str) -> None:
    ids = [fragment.fragment_id for fragment in dataset.get_fragments()]
    expected: dict[int, list[tuple[int, int]]] = {}
    for id in ids:
        scanner = dataset.get_fragment(id).scanner(with_row_address=True)
        expected[id] = [
            (row["id"], row["_rowaddr"] % 2**32)
            for row in scanner.to_table().to_pylist()
            if FILTERS[filter](row)
        ]
    matches = [row for id in ids for row, _ in expected[id]]
    ranges = tuple(map(RowRange, ids))
    halves = [part for id in ids for part in (RowRange(id, 0, 100), RowRange(id, 100))]

    pieces = read_ranges(dataset, ranges, ("id",), {}, filter=filter)
    assert [id for _, batch in pieces for id in batch["id"].to_pylist()] == matches
    parts = (read_range(dataset, half, ("id",), {}, filter=filter) for half in halves)
    assert [id for part in parts for batch in part for id in batch["id"].to_pylist()] == matches
    for options in (ranges, ranges[:1], tuple(halves)):
        counted = read_ranges(dataset, options, (), {}, filter=filter)
        found = sum(batch[0][0].as_py() for _, batch in counted)
        assert found == (len(expected[0]) if options == ranges[:1] else len(matches))
    counts = [(id, len(expected[id])) for id in ids]
    assert list(count_matches(dataset, ids, filter)) == counts
    assert [pair for id in ids for pair in count_matches(dataset, [id], filter)] == counts
    for id in ids:
        offsets = physical_offsets(dataset.get_fragment(id), filter).tolist()
        assert offsets == [offset for _, offset in expected[id]]


def test_matches_of_an_index_come_in_the_order_of_rows(tmp_path: Path) -> None:
    """Where compaction has put rows together whose stable ids do not ascend."""
    uri = str(tmp_path / "t.lance")
    written = lance.write_dataset(
        rows_of(0, 500, 0), uri, data_storage_version="legacy", enable_stable_row_ids=True
    )
    written.update({"x": "5"}, where="id < 200")
    lance.write_dataset(rows_of(500, 900, 1), uri, mode="append")
    written = lance.dataset(uri)
    written.update({"x": "5"}, where="id >= 400 and id < 600")
    written.optimize.compact_files()
    written.create_scalar_index("x", "BTREE")
    written.delete("id % 50 = 1")
    dataset = pinned_dataset(pinned(uri), {})
    expected = [row["id"] for row in dataset.to_table().to_pylist() if row["x"] == 5]
    assert expected != sorted(expected)
    [fragment] = dataset.get_fragments()
    found = read_range(dataset, RowRange(fragment.fragment_id), ("id",), {}, filter="x = 5")
    assert [id for batch in found for id in batch["id"].to_pylist()] == expected
