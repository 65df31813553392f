from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.dataset import serialize_row_addrs

from lancestat.errors import LakeError
from lancestat.lake.snapshot import RowRange
from lancestat.spark import fragment_reader
from lancestat.spark.fragment_reader import (
    BATCH_BYTES,
    BATCH_ROWS,
    pinned_dataset,
    read_fragments,
    read_range,
    row_mask,
)
from tests.examples import sample
from tests.pins import pinned

MIB = 1 << 20


def ids(dataset: lance.LanceDataset, rows: RowRange, row_bytes: int = 8) -> list[int]:
    batches = read_range(dataset, rows, ("id",), {}, row_bytes=row_bytes)
    return [id for batch in batches for id in batch["id"].to_pylist()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    uri = tmp_path_factory.mktemp("reader") / "t.lance"
    written_dataset = lance.write_dataset(pa.table({"id": range(3_000), "s": ["x"] * 3_000}), uri)
    written_dataset.delete("id % 5 = 0")
    return pinned_dataset(pinned(uri, written_dataset.version), {})


LIVE = [id for id in range(3_000) if id % 5]


@given(st.lists(st.integers(0, 2_400), max_size=6), st.integers(0, 100_000_000))
@settings(deadline=None)
def test_ranges_of_a_fragment_are_its_live_rows_in_order(
    dataset: lance.LanceDataset, cuts: list[int], row_bytes: int
) -> None:
    edges = [0, *sorted(set(cuts) - {0}), None]
    ids_read: list[int] = []
    for start, end in pairwise(edges):
        assert start is not None
        count = None if end is None else end - start
        ids_read += ids(dataset, RowRange(0, start, count), row_bytes)
    assert ids_read == LIVE


def test_fragments_that_are_read_at_once_come_as_they_are_asked_for(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": range(12)}), tmp_path, max_rows_per_file=3)
    dataset = lance.dataset(tmp_path)
    dataset.delete("id in (4, 9, 10)")
    rows, lengths = read_fragments(lance.dataset(tmp_path), [2, 0, 3, 1], ["id"], {})
    assert rows.column("id").to_pylist() == [6, 7, 8, 0, 1, 2, 11, 3, 5]
    assert lengths == [3, 3, 1, 2]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_fragments_that_are_read_at_once_may_have_other_dictionaries(
    tmp_path: Path, version: str
) -> None:
    """More values together than 8 bits number, and nulls that format 2.0 has in dictionaries."""
    type = pa.dictionary(pa.int8(), pa.string())
    written: list[str | None] = []
    for part in range(3):
        values = [*(f"{part}-{number}" for number in range(100)), None]
        rows = pa.table({"d": pa.array(values).dictionary_encode().cast(type)})
        lance.write_dataset(rows, tmp_path, mode="append", data_storage_version=version)
        written += values
    rows, lengths = read_fragments(lance.dataset(tmp_path), [0, 1, 2], ["d"], {})
    assert rows.column("d").to_pylist() == written
    assert lengths == [101, 101, 101]


@pytest.mark.parametrize(
    ("count", "limit", "sizes"),
    [
        (None, None, [BATCH_ROWS, 4_464]),
        (60_000, None, [60_000]),
        (None, 300, [300]),
        (200, None, [200]),
    ],
)
def test_narrow_rows_come_in_full_batches(
    tmp_path: Path, count: int | None, limit: int | None, sizes: list[int]
) -> None:
    """What tells how wide they are is no batch of its own."""
    lance.write_dataset(pa.table({"id": range(70_000)}), tmp_path)
    dataset = pinned_dataset(pinned(tmp_path, 1), {})
    batches = list(read_range(dataset, RowRange(0, 0, count), ("id",), {}, limit=limit))
    assert [batch.num_rows for batch in batches] == sizes
    rows = [id for batch in batches for id in batch["id"].to_pylist()]
    assert rows == list(range(sum(sizes)))


def test_batches_of_wide_values_stay_small(tmp_path: Path) -> None:
    wide = pa.array([bytes([i]) * MIB for i in range(40)] * 2, pa.large_binary())
    lance.write_dataset(pa.table({"b": wide}), tmp_path)
    dataset = pinned_dataset(pinned(tmp_path, 1), {})
    batches = list(read_range(dataset, RowRange(0), ("b",), {}, row_bytes=MIB))
    sizes = [(batch.num_rows, batch.nbytes) for batch in batches]

    assert {batch.schema.field("b").type for batch in batches} == {pa.large_binary()}
    assert sum(rows for rows, _ in sizes) == 80
    assert max(nbytes for _, nbytes in sizes) <= BATCH_BYTES + MIB


@pytest.mark.parametrize("storage_version", ["2.0", "2.1"])
def test_blobs_are_read_as_their_bytes(tmp_path: Path, storage_version: str) -> None:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = [b"", b"x" * 100_000, None, b"yy"]
    rows = pa.table([blobs], schema=pa.schema([field]))
    lance.write_dataset(rows, tmp_path, data_storage_version=storage_version)
    dataset = pinned_dataset(pinned(tmp_path, 1), {})
    batches = list(read_range(dataset, RowRange(0), ("b",), {}, row_bytes=25_000))
    read = [value for batch in batches for value in batch["b"].to_pylist()]

    assert {batch.schema.field("b").type for batch in batches} == {pa.large_binary()}
    assert read == blobs


def test_few_datasets_stay_open(tmp_path: Path) -> None:
    for number in range(fragment_reader.OPEN_DATASETS + 2):
        uri = str(tmp_path / f"{number}.lance")
        lance.write_dataset(pa.table({"id": [number]}), uri)
        dataset = pinned_dataset(pinned(uri, 1), {})
        assert pinned_dataset(pinned(uri, 1), {}) is dataset
    assert len(fragment_reader._opened) == fragment_reader.OPEN_DATASETS


@pytest.mark.parametrize("filter", [None, "id >= 0"])
def test_values_that_grow_when_converted_make_batches_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filter: str | None
) -> None:
    monkeypatch.setattr(fragment_reader, "BATCH_BYTES", 100_000)
    widths = [10] * 40_000 + [4_000] * 2_000
    rows = pa.table({"id": range(42_000), "s": ["y" * width for width in widths]})
    lance.write_dataset(rows, tmp_path)
    dataset = pinned_dataset(pinned(tmp_path), {})
    read = read_range(dataset, RowRange(0), ("id", "s"), {}, filter=filter, row_bytes=10)
    batches = list(read)

    assert [id for batch in batches for id in batch["id"].to_pylist()] == list(range(42_000))
    too_large = [batch for batch in batches if batch.nbytes > 4 * 100_000]
    assert len(too_large) <= 1, "one surprise, and then none"


@pytest.mark.parametrize("name", ["select", "a b", "Ünï", 'quo"te', "UPPER", "1x"])
def test_odd_column_names_can_be_read(tmp_path: Path, name: str) -> None:
    lance.write_dataset(pa.table({name: [1, 2], "other": [3, 4]}), tmp_path)
    batches = read_range(pinned_dataset(pinned(tmp_path, 1), {}), RowRange(0), (name,), {})
    assert [batch[name].to_pylist() for batch in batches] == [[1, 2]]


@pytest.mark.parametrize("name", ["back`tick", ""])
def test_a_name_that_lance_cannot_read_is_refused(tmp_path: Path, name: str) -> None:
    lance.write_dataset(pa.table({name: [1, 2], "other": [3, 4]}), tmp_path)
    dataset = pinned_dataset(pinned(tmp_path, 1), {})
    with pytest.raises(ValueError, match="No field named"):
        dataset.to_table(columns=[name])

    with pytest.raises(LakeError, match="has a name that Lance cannot read") as bad:
        read_range(dataset, RowRange(0), ("other", name), {})
    assert bad.value.code == "LS203"


def test_a_damaged_file_names_its_fragment(tmp_path: Path) -> None:
    written_dataset = lance.write_dataset(
        pa.table({"id": range(100)}), tmp_path, max_rows_per_file=50
    )
    broken = tmp_path / "data" / written_dataset.get_fragments()[1].metadata.files[0].path
    broken.write_bytes(b"\0" * broken.stat().st_size)
    dataset = pinned_dataset(pinned(tmp_path, 1), {})

    assert ids(dataset, RowRange(0)) == list(range(50))
    with pytest.raises(LakeError, match="fragment 1 at version 1") as bad:
        ids(dataset, RowRange(1))
    assert bad.value.code == "LS204"


def test_a_missing_file_and_a_missing_fragment_have_different_messages(tmp_path: Path) -> None:
    written_dataset = lance.write_dataset(pa.table({"id": range(100)}), tmp_path)
    (tmp_path / "data" / written_dataset.get_fragments()[0].metadata.files[0].path).unlink()
    dataset = pinned_dataset(pinned(tmp_path, 1), {})

    with pytest.raises(
        LakeError, match=r"fragment 0 at version 1: a data file of .* is missing"
    ) as bad:
        ids(dataset, RowRange(0))
    assert bad.value.code == "LS204"
    assert "restore it with Lance" in (bad.value.hint or "")
    with pytest.raises(LakeError, match="has no fragment 7 at version 1") as bad:
        ids(dataset, RowRange(7))
    assert bad.value.code == "LS204"


def test_a_version_that_is_gone_is_refused(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1]}), tmp_path)
    with pytest.raises(LakeError) as bad:
        pinned_dataset(replace(pinned(tmp_path), version=9), {})
    assert bad.value.code == "LS206"


