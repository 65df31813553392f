from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancestat.lake.row_ranges import RowRange
from lancestat.spark import arrow_types as batch_size
from lancestat.spark import fragment_reader
from lancestat.spark.arrow_types import BATCH_BYTES, BATCH_ROWS
from lancestat.spark.fragment_reader import pinned_dataset, read_range
from tests.examples import sample
from tests.pins import pinned

ROWS = 60_000
WRITERS: dict[str, dict[str, Any]] = {
    "2.0": {"data_storage_version": "2.0"},
    "2.2": {"data_storage_version": "2.2"},
    "legacy": {"data_storage_version": "legacy"},
    "stable": {"enable_stable_row_ids": True},
}


def table(ids: pa.Array) -> pa.Table:
    """Matches of `cluster` are all together, those of `seventh` everywhere."""
    numbers = ids.to_numpy()
    return pa.table(
        {
            "id": ids,
            "seventh": numbers % 7,
            "cluster": numbers // 5_000,
            "s": pc.binary_join_element_wise("value", ids.cast(pa.string()), " "),
        }
    )


@pytest.fixture(scope="module", params=[*WRITERS, "indexed"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("filtered") / "t.lance")
    dataset = lance.write_dataset(
        table(pa.array(range(ROWS))),
        uri,
        max_rows_per_file=ROWS // 2,
        **WRITERS.get(request.param, {}),
    )
    dataset.delete("id % 10 = 3")
    if request.param == "indexed":
        lance.dataset(uri).create_scalar_index("seventh", "BTREE")
        lance.dataset(uri).create_scalar_index("cluster", "BTREE")
    return uri


@pytest.fixture(params=["windows as they are", "small windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small windows":
        monkeypatch.setattr(fragment_reader, "FIRST_WINDOW", 128)
        monkeypatch.setattr(fragment_reader, "LARGEST_WINDOW", 2_048)


FILTERS = {
    "seventh = 2": lambda id: id % 7 == 2,
    "seventh <> 2": lambda id: id % 7 != 2,
    "cluster in (0, 4, 11)": lambda id: id // 5_000 in (0, 4, 11),
    "seventh = 9": lambda id: False,
    "s = 'value 31000'": lambda id: id == 31_000,
    "seventh = 2 or id < 31000": lambda id: id % 7 == 2 or id < 31_000,
}


def read(
    uri: str, rows: RowRange, filter: str, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    dataset = pinned_dataset(pinned(uri), {})
    return read_range(dataset, rows, columns, {}, filter=filter)


@pytest.fixture(scope="module")
def physical(uri: str) -> list[list[int]]:
    """The ids by fragment and physical row, -1 where it is deleted."""
    physical_ids = []
    for fragment in lance.dataset(uri).get_fragments():
        rows = fragment.scanner(columns=["id"], with_row_address=True).to_table()
        first, ids = fragment.fragment_id << 32, [-1] * fragment.physical_rows
        for id, address in zip(rows["id"].to_pylist(), rows["_rowaddr"].to_pylist(), strict=True):
            ids[address - first] = id
        physical_ids.append(ids)
    return physical_ids


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(
    ("filter", "bounds"),
    sample([*product(FILTERS, [(0, None), (0, 7_000), (7_000, 15_001), (22_001, None)])], 7),
)
def test_ranges_of_filtered_rows_are_exact(
    uri: str, physical: list[list[int]], filter: str, bounds: tuple[int, int | None]
) -> None:
    start, count = bounds
    stop = None if count is None else start + count
    names = ["s", "id", "cluster", "seventh"]
    for fragment, ids in enumerate(physical):
        matching = [id for id in ids[start:stop] if id >= 0 and FILTERS[filter](id)]
        expected = table(pa.array(matching, pa.int64())).select(names)
        piece = RowRange(fragment, start, count)
        batches = list(read(uri, piece, filter, tuple(names)))
        counted = [record for batch in read(uri, piece, filter, ()) for record in batch.to_pylist()]

        assert [batch.schema.names for batch in batches] == [names] * len(batches)
        assert pa.Table.from_batches(batches, expected.schema).equals(expected)
        assert counted == ([{"rows": len(matching)}] if matching else [])


def test_matches_of_many_windows_come_in_few_batches(uri: str) -> None:
    batches = list(read(uri, RowRange(0), "seventh = 2", ("id",)))
    assert len(batches) == 1


@pytest.mark.usefixtures("windows")
def test_wide_values_are_looked_up_and_batches_stay_small(tmp_path: Path) -> None:
    wide = 100_000
    rows = pa.table({"id": range(2_000), "b": [bytes([id % 251]) * wide for id in range(2_000)]})
    lance.write_dataset(rows, tmp_path, max_rows_per_file=2_000)
    batches = list(read(str(tmp_path), RowRange(0), "id % 2 = 0", ("id", "b")))

    assert sum(batch.num_rows for batch in batches) == 1_000
    assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES
    assert max(batch.num_rows for batch in batches) < BATCH_ROWS


def test_values_that_grow_when_converted_make_batches_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batch_size, fragment_reader):
        monkeypatch.setattr(module, "BATCH_BYTES", 100_000)
    widths = [10] * 40_000 + [4_000] * 2_000
    rows = pa.table({"id": range(42_000), "s": ["y" * width for width in widths]})
    lance.write_dataset(rows, tmp_path)
    batches = list(read(str(tmp_path), RowRange(0), "id >= 0", ("id", "s")))

    assert [id for batch in batches for id in batch["id"].to_pylist()] == list(range(42_000))
    too_large = [batch for batch in batches if batch.nbytes > 4 * 100_000]
    assert len(too_large) <= 1, "one surprise, and then none"
