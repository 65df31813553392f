from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import RunError
from lancestat.lake.row_ranges import RowRange, ScanPartition
from lancestat.lake.snapshot import Pin
from lancestat.query.read import arrow_columns
from lancestat.query.read.arrow_columns import (
    ReadTask,
    decode_part,
    decode_scan,
    encode_part,
    encode_scan,
    read_part,
)
from lancestat.query.table import QueryScan
from lancestat.spark.failure import WorkerError, carried_error
from tests.pins import pinned

ALL = (RowRange(0), RowRange(1))
NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=timezone.utc)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    rows = {"id": range(100), "d": [Decimal(id).scaleb(-1) for id in range(100)]}
    lance.write_dataset(pa.table(rows), uri, max_rows_per_file=50)
    return uri


def ids(scan: QueryScan, part: ScanPartition) -> list[int]:
    return [row["0"] for batch in read_part(scan, part, {}) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "scan",
    [
        QueryScan(Pin("t.lance", 7, "0f"), ()),
        QueryScan(Pin("s3://b/ü\n.lance", 1, "a1"), ("a b", "c\n"), "`a b` > 'x\n'", 5, True),
    ],
)
def test_scans_are_one_line_of_text(scan: QueryScan) -> None:
    text = encode_scan(scan)
    assert "\n" not in text
    assert decode_scan(text) == scan


def test_parts_are_one_line_of_text() -> None:
    part = (RowRange(0), RowRange(3, 5), RowRange(4, 0, 7))
    assert "\n" not in encode_part(part)
    assert decode_part(encode_part(part)) == part


@pytest.mark.parametrize("filter", [None, "id >= 10"])
@pytest.mark.parametrize("limit", [0, 1, 49, 50, 51, 1_000])
def test_a_limit_holds_for_the_whole_part(uri: str, filter: str | None, limit: int) -> None:
    scan = QueryScan(pinned(uri), ("id",), filter, limit)
    assert ids(scan, ALL) == list(range(10 if filter else 0, 100))[:limit]


def test_columns_come_in_the_order_of_the_scan_and_under_their_positions(uri: str) -> None:
    [batch] = read_part(QueryScan(pinned(uri), ("d", "id"), "id = 3"), ALL, {})
    assert batch.to_pylist() == [{"0": Decimal("0.3"), "1": 3}]
    [batch] = read_part(QueryScan(pinned(uri), ("d",), "id = 3", narrow_decimals=True), ALL, {})
    assert batch.to_pylist() == [{"0": 3}]


def test_without_columns_rows_are_counted(uri: str) -> None:
    assert ids(QueryScan(pinned(uri), ()), ALL) == [50, 50]
    assert ids(QueryScan(pinned(uri), (), "id >= 90"), ALL) == [10]
    assert ids(QueryScan(pinned(uri), ()), (RowRange(1, 10, 5),)) == [5]


def test_a_value_that_spark_cannot_hold_names_its_column_and_fragment(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"u": pa.array([2**64 - 1], pa.uint64())}), tmp_path)
    with pytest.raises(RunError, match=r"fragment 0 of .* at version 1: column 'u': 1844") as bad:
        ids(QueryScan(pinned(tmp_path), ("u",)), (RowRange(0),))
    assert bad.value.code == "LS514"


def requests(*texts: str) -> Iterator[pa.RecordBatch]:
    for text in texts:
        yield pa.RecordBatch.from_arrays([pa.array([text.encode()])], ["value"])


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the task in this process without setting it up as a worker."""
    monkeypatch.setattr(arrow_columns, "prepare_worker", lambda threads: None)


@pytest.mark.usefixtures("process")
def test_a_task_returns_the_requested_rows(uri: str) -> None:
    text = encode_scan(QueryScan(pinned(uri), ("id",))) + "\n" + encode_part((RowRange(1, 48),))
    task = pickle.loads(pickle.dumps(ReadTask({"k": "v"})))
    rows = [row for batch in task(requests(text, text)) for row in batch.to_pylist()]
    assert rows == [{"0": 98}, {"0": 99}] * 2


@pytest.mark.usefixtures("process")
def test_a_failure_is_passed_as_text_without_secrets(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": [1]}), tmp_path)
    (tmp_path / "data" / dataset.get_fragments()[0].metadata.files[0].path).write_bytes(b"\0" * 100)
    text = encode_scan(QueryScan(pinned(tmp_path), ("id",))) + "\n" + encode_part((RowRange(0),))
    task = ReadTask({"secret_access_key": "hunter2-hunter2"})
    assert "hunter2" not in repr(task)
    with pytest.raises(WorkerError) as bad:
        list(task(requests(text)))
    error = carried_error(str(bad.value))
    assert error is not None
    assert (error.code, "fragment 0 at version 1" in error.message) == ("LS204", True)
    assert "hunter2" not in str(bad.value)
