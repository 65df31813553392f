from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.statistics.column_statistics import summarize
from lancestat.statistics.column_type import ColumnType, column_type
from lancestat.statistics.partial import EMPTY_PARTIAL, Bound, ColumnPartial, decode, encode, merge
from lancestat.statistics.sketch import EMPTY_SKETCH
from tests.statistics.columns import BYTES, COLUMNS, hash_value, sketch_of, true_partial

STORED = json.loads((Path(__file__).parents[1] / "vectors/sketch_partials.json").read_text("utf-8"))

PARTIALS = st.sampled_from(COLUMNS).flatmap(
    lambda column: st.lists(st.one_of(st.none(), column.values), max_size=20).map(
        lambda values: true_partial(column, values)
    )
)


def partials_of_one_column() -> st.SearchStrategy[list[ColumnPartial]]:
    def of(column: object) -> st.SearchStrategy[list[ColumnPartial]]:
        values = st.lists(st.one_of(st.none(), column.values), max_size=8)  # type: ignore[attr-defined]
        partial = values.map(lambda values: true_partial(column, values))  # type: ignore[arg-type]
        return st.lists(partial, min_size=3, max_size=3)

    return st.sampled_from(COLUMNS).flatmap(of)


def typed(arrow_type: pa.DataType) -> ColumnType:
    found = column_type(arrow_type)
    assert found is not None
    return found


def partial(
    minimum: Bound | None, maximum: Bound | None, distinct: int, rows: int
) -> ColumnPartial:
    sketch = sketch_of({hash_value(number) for number in range(distinct)})
    return ColumnPartial(rows, 0, 0, minimum, maximum, 0, 0, sketch)


@given(partials_of_one_column())
def test_merge_is_associative_and_commutative(parts: list[ColumnPartial]) -> None:
    a, b, c = parts
    whole = repr(merge([a, b, c]))
    assert repr(merge([merge([a, b]), c])) == whole
    assert repr(merge([a, merge([b, c])])) == whole
    assert repr(merge([c, a, b])) == whole
    assert repr(merge([b, EMPTY_PARTIAL, c, a])) == whole


def test_merging_nothing_is_empty() -> None:
    assert merge([]) == merge(iter([])) == EMPTY_PARTIAL


def test_an_open_upper_bound_stays_open() -> None:
    open_above = ColumnPartial(1, 0, 0, b"\xff" * 256, None, 300, 300, EMPTY_SKETCH)
    closed = ColumnPartial(1, 0, 0, b"a", b"b", 1, 1, EMPTY_SKETCH)
    merged = merge([closed, open_above, EMPTY_PARTIAL])
    assert (merged.minimum, merged.maximum) == (b"a", None)


@given(PARTIALS)
def test_the_stored_form_comes_back(partial: ColumnPartial) -> None:
    assert repr(decode(encode(partial))) == repr(partial)


@given(st.integers())
def test_integers_of_any_size_are_stored(bound: int) -> None:
    stored = replace(EMPTY_PARTIAL, rows=1, minimum=bound, maximum=bound)
    assert decode(encode(stored)) == stored


@pytest.mark.parametrize("example", STORED["partials"], ids=lambda example: example["name"])
def test_forms_stored_earlier_keep_their_meaning(example: dict[str, str]) -> None:
    assert repr(decode(bytes.fromhex(example["stored"])).minimum) == example["minimum"]
    restored = decode(bytes.fromhex(example["stored"]))
    assert repr(restored.maximum) == example["maximum"]
    assert (restored.rows, restored.nulls, restored.nans) == tuple(example["counts"])
    assert f"{restored.sketch.estimate():.6f}" == example["estimate"]


@given(PARTIALS, st.data())
def test_no_altered_form_is_taken_for_a_partial(
    partial: ColumnPartial, data: st.DataObject
) -> None:
    stored = bytearray(encode(partial))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match="a stored partial"):
        decode(bytes(stored))


