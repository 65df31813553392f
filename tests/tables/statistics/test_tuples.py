"""Groups of columns of every type against the rows in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.common_values import Values, decode_values, encode_values
from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.partial import ColumnPartial, decode, encode, merge
from lancestat.tables.statistics.row_values import RowValues
from tests.examples import examples
from tests.tables.statistics.columns import COLUMNS, Column

slow = settings(max_examples=examples(15))
ALL = Request(("a", "b"), common_values=128, is_key=True, keeps_hashes=True)


def partial_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> ColumnPartial:
    return reduce_batches(batches, schema, {"both": ALL})["both"]


def batch(columns: Sequence[Column], rows: Sequence[tuple[Any, Any]]) -> pa.RecordBatch:
    arrays = [column.array([row[i] for row in rows]) for i, column in enumerate(columns)]
    return pa.record_batch(arrays, names=["a", "b"])


def tuples_of(columns: Sequence[Column], rows: Sequence[tuple[Any, Any]]) -> list[Values]:
    """The tuples that are counted, in a form that compares as they do."""
    present = [row for row in rows if None not in row]
    canonical = [
        tuple(column.canonical(value) for column, value in zip(columns, row, strict=True))
        for row in present
    ]
    return [decode_values(encode_values(values)) for values in canonical]


def spelled(values: Values) -> str:
    """NaN equals NaN here."""
    return repr(values)


@st.composite
def rows(draw: st.DrawFn, columns: Sequence[Column]) -> list[tuple[Any, Any]]:
    pools = [draw(st.lists(column.values, min_size=1, max_size=6)) for column in columns]
    values = [st.one_of(st.sampled_from(pool), st.sampled_from(pool), st.none()) for pool in pools]
    return draw(st.lists(st.tuples(*values), max_size=30))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_a_group_equals_its_definition(first: Column, data: st.DataObject) -> None:
    """Common values, nulls, distinct tuples and repeats, also of dictionaries and in batches."""
    columns = [first, data.draw(st.sampled_from(COLUMNS))]
    parts = data.draw(st.lists(rows(columns), max_size=3))
    batches = [batch(columns, part) for part in parts]
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in zip("ab", columns, strict=True)]
    )
    every = [row for part in parts for row in part]
    counts = Counter(map(spelled, tuples_of(columns, every)))
    short = {
        spelled(values): counts[spelled(values)]
        for values in tuples_of(columns, every)
        if not any(isinstance(one, bytes) and len(one) > 256 for one in values)
    }

    whole = partial_of(batches, schema)
    merged = merge(decode(encode(partial_of([one], schema))) for one in batches)
    no_key = {"both": replace(ALL, is_key=False, keeps_hashes=False)}
    assert reduce_batches(batches, schema, no_key)["both"] == replace(whole, key=None)

    for partial in (whole, merged) if batches else (whole,):
        assert (partial.rows, partial.values) == (len(every), counts.total())
        assert abs(partial.distinct - len(counts)) <= 2, "few share a register of the sketch"
        assert partial.common is not None
        assert {spelled(one.values): one.lower for one in partial.common.listed} == short
        assert partial.common.unlisted <= max([0, *(counts - Counter(short)).values()]) * 3
        assert partial.key is not None
        assert partial.key.is_repeated == any(count > 1 for count in counts.values())
        assert partial.key.is_repeated or partial.key.is_proven
    if not any(math.isnan(one) for values in tuples_of(columns, every) for one in _floats(values)):
        _check_ranges(whole, tuples_of(columns, every))


def _floats(values: Values) -> list[float]:
    return [one for one in values if isinstance(one, float)]


def _check_ranges(partial: ColumnPartial, values: Sequence[tuple[Bound, ...]]) -> None:
    assert partial.key is not None
    if partial.key.is_repeated or not values:
        return
    for index, ranges in enumerate(partial.key.ranges):
        turned = [(*one[index:], *one[:index]) for one in values]
        if ranges is not None:
            [(low, high)] = ranges
            assert low <= min(turned)
            assert max(turned)[: len(high)] <= high


@pytest.mark.parametrize("first", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_dictionaries_and_slices_count_as_their_values(first: Column, data: st.DataObject) -> None:
    columns = [first, data.draw(st.sampled_from(COLUMNS))]
    entries = data.draw(st.lists(st.one_of(st.none(), first.values), min_size=1, max_size=6))
    codes = data.draw(st.lists(st.one_of(st.none(), st.integers(0, len(entries) - 1)), max_size=30))
    others = data.draw(st.lists(columns[1].values, min_size=len(codes), max_size=len(codes)))
    encoded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), first.array(entries))
    plain = [None if code is None else entries[code] for code in codes]
    one = pa.record_batch([encoded, columns[1].array(others)], names=["a", "b"])
    rows = list(zip(plain, others, strict=True))
    around = batch(columns, rows * 2)

    expected = partial_of([batch(columns, rows)], around.schema)

    assert partial_of([one], one.schema) == expected
    assert partial_of([around.slice(len(codes), len(codes))], around.schema) == expected
    assert partial_of([around.slice(0, len(codes)).slice(0)], around.schema) == expected


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_values_that_repeat_are_counted_as_any_others(text: pa.DataType) -> None:
    """Few texts, and integers that are close together, have numbers in place of hashes."""
    drawn = Random(1)
    rows = 5_000
    pools: dict[str, tuple[pa.DataType, list[Any]]] = {
        "text": (text, [f"name {n}".encode() for n in range(90)]),
        "letter": (text, [b"A", b"N", b"R"]),
        "flag": (pa.bool_(), [True, False]),
        "near": (pa.int32(), list(range(-40, 40))),
        "far": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        "unsigned": (pa.uint64(), [2**64 - 1, 2**64 - 2]),
        "day": (pa.date32(), [date(2026, 1, 1) + timedelta(days) for days in range(50)]),
        "price": (pa.decimal128(15, 2), [Decimal(n).scaleb(-2) for n in (-5, 0, 7)]),
        "wide": (pa.decimal128(38, 0), [Decimal(10) ** 37, Decimal(-1), Decimal(0)]),
    }
    columns = {
        name: pa.array(drawn.choices([*values, None], k=rows), type)
        for name, (type, values) in pools.items()
    }
    [table] = pa.table(columns).to_batches()
    groups = [*((name,) for name in pools), ("letter", "flag", "day"), ("text", "near", "price")]
    requests = {"+".join(names): Request(names, common_values=512) for names in groups}
    parts = [table.slice(0, 2_000), table.slice(2_000)]

    for key, partial in reduce_batches(parts, table.schema, requests).items():
        tuples = zip(*(columns[name].to_pylist() for name in requests[key].columns), strict=True)
        counts = Counter(values for values in tuples if None not in values)
        assert partial.nulls == rows - counts.total()
        assert partial.distinct == pytest.approx(len(counts), abs=2, rel=4 * 1.04 / 64)
        assert partial.common is not None
        common = partial.common
        listed = [(one.lower, one.upper) for one in common.listed]
        if len(counts) <= 512:
            assert sorted(listed) == sorted((count, count) for count in counts.values())
            assert not common.unlisted
        else:
            assert common.unlisted >= sorted(counts.values(), reverse=True)[len(listed)]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_texts_that_come_later_are_counted_by_their_values(text: pa.DataType) -> None:
    """Also when batches go on to have others than those that are known from earlier ones."""
    drawn = Random(2)
    parts = []
    for start in range(0, 1_200, 100):
        pool = [f"name {n}".encode() for n in range(start, start + 120)]
        texts = drawn.choices([*pool, None], k=1_500)
        letters = drawn.choices([b"A", b"N"], k=1_500)
        parts.append(pa.record_batch({"a": pa.array(texts, text), "b": pa.array(letters, text)}))
    parts[2:2] = parts[:2]
    requests = {
        "a": Request(("a",), common_values=4_096),
        "both": Request(("a", "b"), common_values=4_096),
    }

    partials = reduce_batches(parts, parts[0].schema, requests)

    table = pa.Table.from_batches(parts).cast(pa.schema({"a": pa.binary(), "b": pa.binary()}))
    for partial, names in ((partials["a"], ["a"]), (partials["both"], ["a", "b"])):
        tuples = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        counts = Counter(values for values in tuples if None not in values)
        assert partial.common is not None
        listed = {one.values: (one.lower, one.upper) for one in partial.common.listed}
        assert listed == {values: (count, count) for values, count in counts.items()}


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_a_column_has_the_same_statistics_when_its_common_values_are_asked_for(
    column: Column, data: st.DataObject
) -> None:
    """Also of so many rows that each different value is looked at once."""
    values = st.lists(st.one_of(st.none(), column.values), min_size=1, max_size=4)
    parts = data.draw(st.lists(values, min_size=1, max_size=3))
    arrays = [column.array([*(part * 400), *parts[0]]) for part in parts]
    batches = [pa.record_batch([array], names=["a"]) for array in arrays]
    schema = batches[0].schema
    alone = reduce_batches(batches, schema, {"a": Request(("a",))})["a"]
    asked = {"a": Request(("a",), common_values=128), "twice": Request(("a", "a"))}
    assert replace(reduce_batches(batches, schema, asked)["a"], common=None) == alone


def test_columns_keep_their_own_statistics() -> None:
    rows = pa.record_batch({"a": [1, 2, 2, None], "b": ["x", "y", "y", "z"]})
    requests = {
        "a": Request(("a",), quantiles=True, common_values=128, is_key=True),
        "b": Request(("b",)),
        "both": Request(("b", "a")),
    }
    partials = reduce_batches([rows], rows.schema, requests)
    alone = reduce_batches([rows], rows.schema, {"a": Request(("a",), quantiles=True)})["a"]
    assert partials["a"].common is not None
    assert partials["a"].common.bounds_of((2,)) == (2, 2)
    assert partials["a"].key is not None
    assert partials["a"].key.is_repeated
    assert (partials["a"].sketch, partials["a"].maximum) == (alone.sketch, alone.maximum)
    assert (partials["b"].common, partials["b"].key) == (None, None)
    assert (partials["both"].nulls, partials["both"].distinct) == (1, 2)


def test_a_million_tuples_are_counted_within_the_error_of_the_sketch() -> None:
    rows = pa.table({"a": [i % 1000 for i in range(10**6)], "b": [i // 1000 for i in range(10**6)]})
    partial = partial_of(rows.to_batches(max_chunksize=65_536), rows.schema)
    assert abs(partial.distinct - 10**6) < 5 * 0.0163 * 10**6
    assert partial.key is not None
    assert partial.key.is_proven
    assert partial.key.hashes is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array([*"xyzyxz"]),
        pa.array([b"\xf0", b"\xff", b"\xf0"], pa.large_binary()),
        pa.array([7, -3, 7, None], pa.int16()),
        pa.array([Decimal("7.5"), Decimal("-1.2"), None], pa.decimal128(38, 1)),
        pa.array([date(2024, 1, 2), date(1969, 1, 1), None]),
        pa.array([True, None, False, True]),
    ],
    ids=lambda values: str(values.type),
)
def test_codes_have_the_hashes_and_the_values_of_their_rows(values: pa.Array) -> None:
    rows = RowValues(values)
    assert rows.codes is not None
    present = [place for place in range(len(values)) if values[place].is_valid]
    codes = rows.codes.rows[present]
    assert rows.hashes_at(codes).tolist() == RowValues(values.take(present)).hashes.tolist()
    assert rows.bounds_at(codes) == rows.bounds(np.array(present))
