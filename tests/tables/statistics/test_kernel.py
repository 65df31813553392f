from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lancestat.errors import RunError, UnsupportedColumn
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, merge
from tests.examples import examples
from tests.tables.statistics.columns import COLUMNS, Column, true_partial

# Enough repeats that an array counts as one of few distinct values, however short its pool.
REPEATS = st.sampled_from([1, 1, 1, 1, 2, 200])

slow = settings(max_examples=examples(15))


def analyze_arrays(arrays: list[pa.Array], type: pa.DataType) -> ColumnPartial:
    schema = pa.schema([pa.field("v", type)])
    batches = (pa.record_batch([array], schema=schema) for array in arrays)
    return analyze(batches, schema)["v"]


@st.composite
def rows(draw: st.DrawFn, column: Column) -> list[Any]:
    pool = draw(st.lists(st.one_of(st.none(), column.values, column.values), max_size=30))
    return pool * draw(REPEATS)


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_a_partial_equals_its_definition(column: Column, data: st.DataObject) -> None:
    values = data.draw(rows(column))

    partial = analyze_arrays([column.array(values)], column.type)

    assert repr(partial) == repr(true_partial(column, values))


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_merging_any_split_equals_the_whole(column: Column, data: st.DataObject) -> None:
    values = data.draw(rows(column))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    ends = [0, *cuts, len(values)]
    parts = [column.array(values[a:b]) for a, b in pairwise(ends)]

    whole = analyze_arrays([column.array(values)], column.type)
    in_batches = analyze_arrays(parts, column.type)
    in_fragments = [analyze_arrays([part], column.type) for part in parts]

    assert repr(in_batches) == repr(whole)
    assert repr(merge(in_fragments)) == repr(whole)
    assert repr(merge(reversed(in_fragments))) == repr(whole)


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_slices_count_only_their_own_rows(column: Column, data: st.DataObject) -> None:
    around = data.draw(rows(column))
    values = data.draw(rows(column))
    array = column.array(around + values + around).slice(len(around), len(values))

    assert repr(analyze_arrays([array], column.type)) == repr(true_partial(column, values))


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_dictionaries_count_their_values(column: Column, data: st.DataObject) -> None:
    """Unused entries, repeated entries and nulls in the dictionary included."""
    entries = data.draw(st.lists(st.one_of(st.none(), column.values), max_size=8))
    codes = data.draw(
        st.lists(st.one_of(st.none(), st.integers(0, len(entries) - 1)), max_size=60)
        if entries
        else st.lists(st.none(), max_size=3)
    )
    array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), column.array(entries))
    values = [None if code is None else entries[code] for code in codes]

    assert repr(analyze_arrays([array], array.type)) == repr(true_partial(column, values))


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_empty_and_all_null_columns_have_partials(column: Column) -> None:
    assert analyze_arrays([], column.type) == EMPTY_PARTIAL
    assert analyze_arrays([column.array([])], column.type) == EMPTY_PARTIAL
    nulls = analyze_arrays([column.array([None, None])], column.type)
    assert nulls == true_partial(column, [None, None])


@pytest.mark.parametrize("spread", [200, 70_000, 10**6, 2**40])
def test_integers_of_many_batches_are_merged(spread: int) -> None:
    """Windows that stay, move up, move down, and do not fit."""
    shuffled = np.random.default_rng(spread).integers(-spread, spread, 60_000)
    ascending = np.sort(shuffled)
    expected = true_partial(Column(pa.int64(), st.nothing()), shuffled.tolist())
    for values in (ascending, ascending[::-1], shuffled):
        arrays = [pa.array(part) for part in np.array_split(values, 7)]
        assert analyze_arrays(arrays, pa.int64()) == expected


@pytest.mark.parametrize("words", [10, 50_000], ids=["few distinct", "all distinct"])
@pytest.mark.parametrize("prefix", ["", "https://example.com/"])
def test_strings_of_many_batches_are_merged(words: int, prefix: str) -> None:
    chosen = np.random.default_rng(words).integers(0, words, 20_000)
    texts = [f"{prefix}{number * 7919}" for number in chosen.tolist()]
    arrays = [pa.array(texts[start : start + 3000]) for start in range(0, len(texts), 3000)]

    partial = analyze_arrays(arrays, pa.string())

    column = Column(pa.string(), st.nothing(), is_text=True)
    assert partial == true_partial(column, [text.encode() for text in texts])


def test_few_values_that_change_between_batches_are_merged() -> None:
    texts = [[f"{batch // 2}-{number % 5}" for number in range(40)] for batch in range(200)]

    partial = analyze_arrays([pa.array(batch) for batch in texts], pa.string())

    column = Column(pa.string(), st.nothing(), is_text=True)
    assert partial == true_partial(column, [text.encode() for batch in texts for text in batch])


