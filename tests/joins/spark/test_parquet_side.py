"""Parquet files as a side of a join: places are positions in the order of the scan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lancestat.joins.search.metrics import L2
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.reader import ParquetScan, ParquetSide, RowGroup, VectorReader

COUNTS = (7, 0, 120, 1, 33)
ROWS = sum(COUNTS)
SCHEMA = pa.schema([("c0", pa.int64()), ("vector", pa.list_(pa.float32()))])


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> ParquetSide:
    """Files of several row groups, in another order than their names'."""
    folder = tmp_path_factory.mktemp("files")
    groups, row = [], 0
    for number, count in enumerate(COUNTS):
        ids = np.arange(row, row + count)
        vectors = [None if id % 5 == 3 else [float(id), -float(id)] for id in ids]
        column = pa.array(vectors, pa.list_(pa.float32()))
        path = str(folder / f"{9 - number}.parquet")
        pq.write_table(pa.table({"key": ids, "emb": column}), path, row_group_size=10)
        metadata = pq.read_metadata(path)
        groups.append(
            tuple(
                RowGroup(path, number, metadata.row_group(number).num_rows)
                for number in range(metadata.num_row_groups)
            )
        )
        row += count
    scan = ParquetScan(tuple(groups), ("key", "emb"), SCHEMA, (1, 1))
    return ParquetSide(scan, "vector", ("c0",))


def test_all_rows_are_those_of_all_row_groups(side: ParquetSide) -> None:
    assert side.all_rows == Rows(0, ROWS)


@settings(deadline=None)
@given(st.integers(0, ROWS), st.integers(0, ROWS))
def test_consecutive_rows_are_read_by_their_places(side: ParquetSide, one: int, other: int) -> None:
    rows = Rows(min(one, other), max(one, other))

    table = pa.Table.from_batches(side.read(rows, ("c0",)), pa.schema([SCHEMA.field("c0")]))

    assert table.column("c0").to_pylist() == list(range(rows.start, rows.stop))


@settings(deadline=None)
@given(st.sets(st.integers(0, ROWS - 1)))
def test_rows_are_taken_by_their_places(side: ParquetSide, places: set[int]) -> None:
    wanted = np.array(sorted(places), np.int64)

    table = side.take(wanted, ("vector", "c0"))

    assert table.column_names == ["vector", "c0"]
    assert table.column("c0").to_pylist() == sorted(places)


@settings(deadline=None)
@given(st.integers(0, ROWS), st.integers(0, ROWS), st.integers(1, 50))
def test_blocks_hold_matchable_rows_up_to_their_size(
    side: ParquetSide, one: int, other: int, size: int
) -> None:
    rows = Rows(min(one, other), max(one, other))
    reader = VectorReader(side, 2, L2, "right")

    blocks = list(reader.blocks(rows, size_bytes=size * 8))

    places = [place for block in blocks for place in block.positions.tolist()]
    assert places == [place for place in range(rows.start, rows.stop) if place % 5 != 3]
    assert sum(block.excluded for block in blocks) == len(rows) - len(places)
    assert all(len(block.positions) + block.excluded <= size for block in blocks)
    assert all((block.rows[:, 0] == block.positions).all() for block in blocks)


class Places(VectorReader):
    """Takes the places themselves for vectors."""

    def take(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        return places.astype(np.float32)[:, None]


@settings(deadline=None)
@given(st.integers(1, 2 * ROWS), st.integers(1, 20))
def test_a_sample_is_spread_evenly(side: ParquetSide, count: int, together: int) -> None:
    sample = Places(side, 2, L2, "right").sample(count, together)[:, 0].astype(int).tolist()

    assert sample == sorted(set(sample))
    assert len(sample) <= count
    if count >= ROWS + together:
        assert sample == list(range(ROWS))
    elif count >= 2 * together:
        assert sample[0] == 0
        assert sample[-1] >= min(count, ROWS) - 1
        assert max(np.diff(sample), default=0) <= ROWS // (count // together - 1) + 1
