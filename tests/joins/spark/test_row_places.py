"""Positions of rows, and their places in the fragments of a table, against a scan by Lance."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.joins.search.work import PinnedTable, RightContent, RightFragment
from lancestat.joins.spark.ivf import RowPlaces
from lancestat.joins.spark.sides import opened_table
from lancestat.lake.open import snapshot


@pytest.mark.parametrize("filter", [None, "id % 4 = 1", "id >= 30"])
@pytest.mark.parametrize("deleted", [None, "id % 3 = 0", "id < 25 or id = 99"])
def test_keys_are_row_addresses_in_row_order(
    tmp_path: Path, deleted: str | None, filter: str | None
) -> None:
    uri = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(200, np.float32)), 2)
    rows = pa.table({"id": np.arange(100), "v": vectors})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=20)
    if deleted is not None:
        dataset.delete(deleted)
    seen = snapshot(dataset, uri, {})
    side = opened_table(PinnedTable.at(seen), "v", ("id",), {}, "right", filter).side
    live = [part for part in seen.fragments if part.rows]
    content = RightContent(
        "key",
        tuple(RightFragment(part.id, "", part.physical_rows, part.rows) for part in live),
    )
    numbers = {part.id: number for number, part in enumerate(live)}
    scanned = dataset.to_table(columns=["id"], filter=filter, with_row_address=True)
    addresses = scanned["_rowaddr"].to_numpy().astype(np.int64)
    expected = [
        numbers[address >> 32] << 32 | address & 0xFFFFFFFF for address in addresses.tolist()
    ]

    places = RowPlaces.of(side, content)  # type: ignore[arg-type]
    positions = np.arange(len(expected))
    assert places.keys(positions).tolist() == expected
    assert places.keys(positions[3:9]).tolist() == expected[3:9]
    shuffled = np.random.default_rng(0).permutation(len(expected))
    keys = np.append(np.array(expected)[shuffled], -1)
    assert places.positions(keys).tolist() == [*shuffled.tolist(), -1]
    assert places.keys(positions[:0]).tolist() == []
