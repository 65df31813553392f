from __future__ import annotations

import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.lake.snapshot import (
    QUERY,
    Fragment,
    RowRange,
    ScanPartition,
    count_rows,
    split_fragments,
)

MIB = 1 << 20


def fragment(id: int, rows: int, deleted: int = 0) -> Fragment:
    return Fragment(id, rows + deleted, deleted, (), None, ())


def rows_of(parts: list[ScanPartition], counts: dict[int, int]) -> list[tuple[int, int, int]]:
    """All ranges as (fragment, first, last), in the order of the parts."""
    rows = []
    for part in parts:
        for piece in part:
            end = counts[piece.fragment_id]
            stop = end if piece.count is None else piece.offset + piece.count
            rows.append((piece.fragment_id, piece.offset, stop))
    return rows


def joined(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    merged: list[tuple[int, int, int]] = []
    for id, start, stop in ranges:
        if merged and merged[-1][0] == id:
            assert merged[-1][2] == start, "no gap, no overlap"
            start = merged.pop()[1]
        merged.append((id, start, stop))
    return merged


tables = st.lists(
    st.tuples(st.integers(0, 3_000_000), st.integers(0, 1_000)), min_size=0, max_size=30
)


@given(tables, st.floats(0, 10_000), st.integers(0, 64), st.booleans())
def test_every_row_is_in_one_part_and_in_order(
    sizes: list[tuple[int, int]], row_bytes: float, cores: int, is_filtered: bool
) -> None:
    fragments = [fragment(3 * id, rows, deleted) for id, (rows, deleted) in enumerate(sizes)]
    counts = {
        data_fragment.id: data_fragment.physical_rows if is_filtered else data_fragment.rows
        for data_fragment in fragments
        if data_fragment.rows
    }
    parts = split_fragments(fragments, row_bytes=row_bytes, cores=cores, is_filtered=is_filtered)

    assert joined(rows_of(parts, counts)) == [(id, 0, rows) for id, rows in counts.items()]
    assert all(part for part in parts)
    last = {piece.fragment_id: piece for part in parts for piece in part}
    assert all(piece.count is None for piece in last.values()), "nothing after it can be missed"


@given(tables, st.integers(0, 5_000_000), st.integers(1, 8))
def test_a_limit_keeps_the_first_rows(sizes: list[tuple[int, int]], limit: int, cores: int) -> None:
    fragments = [fragment(id, rows, deleted) for id, (rows, deleted) in enumerate(sizes)]
    counts = {data_fragment.id: data_fragment.rows for data_fragment in fragments}
    parts = split_fragments(fragments, row_bytes=100, cores=cores, limit=limit)

    before = [0, *accumulate(counts.values())]
    expected = [
        (id, 0, min(rows, limit - before[id]))
        for id, rows in counts.items()
        if rows and before[id] < limit
    ]
    assert joined(rows_of(parts, counts)) == expected


def test_a_limit_is_ignored_when_rows_are_filtered() -> None:
    parts = split_fragments(
        [fragment(0, 1000), fragment(1, 1000)], row_bytes=1, cores=2, is_filtered=True, limit=10
    )
    assert parts == [(RowRange(0), RowRange(1))]


def test_a_table_of_many_small_fragments_takes_few_parts() -> None:
    parts = split_fragments([fragment(id, 100) for id in range(400)], row_bytes=100, cores=4)
    assert len(parts) == 4 * QUERY.per_core
    assert {len(part) for part in parts} == {50}
    assert all(piece == RowRange(piece.fragment_id) for part in parts for piece in part)


def test_a_small_table_is_one_part() -> None:
    assert len(split_fragments([fragment(0, 1000)], row_bytes=1000, cores=16)) == 1


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("size", [1, 20, 100, 1_000, 30_000, 500_000])
def test_parts_are_balanced_and_bounded(cores: int, size: int) -> None:
    fragments = [fragment(id, 1_000_000) for id in range(3)]
    row_bytes = size * MIB / 3_000_000
    parts = split_fragments(fragments, row_bytes=row_bytes, cores=cores)
    counts = dict.fromkeys(range(3), 1_000_000)
    weights = [
        sum(stop - start for _, start, stop in rows_of([part], counts)) * row_bytes
        for part in parts
    ]

    assert max(weights) <= QUERY.heaviest * 1.02 or len(parts) == 1
    assert max(weights) <= 1.3 * sum(weights) / len(parts) + MIB, "no task is much longer"
    assert len(parts) <= max(1, size * MIB // QUERY.lightest + 1)
    if size * MIB > QUERY.lightest * cores * QUERY.per_core:
        assert len(parts) % cores == 0, "no core waits in the last round"


def test_fragments_are_cut_only_where_that_balances() -> None:
    # Four parts of two fragments each but for a few rows.
    fragments = [fragment(id, 1_000_000 + id) for id in range(8)]
    parts = split_fragments(fragments, row_bytes=100, cores=2)
    assert parts == [(RowRange(2 * id), RowRange(2 * id + 1)) for id in range(4)]


def test_an_empty_table_has_no_parts() -> None:
    assert split_fragments([], row_bytes=8, cores=2) == []
    assert split_fragments([fragment(0, 0, deleted=10)], row_bytes=8, cores=2) == []
    assert split_fragments([fragment(0, 10)], row_bytes=8, cores=2, limit=0) == []


COUNTING = """
import sys, threading, time
import lance
from lancestat.lake.snapshot import count_rows

uri, until = sys.argv[1], time.monotonic() + 3

def counts():
    while time.monotonic() < until:
        for fragment in lance.dataset(uri).get_fragments():
            count_rows(fragment, "parity = 1")

def reads():
    while time.monotonic() < until:
        for fragment in lance.dataset(uri).get_fragments():
            fragment.scanner(columns=["id"]).to_table()

threads = [threading.Thread(target=target) for target in (counts, reads, reads, reads)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    ids = list(range(400))
    table = pa.table({"id": ids, "parity": [id % 2 for id in ids]})
    lance.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=100)
    return str(tmp_path / "t.lance")


def test_live_rows_that_pass_are_counted(uri: str) -> None:
    dataset = lance.dataset(uri)
    dataset.delete("id in (0, 1, 3, 150)")
    counts = [
        (count_rows(part), count_rows(part, "parity = 1")) for part in dataset.get_fragments()
    ]
    assert counts == [(97, 48), (99, 50), (100, 50), (100, 50)]


@pytest.mark.whole
def test_counting_does_not_block_threads_that_scan(uri: str) -> None:
    # As many threads as Lance has on two processors.
    environment = {**os.environ, "TOKIO_WORKER_THREADS": "2"}
    command = [sys.executable, "-c", COUNTING, uri]
    subprocess.run(command, check=True, timeout=60, env=environment)