def test_content_of_null_slots_is_ignored() -> None:
    """Arrow allows bytes, of any length, behind a null."""
    offsets = pa.py_buffer(np.array([0, 1, 400, 402], np.int32))
    validity = pa.py_buffer(bytes([0b101]))
    content = pa.py_buffer(b"b" + b"~" * 399 + b"cc")
    array = pa.Array.from_buffers(pa.string(), 3, [validity, offsets, content])

    partial = analyze_arrays([array], pa.string())

    column = Column(pa.string(), st.nothing(), is_text=True)
    assert partial == true_partial(column, [b"b", None, b"cc"])


def test_values_of_megabytes_are_analyzed() -> None:
    values = [b"m" * 5_000_000, b"n" * 3_000_000 + b"\xc3\xa9", b"short"]

    partial = analyze_arrays([pa.array(values, pa.binary()).cast(pa.string())], pa.string())

    assert partial.minimum == b"m" * 256
    assert partial.maximum == b"short"
    assert (partial.total_bytes, partial.max_bytes) == (8_000_007, 5_000_000)
    assert (partial.total_characters, partial.max_characters) == (8_000_006, 5_000_000)


@pytest.mark.parametrize("column", [c for c in COLUMNS if c.is_text], ids=repr)
def test_a_slice_between_nulls_is_analyzed(column: Column) -> None:
    """No null in the slice, but a bitmap that the whole array shares."""
    values = [b"0", b"0", b"00", b"0", b"0", b"00"]
    array = column.array([None, *values, None]).slice(1, 6)
    assert analyze_arrays([array], column.type) == true_partial(column, values)


def test_a_dictionary_of_large_values_is_not_decoded() -> None:
    """50,000 rows of it would take 500 GB."""
    entries = pa.array([b"a" * 10_000_000, b"b", None])
    codes = pa.array(([0, 1] * 25_000) + [2, None], pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, entries)

    partial = analyze_arrays([array], array.type)

    assert (partial.rows, partial.nulls) == (50_002, 2)
    assert (partial.minimum, partial.maximum) == (b"a" * 256, b"b")
    assert (partial.total_bytes, partial.max_bytes) == (250_000_025_000, 10_000_000)


def test_memory_follows_the_batch_and_not_the_rows() -> None:
    schema = pa.schema([pa.field("v", pa.string())])
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            held.append(pa.total_allocated_bytes())
            texts = pa.array([f"{number}-{row}" * 100 for row in range(1000)])
            yield pa.record_batch([texts], schema=schema)

    partial = analyze(batches(), schema)["v"]

    assert max(held) - held[0] < 3 * partial.total_bytes / 100


def test_only_requested_columns_are_analyzed() -> None:
    batch = pa.record_batch(
        {"a": pa.array([1, 2]), "nested": pa.array([[1], None]), "b": pa.array(["x", None])}
    )

    partials = analyze([batch], pa.schema([pa.field("b", pa.string())]))

    assert list(partials) == ["b"]
    assert (partials["b"].rows, partials["b"].nulls) == (2, 1)


@pytest.mark.parametrize(
    "type", [pa.list_(pa.int8()), pa.duration("us"), pa.decimal256(40, 0)], ids=str
)
def test_a_type_that_cannot_be_analyzed_is_named(type: pa.DataType) -> None:
    with pytest.raises(UnsupportedColumn, match=r"LS115.*column 'v' of type") as raised:
        analyze([], pa.schema([pa.field("v", type)]))
    assert str(type) in str(raised.value)


def test_a_batch_of_another_schema_is_refused() -> None:
    schema = pa.schema([pa.field("v", pa.int64())])
    with pytest.raises(RunError, match=r"LS502.*'v' as int32, not int64"):
        analyze([pa.record_batch({"v": pa.array([1], pa.int32())})], schema)
    with pytest.raises(RunError, match=r"LS502.*no column 'v'"):
        analyze([pa.record_batch({"w": pa.array([1])})], schema)


def test_equal_values_count_once_across_decimal_widths() -> None:
    """A batch that needs 128 bits must not count again what a batch of 64 bits counted."""
    type = pa.decimal128(38, 0)
    column = next(column for column in COLUMNS if column.type == type)
    narrow, wide = [1, -1, 2**63 - 1, -(2**63)], [1, -1, 2**63 - 1, -(2**63), 2**63]

    partial = analyze_arrays([column.array(narrow), column.array(wide)], type)

    assert partial == true_partial(column, narrow + wide)
    assert round(partial.sketch.estimate()) == 5


def test_signalling_nan_count_as_nan() -> None:
    for bits, dtype in ((0x7FF0000000000001, "u8"), (0x7F800001, "u4"), (0x7C01, "u2")):
        words = np.array([bits, 0], dtype)
        array = pa.array(words.view(dtype.replace("u", "f")))
        partial = analyze_arrays([array], array.type)
        assert (partial.nans, partial.minimum, partial.maximum) == (1, 0.0, 0.0)
        assert round(partial.sketch.estimate()) == 2
