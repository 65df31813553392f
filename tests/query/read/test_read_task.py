from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors.base import RunError
from lancestat.lake.snapshot import Pin, RowRange, ScanPartition
from lancestat.query.read import arrow_columns
from lancestat.query.read.arrow_columns import (
    QueryScan,
    ReadTask,
    decode_part,
    encode_part,
    for_spark,
    read_part,
)
from lancestat.spark.failure import WorkerError, carried_error
from tests.pins import pinned
from tests.query.read.arrow_values import CASES, Case

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
    text = scan.encode()
    assert "\n" not in text
    assert QueryScan.decode(text) == scan


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


def test_of_fragments_that_are_read_together_the_one_is_named(tmp_path: Path) -> None:
    for value in [*range(7), 2**64 - 1, 8]:
        rows = pa.table({"u": pa.array([value], pa.uint64())})
        lance.write_dataset(rows, tmp_path / "t.lance", mode="append")
    scan = QueryScan(pinned(tmp_path / "t.lance"), ("u",))
    with pytest.raises(RunError, match=r"fragment 7 of .* at version 9: column 'u': 1844"):
        ids(scan, tuple(map(RowRange, range(9))))


def requests(*texts: str) -> Iterator[pa.RecordBatch]:
    for text in texts:
        yield pa.RecordBatch.from_arrays([pa.array([text.encode()])], ["value"])


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the task in this process without setting it up as a worker."""
    monkeypatch.setattr(arrow_columns, "prepare_worker", lambda threads: None)


@pytest.mark.usefixtures("process")
def test_a_task_returns_the_requested_rows(uri: str) -> None:
    text = QueryScan(pinned(uri), ("id",)).encode() + "\n" + encode_part((RowRange(1, 48),))
    task = pickle.loads(pickle.dumps(ReadTask({"k": "v"})))
    rows = [row for batch in task(requests(text, text)) for row in batch.to_pylist()]
    assert rows == [{"0": 98}, {"0": 99}] * 2


@pytest.mark.usefixtures("process")
def test_a_failure_is_passed_as_text_without_secrets(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": [1]}), tmp_path)
    (tmp_path / "data" / dataset.get_fragments()[0].metadata.files[0].path).write_bytes(b"\0" * 100)
    text = QueryScan(pinned(tmp_path), ("id",)).encode() + "\n" + encode_part((RowRange(0),))
    task = ReadTask({"secret_access_key": "hunter2-hunter2"})
    assert "hunter2" not in repr(task)
    with pytest.raises(WorkerError) as bad:
        list(task(requests(text)))
    error = carried_error(str(bad.value))
    assert error is not None
    assert (error.code, "fragment 0 at version 1" in error.message) == ("LS204", True)
    assert "hunter2" not in str(bad.value)


# Every type that Spark's JVM makes columns of (`ArrowColumnVector`), decimals aside.
READABLE = {
    "bool", "int8", "int16", "int32", "int64", "float", "double", "string", "large_string",
    "binary", "large_binary", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]",
    "time64[ns]", "duration[us]", "null",
}  # fmt: skip


def converted(column: pa.Array, *, narrow: bool = False) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([column, column], ["x", "y"])
    result = for_spark(batch, narrow_decimals=narrow)
    result.validate(full=True)
    assert result.schema.names == ["0", "1"]
    assert str(result.column(0)) == str(result.column(1))
    return result.column(0)


def leaves(type: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_nested(type):
        assert pa.types.is_list(type) or pa.types.is_struct(type) or pa.types.is_map(type)
        return [leaf for index in range(type.num_fields) for leaf in leaves(type.field(index).type)]
    return [type]


def plain(value: Any) -> Any:
    """Return times without zones, which the JVM does not have."""
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) else value


def values(column: pa.Array) -> list[Any]:
    if pa.types.is_time64(column.type):
        column = column.cast(pa.time64("us"))
    return [plain(value) for value in column.to_pylist()]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_type_becomes_one_that_spark_reads(case: Case) -> None:
    array = converted(case.column)
    assert all(str(leaf) in READABLE or pa.types.is_decimal128(leaf) for leaf in leaves(array.type))
    assert repr(values(array)) == repr(case.values)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_slices_and_concatenated_columns_are_converted_alike(case: Case) -> None:
    twice = pa.concat_arrays([case.column, case.column, case.column])
    size = len(case.column)
    for start, length in ((1, size), (size, size), (size + 1, 2), (3 * size, 0)):
        expected = (case.values * 3)[start : start + length]
        assert repr(values(converted(twice.slice(start, length)))) == repr(expected)


@given(
    st.integers(1, 18).flatmap(
        lambda precision: st.tuples(
            st.just(precision),
            st.integers(0, precision),
            st.lists(st.none() | st.integers(1 - 10**precision, 10**precision - 1)),
            st.integers(0, 3),
        )
    )
)
def test_narrow_decimals_are_their_unscaled_integers(
    drawn: tuple[int, int, list[int | None], int],
) -> None:
    precision, scale, unscaled, start = drawn
    decimals = [None if number is None else Decimal(number).scaleb(-scale) for number in unscaled]
    column = pa.array(decimals, pa.decimal128(precision, scale)).slice(start)
    array = converted(column, narrow=True)

    assert array.type == pa.int64()
    assert array.to_pylist() == unscaled[start:]


@pytest.mark.parametrize("type", [pa.decimal32(7, 2), pa.decimal64(16, 2)])
def test_small_decimals_are_decimals(type: pa.DataType) -> None:
    stored = [Decimal("-12345.67"), None, Decimal("0.01")]
    column = pa.array(stored, type)
    assert converted(column).to_pylist() == stored
    assert converted(column, narrow=True).to_pylist() == [-1_234_567, None, 1]


def test_wide_and_nested_decimals_are_unchanged() -> None:
    for column in (CASES["19 digits"].column, CASES["struct"].column):
        assert converted(column, narrow=True).type == converted(column).type


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, 2**63, 2**64 - 1], pa.uint64()), "18446744073709551615 does not fit"),
        (pa.array([[1], [2**63]], pa.list_(pa.uint64())), "9223372036854775808 does not fit"),
        (pa.array([2**62], pa.timestamp("s")), "does not fit Spark's microseconds"),
        (pa.array([-(2**62)], pa.duration("ms")), "does not fit Spark's microseconds"),
    ],
)
def test_values_that_spark_cannot_hold_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(OverflowError, match=message):
        converted(column)


def test_types_that_spark_reads_are_not_copied() -> None:
    column = pa.array(np.arange(1000))
    assert converted(column).buffers()[1].address == column.buffers()[1].address
    nested = pa.array([[1.0, 2.0]] * 10, pa.list_(pa.float32()))
    assert converted(nested).values.buffers()[1].address == nested.values.buffers()[1].address


def test_values_of_vectors_are_not_copied() -> None:
    vectors = pa.array([[1.0, 2.0]] * 10, pa.list_(pa.float32(), 2))
    assert converted(vectors).values.buffers()[1].address == vectors.values.buffers()[1].address


def test_extension_types_become_their_storage_type() -> None:
    column = pa.array([b"0123456789abcdef", None], pa.uuid())
    assert converted(column).to_pylist() == [b"0123456789abcdef", None]


def test_views_are_copied_into_plain_columns() -> None:
    assert converted(pa.array(["x", None], pa.string_view())).equals(pa.array(["x", None]))
    assert converted(pa.array([b"x", None], pa.binary_view())).equals(pa.array([b"x", None]))
