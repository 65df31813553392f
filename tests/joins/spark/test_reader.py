"""Vectors, columns and places of rows, read from Lance datasets and from Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lancestat.joins.search.metrics import L2
from lancestat.joins.search.vectors import Vectors
from lancestat.joins.search.work import PinnedTable, RightContent, RightFragment, Rows
from lancestat.joins.spark.ivf import RowPlaces
from lancestat.joins.spark.reader import (
    ParquetScan,
    ParquetSide,
    RowGroup,
    VectorReader,
    addresses_at,
    positions_at,
    rows_after,
)
from lancestat.joins.spark.sides import opened_table
from lancestat.lake.open import snapshot

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

    def look_up(self, positions: NDArray[np.int64]) -> Vectors:
        return Vectors(positions.astype(np.float32)[:, None], np.ones(len(positions), np.bool_))


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
    side = opened_table(PinnedTable.at(snapshot(dataset, dataset.uri)), "v", (), {}, "left")
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
    side = opened_table(PinnedTable.at(seen), "v", ("id",), {}, "right", filter)
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

    wanted = np.append(shuffled, [-1, -1]).reshape(2, -1) if len(shuffled) % 2 == 0 else shuffled
    found = addresses_at(side, wanted)
    assert found.tolist() == np.where(wanted < 0, -1, addresses[wanted]).tolist()
    assert positions_at(side, found).tolist() == wanted.tolist()
    assert addresses_at(side, positions[:0]).tolist() == positions_at(side, positions[:0]).tolist()
