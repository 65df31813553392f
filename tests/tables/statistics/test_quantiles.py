from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, decode, encode, merge
from lancestat.tables.statistics.sketches import (
    K,
    QuantileBuilder,
    QuantileSketch,
    thinned,
    union_quantiles,
)
from tests.tables.statistics.columns import COLUMNS, Column

# The bound that the library states for a sketch of `K`, and one that is never exceeded: its
# random numbers differ in every test run.
STATED_ERROR = 0.0035
NEVER_EXCEEDED = 3 * STATED_ERROR

NUMBERS = [
    column
    for column in COLUMNS
    if pa.types.is_integer(column.type)
    or pa.types.is_floating(column.type)
    or pa.types.is_decimal(column.type)
    or pa.types.is_temporal(column.type)
]


def sketch(values: npt.ArrayLike, batch: int = 65_536) -> QuantileSketch:
    builder = QuantileBuilder()
    array = np.asarray(values, np.float64)
    for start in range(0, len(array), batch):
        builder.update(array[start : start + batch])
    return builder.finish()


def rank_error(quantiles: QuantileSketch, values: npt.NDArray[np.float64]) -> float:
    """Return the largest distance of a quantile's true rank from the requested rank."""
    ranks = np.linspace(0, 1, 501)
    ordered = np.sort(values)
    at = quantiles.quantiles(list(ranks))
    low = np.searchsorted(ordered, at, side="left") / len(values)
    high = np.searchsorted(ordered, at, side="right") / len(values)
    return float(np.maximum(np.maximum(low - ranks, ranks - high), 0).max())


def reduced(column: Column, stored: Sequence[object]) -> ColumnPartial:
    array = column.array(stored)
    schema = pa.schema([pa.field("c", array.type)])
    half = len(array) // 2
    batches = [
        pa.RecordBatch.from_arrays([part], schema=schema) for part in (array[:half], array[half:])
    ]
    return analyze(batches, schema, quantiles={"c"})["c"]


def values_of(built: QuantileSketch) -> list[float]:
    values, weights = built.samples()
    return sorted(np.repeat(values, weights.astype(int)))


@settings(deadline=None)
@given(
    st.sampled_from(NUMBERS).flatmap(
        lambda column: st.tuples(
            st.just(column), st.lists(st.one_of(st.none(), column.values), max_size=30)
        )
    )
)
def test_the_kernel_keeps_few_values_as_they_are(drawn: tuple[Column, list[object]]) -> None:
    column, stored = drawn
    reduced_partial = reduced(column, stored)
    assert reduced_partial.quantiles is not None
    canonical = [column.canonical(value) for value in stored if value is not None]
    expected = sorted(value for value in map(float, canonical) if math.isfinite(value))
    assert values_of(reduced_partial.quantiles) == pytest.approx(expected, rel=1e-15)
    assert reduced_partial.quantiles.count == len(expected)


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_without_a_request_there_are_no_quantiles(column: Column) -> None:
    array = column.array([None])
    schema = pa.schema([pa.field("c", array.type)])
    batch = pa.RecordBatch.from_arrays([array], schema=schema)
    assert analyze([batch], schema)["c"].quantiles is None


def test_a_dictionary_counts_each_row() -> None:
    codes = pa.array([0, 1, 1, None, 1, 2], pa.int8())
    array = pa.DictionaryArray.from_arrays(codes, pa.array([5, 7, None, 9], pa.int32()))
    schema = pa.schema([pa.field("c", array.type)])
    batch = pa.RecordBatch.from_arrays([array], schema=schema)
    quantiles = analyze([batch], schema, quantiles={"c"})["c"].quantiles
    assert quantiles is not None
    assert values_of(quantiles) == [5, 7, 7, 7]


def test_a_quantile_is_the_least_value_with_its_share_up_to_it() -> None:
    built = sketch([3, 1, 2, 2])
    assert built.quantiles([0, 0.25, 0.26, 0.75, 0.76, 1]) == [1, 1, 2, 2, 3, 3]


def test_a_column_without_values_has_no_quantiles() -> None:
    for nothing in (sketch([]), sketch([math.nan, math.inf, -math.inf]), union_quantiles([])):
        assert nothing.count == 0
        assert nothing.quantiles([0.5]) == []
        assert len(nothing.samples()[0]) == 0


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "repeated"])
def test_ranks_are_within_the_error(order: str) -> None:
    random = np.random.default_rng(7)
    values = random.lognormal(3, 2, 300_000)
    if order == "repeated":
        values = np.floor(values)
    elif order != "random":
        values = np.sort(values)[:: 1 if order == "ascending" else -1]
    assert rank_error(sketch(values), values) < NEVER_EXCEEDED