@given(PARTIALS, st.data())
def test_no_cut_or_longer_form_is_taken_for_a_partial(
    partial: ColumnPartial, data: st.DataObject
) -> None:
    stored = encode(partial)
    with pytest.raises(ValueError):
        decode(stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(ValueError):
        decode(stored + data.draw(st.binary(min_size=1, max_size=5)))


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@given(PARTIALS, st.data())
def test_a_forged_checksum_crashes_nothing(partial: ColumnPartial, data: st.DataObject) -> None:
    body = bytearray(encode(partial)[:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(sealed(bytes(body)))
    except ValueError:
        return
    assert repr(decode(encode(found))) == repr(found)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(stored: bytes) -> None:
    with pytest.raises(ValueError):
        decode(stored)
    with pytest.raises(ValueError):
        decode(sealed(b"\1" + stored[:40]))


@pytest.mark.parametrize(
    ("minimum", "maximum"),
    [(1, 0), (1, 2.0), (b"a", 1), (math.nan, math.nan), (0.0, math.nan), (None, 1), (1, None)],
)
def test_bounds_that_cannot_be_are_refused(minimum: Bound | None, maximum: Bound | None) -> None:
    stored = encode(replace(EMPTY_PARTIAL, rows=1, minimum=minimum, maximum=maximum))
    with pytest.raises(ValueError, match="has bounds"):
        decode(stored)


def test_more_nulls_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 nulls and 1 NaN in 2 rows"):
        decode(encode(replace(EMPTY_PARTIAL, rows=2, nulls=2, nans=1)))


def test_a_later_form_is_refused() -> None:
    body = b"\3" + encode(EMPTY_PARTIAL)[1:-4]
    with pytest.raises(ValueError, match="form 3"):
        decode(sealed(body))


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_without_values_lengths_are_the_default_size(column: object) -> None:
    """As Spark gives them for an empty table and for nulls alone."""
    type = typed(column.type)  # type: ignore[attr-defined]
    for rows in (0, 3):
        found = summarize(replace(EMPTY_PARTIAL, rows=rows, nulls=rows), type)
        assert (found.nulls, found.distinct) == (rows, 0)
        assert (found.minimum, found.maximum) == (None, None)
        assert (found.average_length, found.maximum_length) == (type.default_size,) * 2


def test_lengths_of_text_count_characters_as_spark_does() -> None:
    """avgLen 2 and maxLen 3 are what Spark 4.3 gives for these four rows; they hold 11 bytes."""
    column = next(column for column in COLUMNS if column.type == pa.string())
    values = ["é€\U0001d11e".encode(), b"", b"ab", None]
    found = summarize(true_partial(column, values), typed(pa.string()))
    assert (found.average_length, found.maximum_length) == (2, 3)


def test_lengths_of_binary_count_bytes() -> None:
    column = next(column for column in COLUMNS if column.type == pa.binary())
    found = summarize(true_partial(column, [b"\xff\x00", b"", b"abc", None]), typed(pa.binary()))
    assert (found.average_length, found.maximum_length) == (2, 3)


def test_lengths_of_other_types_are_their_size() -> None:
    found = summarize(partial(0, 9, 10, 10), typed(pa.decimal128(20, 2)))
    assert (found.average_length, found.maximum_length) == (16, 16)


@pytest.mark.parametrize(
    ("minimum", "maximum", "estimate", "rows", "expected"),
    [
        (0, 10**6, 1000, 999, 999),
        (5, 7, 1000, 2000, 3),
        (0, 1, 3, 50, 2),
        (-(2**63), 2**64, 0, 1, 1),
        (b"a", b"b", 12, 10, 10),
        (1.0, 1.5, 12, 99, 12),
    ],
)
def test_distinct_counts_stay_within_what_is_possible(
    minimum: Bound, maximum: Bound, estimate: int, rows: int, expected: int
) -> None:
    found = summarize(partial(minimum, maximum, estimate, rows), typed(pa.int64()))
    assert found.distinct == expected


def test_nan_alone_is_one_value_without_bounds() -> None:
    column = next(column for column in COLUMNS if column.type == pa.float64())
    found = summarize(true_partial(column, [math.nan, -math.nan, None]), typed(pa.float64()))
    assert (found.nulls, found.distinct) == (1, 1)
    assert (found.minimum, found.maximum) == (None, None)


@given(st.lists(BYTES, min_size=1))
def test_bounds_of_binary_enclose_all_values(values: list[bytes]) -> None:
    column = next(column for column in COLUMNS if column.type == pa.binary())
    found = summarize(true_partial(column, values), typed(pa.binary()))
    assert isinstance(found.minimum, bytes)
    assert found.minimum <= min(values)
    assert found.maximum is None or max(values) <= found.maximum  # type: ignore[operator]
