"""Small fragments that are read by one scan, compared with the rows that were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancestat.lake.snapshot import RowRange
from lancestat.spark import fragment_reader
from lancestat.spark.fragment_reader import (
    BATCH_BYTES,
    SMALL_ROWS,
    count_matches,
    decoded,
    pinned_dataset,
    read_range,
    read_ranges,
)
from tests.examples import sample
from tests.pins import pinned

COLUMNS = ("s", "id", "kind", "part", "blob")
PLAIN = COLUMNS[:3]
# The ids of rows by fragment, of which one is large.
SIZES = [*(7 * number % 40 + 1 for number in range(70)), SMALL_ROWS + 1, *range(1, 50)]
FRAGMENTS = list(pairwise(accumulate(SIZES, initial=0)))


def rows_of(first: int, last: int) -> pa.Table:
    """Rows of which each fragment has a dictionary of its own, also inside of a struct."""
    ids, each = range(first, last), 7 if last - first < 100 else 100
    kinds = pa.array(
        [None if n % 11 == 3 else f"k{n // each}" for n in ids], pa.string()
    ).dictionary_encode()
    inner = pa.array([f"p{n % 5}" for n in ids]).dictionary_encode()
    blobs = pa.array([b"b" * (n % 3) for n in ids], pa.large_binary())
    columns = {
        "id": pa.array(ids, pa.int64()),
        "s": pa.array([None if n % 7 == 0 else f"value {n}" for n in ids], pa.string()),
        "kind": kinds.cast(pa.dictionary(pa.int8(), pa.string())),
        "part": pa.StructArray.from_arrays([inner], ["name"]),
        "blob": blobs,
    }
    made = pa.table(columns)
    field = made.schema.field("blob").with_metadata({"lance-encoding:blob": "true"})
    return made.set_column(4, field, made["blob"])


@pytest.fixture(scope="module", params=[False, True], ids=["", "stable row ids"])
def uri(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """The fragments, some with deleted rows and one of them large, with an index on `id`."""
    uri = str(tmp_path_factory.mktemp("small") / "t.lance")
    for bounds in FRAGMENTS:
        lance.write_dataset(
            rows_of(*bounds), uri, mode="append", enable_stable_row_ids=request.param
        )
    dataset = lance.dataset(uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id % 13 = 4 or (id > 300 and id < 420)")
    return uri


def read(
    uri: str, columns: tuple[str, ...], **options: Any
) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows, and how many fragments each batch is of."""
    dataset = pinned_dataset(pinned(uri), {})
    ranges = tuple(RowRange(fragment.fragment_id) for fragment in dataset.get_fragments())
    pieces = list(read_ranges(dataset, ranges, columns, {}, **options))
    rows = [row for _, batch in pieces for row in decoded(batch).to_pylist()]
    return rows, [len(together) for together, _ in pieces]


Row = dict[str, Any]
FILTERS: dict[str | None, Callable[[Row], bool]] = {
    None: lambda row: True,
    "id % 3 = 1": lambda row: row["id"] % 3 == 1,
    "id = 250": lambda row: row["id"] == 250,
    "id in (5, 2000, 9000)": lambda row: row["id"] in (5, 2000, 9000),
    "kind = 'k3'": lambda row: row["kind"] == "k3",
    "s is null": lambda row: row["s"] is None,
    "id >= 5": lambda row: row["id"] >= 5,
    "id < 0": lambda row: False,
}


@cache
def written() -> list[tuple[int, Row]]:
    """The rows that are not deleted, each with its fragment."""
    return [
        (number, row)
        for number, bounds in enumerate(FRAGMENTS)
        for row in rows_of(*bounds).to_pylist()
        if row["id"] % 13 != 4 and not 300 < row["id"] < 420
    ]


def expected(columns: tuple[str, ...], filter: str | None) -> list[Row]:
    return [{name: row[name] for name in columns} for _, row in written() if FILTERS[filter](row)]