def test_a_union_of_many_sketches_is_as_accurate_as_one() -> None:
    random = np.random.default_rng(11)
    parts = [random.exponential(scale, random.integers(1, 20_000)) for scale in range(1, 41)]
    union_of_parts = union_quantiles(sketch(part) for part in parts)
    values = np.concatenate(parts)
    assert union_of_parts.count == len(values)
    assert rank_error(union_of_parts, values) < NEVER_EXCEEDED


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20)))
def test_a_union_of_few_values_is_exact(parts: list[list[float]]) -> None:
    union_of_parts = union_quantiles(map(sketch, parts))
    assert values_of(union_of_parts) == sorted(value for part in parts for value in part)


def test_the_size_of_a_sketch_is_bounded() -> None:
    values = np.random.default_rng(13).random(1_000_000)
    built = sketch(values)
    assert len(built.serialized) < 20_000
    assert len(union_quantiles([built] * 50).serialized) < 22_000
    assert len(sketch(np.arange(K)).serialized) < 8 * K + 100


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_the_stored_form_round_trips(values: list[float]) -> None:
    built = sketch(values)
    assert QuantileSketch.decode(built.encode()) == built
    assert pickle.loads(pickle.dumps(built)) == built


SERIALIZED = [sketch(np.arange(count)).serialized for count in (0, 1, 9, K, 5000, 100_000)]


@settings(deadline=None)
@given(st.data())
def test_no_malformed_form_crashes_anything(data: st.DataObject) -> None:
    """The library itself reads and writes beyond its memory when it is given such bytes."""
    serialized = bytearray(data.draw(st.sampled_from(SERIALIZED)))
    places = st.one_of(st.integers(0, 80), st.integers(0, len(serialized) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        place = min(data.draw(places), len(serialized) - 1)
        serialized[place] = data.draw(st.integers(0, 255))
    try:
        decoded = QuantileSketch.decode(zlib.compress(bytes(serialized), 1))
    except ValueError:
        return
    assert len(decoded.quantiles([0, 0.5, 1])) == (3 if decoded.count else 0)
    assert union_quantiles([decoded, sketch([1.0])]).count == decoded.count + 1


@pytest.mark.parametrize("count", [4096, 4097, 9999, 65_536, 65_537, 100_000])
@pytest.mark.parametrize("spread", [1, 3, 1000, 2**40])
def test_a_large_batch_is_thinned_out_evenly(count: int, spread: int) -> None:
    """At most half a run of 64 or 128 values off, without chance, in whatever order they come."""
    values = np.random.default_rng(count).integers(0, spread, count).astype(np.float64)
    once = QuantileSketch(thinned(values))
    assert QuantileSketch.decode(once.encode()) == once
    assert once.count == count
    assert once.samples()[1].sum() == count
    assert rank_error(once, values) <= 128 / count + 1 / 1024
    assert union_quantiles([once]).samples()[0].min() >= values.min()


@settings(deadline=None)
@given(st.lists(st.integers(0, 30_000), max_size=6), st.integers(0, 60_000))
def test_every_built_sketch_is_valid(counts: list[int], batch: int) -> None:
    parts = [sketch(np.arange(count), max(batch, 1000)) for count in counts]
    both = union_quantiles(parts)
    made = [*parts, both, union_quantiles([both, both])]
    assert [QuantileSketch.decode(built.encode()) for built in made] == made
    for built in made:
        values, weights = built.samples()
        assert weights.sum() == built.count
        assert len(values) == len(weights)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(bytes(100)),
        zlib.compress(bytes(1 << 21)),
        zlib.compress(sketch([1, 2]).serialized) + b"more",
        zlib.compress(sketch([1, 2]).serialized)[:-1],
    ],
)
def test_bytes_that_are_not_a_sketch_are_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match="quantile sketch"):
        QuantileSketch.decode(stored)


def partial(rows: int, quantiles: QuantileSketch | None) -> ColumnPartial:
    low, high = (0, rows - 1) if rows else (None, None)
    return ColumnPartial(rows, 0, 0, low, high, 0, 0, EMPTY_PARTIAL.sketch, quantiles=quantiles)


def test_a_merge_needs_the_quantiles_of_all_rows() -> None:
    known = partial(3, sketch([0, 1, 2]))
    merged = merge([known, EMPTY_PARTIAL, partial(2, sketch([0, 1]))])
    assert merged.quantiles is not None
    assert values_of(merged.quantiles) == [0, 0, 1, 1, 2]
    assert merge([known, partial(2, None)]).quantiles is None
    assert merge([EMPTY_PARTIAL, EMPTY_PARTIAL]).quantiles is None


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_a_partial_is_stored_with_its_quantiles(count: int) -> None:
    with_quantiles = partial(count, sketch(np.arange(count)))
    assert decode(encode(with_quantiles)) == with_quantiles
    assert decode(encode(partial(count, None))).quantiles is None


@settings(deadline=None)
@given(st.data())
def test_a_truncated_partial_with_quantiles_is_refused(data: st.DataObject) -> None:
    body = encode(partial(3, sketch([0, 1, 2])))[:-4]
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(ValueError):
        decode(cut + zlib.crc32(cut).to_bytes(4, "little"))
