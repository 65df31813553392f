"""Rows at positions of a scan, of datasets with deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import take_rows

ROWS = 4_000
# Of eight fragments: one as it was, others with few deleted rows, many, and all; one is gone.
DELETED = (
    "(id >= 500 and id < 1000 and id % 50 = 7) or (id >= 1000 and id < 1500 and id % 3 > 0) "
    "or (id >= 2000 and id < 2500) or id in (0, 3999)"
)


def table(path: Path, *, deleted: str | None, stable_ids: bool = False) -> lance.LanceDataset:
    rows = pa.table({"id": range(ROWS), "text": [f"row {n}" for n in range(ROWS)]})
    dataset = lance.write_dataset(
        rows, str(path), max_rows_per_file=500, enable_stable_row_ids=stable_ids
    )
    if deleted:
        dataset.delete(deleted)
    return lance.dataset(str(path))


def positions(live: int) -> list[list[int]]:
    chosen = np.random.default_rng(1)
    some = chosen.choice(live, 300).tolist()
    return [some, sorted(some), sorted(some, reverse=True), [], [0], [live - 1], list(range(live))]


@pytest.mark.parametrize("stable_ids", [False, True])
@pytest.mark.parametrize("deleted", [None, DELETED])
def test_rows_are_those_of_a_scan_at_these_positions(
    tmp_path: Path, stable_ids: bool, deleted: str | None
) -> None:
    dataset = table(tmp_path / "t.lance", deleted=deleted, stable_ids=stable_ids)
    scanned = dataset.to_table()
    for wanted in positions(len(scanned)):
        expected = scanned.take(pa.array(wanted, pa.int64()))
        assert take_rows(dataset, wanted).equals(expected)
        assert take_rows(dataset, np.array(wanted, int), ["text"]).equals(expected.select(["text"]))
    own = dataset.to_table(columns=["text", "_rowaddr"]).take([5, 990])
    assert take_rows(dataset, [5, 990], ["text", "_rowaddr"]).equals(own)


def test_lance_looks_for_no_position_among_deleted_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each it would go through the list of those of its fragment, again and again."""
    dataset = table(tmp_path / "t.lance", deleted=DELETED)
    scanned = dataset.to_table(columns=["id"])
    take, found = lance.LanceDataset.take, list[int]()

    def taken(self: lance.LanceDataset, rows: Sequence[int], columns: list[str]) -> pa.Table:
        rows_taken = take(self, rows, columns=columns)
        found.extend(rows_taken.column("id").to_pylist())
        return rows_taken

    monkeypatch.setattr(lance.LanceDataset, "take", taken)
    everything = range(len(scanned))
    assert take_rows(dataset, everything, ["id"]).equals(scanned)
    assert set(found) == {*range(1500, 2000), *range(2500, 3500)}


BLOB = pa.field("value", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


def categories(start: int) -> pa.Array:
    """As pandas may have them: a null among the values, which differ from fragment to fragment."""
    values = [f"{start} {n}" if n % 9 else None for n in range(50)]
    return pa.array(values).dictionary_encode(null_encoding="encode")


def structs(start: int) -> pa.Array:
    return pa.StructArray.from_arrays([categories(start)], ["category"])


def blobs(start: int) -> pa.Array:
    return pa.array([b"b" * (start + n) for n in range(50)], BLOB.type)


def in_structs(start: int) -> pa.Array:
    return pa.StructArray.from_arrays([blobs(start)], fields=[BLOB])


@pytest.mark.parametrize("values", [categories, structs, blobs, in_structs])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_dictionaries_and_blobs_are_those_of_a_scan(
    tmp_path: Path, version: str, values: Callable[[int], pa.Array]
) -> None:
    path = str(tmp_path / "t.lance")
    for start in (0, 50, 100):
        array = values(start)
        field = BLOB if values is blobs else pa.field("value", array.type)
        schema = pa.schema([pa.field("id", pa.int64()), field])
        rows = pa.table([pa.array(range(start, start + 50)), array], schema=schema)
        lance.write_dataset(rows, path, mode="append", data_storage_version=version)
    lance.dataset(path).delete("id % 7 = 3 and id < 100")
    dataset = lance.dataset(path)
    scanned = dataset.to_table()
    for wanted in ([3, 40, 60, 120, 60, 0], [60, 45], [0], []):
        expected = [scanned.column("value")[place].as_py() for place in wanted]
        assert take_rows(dataset, wanted, ["value"]).column("value").to_pylist() == expected
        assert take_rows(dataset, wanted).column("value").to_pylist() == expected


@pytest.mark.parametrize("wanted", [[3, 40, 3], []])
def test_rows_without_columns_are_counted(tmp_path: Path, wanted: list[int]) -> None:
    dataset = table(tmp_path / "t.lance", deleted=DELETED)
    assert take_rows(dataset, wanted, []).num_rows == len(wanted)
