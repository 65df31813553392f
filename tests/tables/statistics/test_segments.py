"""Many small fragments at once: the partials of each are those of its own rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.partial import ColumnPartial, encode
from lancestat.tables.statistics.segments import reduce_segments
from tests.examples import examples
from tests.tables.statistics.columns import COLUMNS, Column, true_partial

slow = settings(max_examples=examples(15))


def one_column(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], ["v"])


def segments_of(array: pa.Array, lengths: list[int]) -> list[ColumnPartial]:
    rows = one_column(array)
    made = reduce_segments(rows, lengths, rows.schema, {"key": Request(("v",))})
    return [partials["key"] for partials in made]


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@given(data=st.data())
@slow
def test_a_segment_has_the_partial_of_its_rows(column: Column, data: st.DataObject) -> None:
    segment = st.lists(st.none() | column.values, max_size=6)
    drawn: list[list[Any]] = data.draw(st.lists(segment, min_size=1, max_size=5))
    array = column.array([value for values in drawn for value in values])
    # As a reader may hand it over: a slice of something longer.
    padded = pa.concat_arrays([column.array([None]), array]).slice(1)
    made = segments_of(padded, list(map(len, drawn)))
    assert list(map(repr, made)) == [repr(true_partial(column, values)) for values in drawn]


@pytest.mark.parametrize("kind", ["integers", "floats", "texts"])
def test_dense_and_sparse_sketches_are_those_of_the_kernel(kind: str) -> None:
    lengths = [3_000, 0, 10, 400, 401, 5_000]
    numbers = np.random.default_rng(1).permutation(sum(lengths))
    array = {
        "integers": pa.array(numbers),
        "floats": pa.array(numbers / 7),
        "texts": pa.array([f"value {number}" for number in numbers]),
    }[kind]
    rows, start = one_column(array), 0
    for length, partial in zip(lengths, segments_of(array, lengths), strict=True):
        alone = reduce_batches([rows.slice(start, length)], rows.schema, {"key": Request(("v",))})
        assert encode(partial) == encode(alone["key"])
        start += length


def test_what_takes_more_than_a_column_is_reduced_one_by_one() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([1, 2, 2, 3, None, 3]),
            "b": pa.array(["x", "x", "y", "y", "y", None]).dictionary_encode(),
        }
    )
    requests = {
        "plain": Request(("a",)),
        "dictionary": Request(("b",)),
        "quantiles": Request(("a",), quantiles=True),
        "common": Request(("b",), common_values=128),
        "key": Request(("a",), is_key=True, keeps_hashes=True),
        "group": Request(("a", "b")),
    }
    lengths = [2, 0, 4]
    alone = [
        reduce_batches([part] if part.num_rows else [], rows.schema, requests)
        for part in (rows.slice(0, 2), rows.slice(2, 0), rows.slice(2, 4))
    ]
    assert reduce_segments(rows, lengths, rows.schema, requests) == alone
