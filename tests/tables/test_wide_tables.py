"""Tables of many columns, which are read some columns at a time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.spark import fragment_reader
from lancestat.spec.model import CommonValues
from lancestat.tables import work_items
from lancestat.tables.action import Scan
from lancestat.tables.planner import work_of
from lancestat.tables.statistics import kernel
from lancestat.tables.statistics.kernel import Request
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.stored import TableRecord, table_records
from lancestat.tables.wire import unstamped
from lancestat.tables.work_items import most_divisions
from tests.runs.world import World
from tests.state.fresh import FreshState

ROWS, COLUMNS, BATCH_BYTES = 4_000, 48, 1 << 16


def wide(rows: int) -> pa.Table:
    """Numbers and strings with nulls; the last column has values as wide as all others together."""
    columns: dict[str, list[object]] = {}
    for number in range(COLUMNS - 1):
        values = (None if n % 7 == number % 7 else n * (number + 1) % 1_009 for n in range(rows))
        as_text = number % 3 == 0
        columns[f"c{number:02}"] = [f"v{n}" if as_text and n else n or None for n in values]
    columns["id"] = list(range(rows))
    columns["long"] = [f"{n:0250}" for n in range(rows)]
    return pa.table(columns)


def record_of(path: Path) -> TableRecord:
    """Return the record of a run from scratch."""
    world = World(
        path,
        state=FreshState(),
        histogram=True,
        groups=(("c01", "c40"), ("c00", "long")),
        keys=(("id",), ("c02", "c03")),
        common_values=CommonValues(8, ("c05", "c30")),
    )
    assert world.run(full_refresh=True).status == "success"
    [record] = table_records(world.state).values()
    return record


def told(record: TableRecord) -> tuple[object, ...]:
    """Return what a record says of the rows."""
    return unstamped(record.values), record.bounds, record.kept, record.keys, record.rows


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[frozenset[str], int]]:
    """The columns that the kernel gets together, and the rows of each batch."""
    seen: list[tuple[frozenset[str], int]] = []
    reduce = kernel.reduce_batches

    def reduced(
        batches: Iterable[pa.RecordBatch], schema: pa.Schema, requests: Mapping[str, Request]
    ) -> dict[str, ColumnPartial]:
        def noted() -> Iterable[pa.RecordBatch]:
            for batch in batches:
                seen.append((frozenset(batch.schema.names), batch.num_rows))
                assert batch.nbytes < 2 * fragment_reader.BATCH_BYTES
                yield batch

        return reduce(noted(), schema, requests)

    monkeypatch.setattr(kernel, "reduce_batches", reduced)
    return seen


@pytest.mark.parametrize("fragment_rows", [ROWS, 100])
def test_statistics_do_not_depend_on_how_many_columns_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fragment_rows: int
) -> None:
    path = tmp_path / "wide.lance"
    lance.write_dataset(wide(ROWS), str(path), max_rows_per_file=fragment_rows)
    lance.dataset(str(path)).delete("id % 9 = 4")
    at_once = record_of(path)
    monkeypatch.setattr(fragment_reader, "BATCH_BYTES", BATCH_BYTES)
    assert told(record_of(path)) == told(at_once)


def test_wide_rows_are_read_in_few_batches_of_some_columns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: list[tuple[frozenset[str], int]],
) -> None:
    path = tmp_path / "wide.lance"
    dataset = lance.write_dataset(wide(ROWS), str(path))
    size = dataset.to_table().nbytes
    monkeypatch.setattr(fragment_reader, "BATCH_BYTES", size // 4)
    assert World(path).run().status == "success"
    names = [names for names, _ in batches]
    assert len(set(names)) > 1
    assert frozenset().union(*names) == set(dataset.schema.names)
    assert sum(map(len, set(names))) == len(dataset.schema), "each column is read once"
    assert all(rows == ROWS for names, rows in batches if "long" not in names)


def test_few_columns_are_read_together(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: list[tuple[frozenset[str], int]],
) -> None:
    few = wide(ROWS).select(["id", "long", "c00", "c01"])
    assert most_divisions(few.num_columns) == 1
    lance.write_dataset(few, str(tmp_path / "few.lance"))
    monkeypatch.setattr(fragment_reader, "BATCH_BYTES", few.nbytes // 4)
    assert World(tmp_path / "few.lance").run().status == "success"
    assert {names for names, _ in batches} == {frozenset(few.column_names)}
    assert sum(rows for _, rows in batches) == ROWS


@pytest.mark.parametrize(
    ("fragments", "bytes_each", "work"),
    [
        (4_000, 10_000, 40_000_000),
        (4_001, 10_000, 4_001 * 25 * 40_000),
        (4_001, 2_000_000, 8_002_000_000),
    ],
)
def test_very_many_partials_are_more_work_than_their_bytes(
    fragments: int, bytes_each: int, work: int
) -> None:
    """As in the docs: of more than 100,000 columns of fragments each counts as 40 kB."""
    columns = frozenset(f"{n}:bigint" for n in range(25))
    scans = [Scan(n, b"", columns, 50, bytes_each) for n in range(fragments)]
    assert work_of(scans) == work


def test_small_fragments_of_long_strings_are_read_some_columns_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type of a column says little about its width, sizes of files more."""
    most = 1 << 19
    monkeypatch.setattr(fragment_reader, "BATCH_BYTES", most)
    monkeypatch.setattr(work_items, "_BYTES_AT_ONCE", most)
    chosen = random.Random(1)
    texts = {f"c{n:02}": [chosen.randbytes(500).hex() for _ in range(128)] for n in range(COLUMNS)}
    lance.write_dataset(pa.table(texts), str(tmp_path / "t.lance"), max_rows_per_file=2)
    sizes: list[int] = []
    read_fragments = fragment_reader.read_fragments

    def read(*arguments: object) -> tuple[pa.RecordBatch, list[int]]:
        rows, lengths = read_fragments(*arguments)
        sizes.append(rows.nbytes)
        return rows, lengths

    monkeypatch.setattr(fragment_reader, "read_fragments", read)
    assert World(tmp_path / "t.lance").run().status == "success"
    assert sum(sizes) > 128 * COLUMNS * 1_000
    assert max(sizes) <= most