def test_a_recreated_dataset_of_the_same_version_is_reopened(tmp_path: Path) -> None:
    values = []
    for number in (1, 2):
        shutil.rmtree(tmp_path / "t.lance", ignore_errors=True)
        lance.write_dataset(pa.table({"a": [number]}), tmp_path / "t.lance")
        opened = pinned_dataset(pinned(tmp_path / "t.lance"), {})
        values.append(opened.to_table().to_pydict())
    assert values == [{"a": [1]}, {"a": [2]}]


def test_files_of_a_dropped_dataset_are_not_damage(tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), uri)
    dataset = pinned_dataset(pinned(uri), {})
    shutil.rmtree(uri)
    lance.write_dataset(pa.table({"id": [7]}), uri)
    with pytest.raises(LakeError, match=r"^LS209 .*has been replaced: its version 1 is not"):
        ids(dataset, RowRange(0))


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
    masked = lance.write_dataset(
        table(pa.array(range(ROWS))),
        uri,
        max_rows_per_file=ROWS // 2,
        **WRITERS.get(request.param, {}),
    )
    masked.delete("id % 10 = 3")
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
    masked = pinned_dataset(pinned(uri), {})
    return read_range(masked, rows, columns, {}, filter=filter)


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


BLOCK = 65_536


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    rows = pa.table({"id": range(12 * BLOCK)})
    written_dataset = lance.write_dataset(
        rows, tmp_path_factory.mktemp("masked") / "t.lance", max_rows_per_file=6 * BLOCK
    )
    written_dataset.delete("id % 10 = 3")
    return lance.dataset(written_dataset.uri)