@pytest.mark.parametrize(
    ("columns", "filter"),
    sample([*product([PLAIN, ("id",), ("kind",), COLUMNS, ("part",), ("blob",)], FILTERS)], 29),
)
def test_rows_are_those_of_a_scan_of_the_table(
    uri: str, columns: tuple[str, ...], filter: str | None
) -> None:
    rows, together = read(uri, columns, filter=filter)
    assert rows == expected(columns, filter)
    is_united = set(columns) <= set(PLAIN)
    if len(rows) > 1_000:
        assert (max(together) > 20) == is_united
        assert 1 in together, "the large fragment is read by itself"


@pytest.mark.parametrize("filter", FILTERS)
def test_rows_are_counted_together(uri: str, filter: str | None) -> None:
    counts, together = read(uri, (), filter=filter)
    assert sum(count for row in counts for count in row.values()) == len(expected((), filter))
    assert filter is None or len(rows := together) < 40, rows


@pytest.mark.parametrize(
    ("most", "filter"),
    sample([*product([1, 7, 1_024], [text for text in FILTERS if text])], 8),
)
def test_matches_are_counted_by_fragment(
    uri: str, most: int, filter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragment_reader, "_MOST_TOGETHER", most)
    dataset, passing = lance.dataset(uri), FILTERS[filter]
    ids = [fragment.fragment_id for fragment in dataset.get_fragments()][::-1]
    matches = Counter(number for number, row in written() if passing(row))
    assert list(count_matches(dataset, ids, filter)) == [(id, matches[id]) for id in ids]


@pytest.mark.parametrize("filter", [None, "id % 3 = 1"])
@pytest.mark.parametrize("limit", [1, 30, 700])
def test_no_more_rows_are_read_than_asked_for(uri: str, limit: int, filter: str | None) -> None:
    rows, _ = read(uri, PLAIN, filter=filter, limit=limit)
    assert rows == expected(PLAIN, filter)[:limit]


@pytest.mark.parametrize("filter", [None, "id >= 0"])
def test_ranges_within_fragments_keep_their_bounds(uri: str, filter: str | None) -> None:
    dataset = pinned_dataset(pinned(uri), {})
    whole = tuple(RowRange(number) for number in range(12))
    rows = dataset.get_fragment(3).count_rows()
    parts = (*whole[:3], RowRange(3, 0, rows), RowRange(4, 1), *whole[5:9], RowRange(9, 0, 1))
    alone = [
        row
        for part in parts
        for batch in read_range(dataset, part, ("id",), {}, filter=filter)
        for row in batch["id"].to_pylist()
    ]
    pieces = read_ranges(dataset, parts, ("id",), {}, filter=filter)
    assert [row for _, batch in pieces for row in batch["id"].to_pylist()] == alone


def test_fragments_of_wide_rows_are_read_one_by_one(tmp_path: Path) -> None:
    """Also where only what was read tells that they are wide, as of strings that compress."""
    for first in range(0, 1_200, 200):
        text = ["x" * 10_000] * 200
        rows = pa.table({"id": range(first, first + 200), "text": text})
        lance.write_dataset(rows, str(tmp_path / "t.lance"), mode="append")
    rows, together = read(str(tmp_path / "t.lance"), ("id", "text"))
    assert [row["id"] for row in rows] == list(range(1_200))
    assert set(together) == {1}


@pytest.mark.parametrize("filter", [None, "id >= 0"])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_batches_of_rows_that_turn_out_wide_are_bounded(
    version: str, filter: str | None, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    sizes = [10] * 6 + [6_000] * 2
    for size in sizes:
        text = ["x" * (10_000 if size > 10 else 3)] * size
        rows = pa.table({"id": range(size), "text": text})
        lance.write_dataset(rows, uri, mode="append", data_storage_version=version)
    dataset = pinned_dataset(pinned(uri), {})
    ranges = tuple(RowRange(number) for number in range(len(sizes)))
    pieces = list(read_ranges(dataset, ranges, ("id", "text"), {}, filter=filter))
    read_ids = [id for _, batch in pieces for id in batch["id"].to_pylist()]
    assert read_ids == [id for size in sizes for id in range(size)]
    assert max(batch.nbytes for _, batch in pieces) <= BATCH_BYTES
    assert max(len(together) for together, _ in pieces) > 1
