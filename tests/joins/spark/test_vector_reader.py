"""Vectors of a side, read in blocks of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.joins.search.metrics import L2
from lancestat.joins.search.work import PinnedTable, Rows
from lancestat.joins.spark.reader import VectorReader, rows_after
from lancestat.joins.spark.sides import opened_table
from lancestat.lake.open import snapshot


@pytest.mark.parametrize("size_bytes", [1, 12 * 7, 12 * 90, 12 * 1000])
@pytest.mark.parametrize("rows", [Rows(0, 300), Rows(37, 211), Rows(90, 90)])
@pytest.mark.parametrize("every", [1, 7, 400])
def test_blocks_have_the_rows_that_can_match(
    tmp_path: Path, size_bytes: int, rows: Rows, every: int
) -> None:
    matrix = np.random.default_rng(1).standard_normal((300, 3)).astype(np.float32)
    values: list[Any] = [None if at % every == 5 % every else matrix[at] for at in range(300)]
    table = pa.table({"v": pa.array(values, pa.list_(pa.float32(), 3))})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=90)
    side = opened_table(PinnedTable.at(snapshot(dataset, dataset.uri)), "v", (), {}, "left").side
    reader = VectorReader(side, 3, L2, "left")
    blocks = list(reader.blocks(rows, size_bytes))
    lengths = [len(block.positions) + block.excluded for block in blocks]
    assert sum(lengths) == len(rows) and all(lengths)
    assert set(lengths[:-1]) <= {max(1, size_bytes // 12)}
    usable = [at for at in range(rows.start, rows.stop) if values[at] is not None]
    positions = np.concatenate([block.positions for block in blocks] or [[]])
    assert positions.tolist() == usable
    excluded = np.concatenate([block.excluded_positions for block in blocks] or [[]])
    assert excluded.tolist() == sorted(set(range(rows.start, rows.stop)) - set(usable))
    found = np.concatenate([np.empty((0, 3)), *(block.rows for block in blocks)])
    np.testing.assert_array_equal(found, matrix[usable])


@pytest.mark.parametrize(
    ("after", "expected"),
    [([], (10, 20)), ([3, 9], (10, 20)), ([12, 15], (12, 20)), ([20], (20, 20)), ([99], (20, 20))],
)
def test_rows_after_the_first_query_are_read(after: list[int], expected: tuple[int, int]) -> None:
    assert rows_after(Rows(10, 20), np.array(after, np.int64)) == Rows(*expected)