@pytest.mark.parametrize("fragment", [0, 1])
@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 1),
        (3, 4),
        (BLOCK - 1, BLOCK + 1),
        (BLOCK, 2 * BLOCK),
        (7, 3 * BLOCK),
        (7, 3 * BLOCK + 1),
        (BLOCK + 9, 5 * BLOCK - 3),
        (0, 6 * BLOCK),
    ],
)
def test_a_mask_selects_the_rows_of_the_range(
    masked: lance.LanceDataset, fragment: int, start: int, stop: int
) -> None:
    first = 6 * BLOCK * fragment
    scanner = masked.scanner(
        fragments=[masked.get_fragment(fragment)],
        columns=["id"],
        row_addr_allowlist=row_mask(fragment, start, stop),
    )
    ids = scanner.to_table()["id"].to_pylist()
    assert ids == [id for id in range(first + start, first + stop) if id % 10 != 3]


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (9, 2 * BLOCK), (1, 5 * BLOCK)])
def test_a_mask_equals_one_written_by_lance(
    masked: lance.LanceDataset, start: int, stop: int
) -> None:
    theirs = serialize_row_addrs(range((1 << 32) + start, (1 << 32) + stop))
    ours = row_mask(1, start, stop)
    read = [
        masked.scanner(columns=["id"], row_addr_allowlist=mask).to_table()
        for mask in (ours, theirs)
    ]
    assert read[0] == read[1]
    assert len(ours) < 200
