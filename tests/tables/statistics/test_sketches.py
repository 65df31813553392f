"""Hashes, HyperLogLog and quantile sketches: accuracy, unions, stored forms."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.tables.statistics import hashing as hashes
from lancestat.tables.statistics.hashing import SketchBuilder, mix
from lancestat.tables.statistics.kernel import analyze
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial, decode, encode, merge
from lancestat.tables.statistics.sketches import (
    EMPTY_SKETCH,
    REGISTERS,
    K,
    QuantileBuilder,
    QuantileSketch,
    Sketch,
    thinned,
    union,
    union_quantiles,
)
from tests.tables.statistics.columns import COLUMNS, Column, hash_value, sketch_of

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/sketch_hashes.json").read_text("utf-8"))


def hash_each(values: list[bytes]) -> list[int]:
    return hashes.hash_bytes(pa.array(values, pa.binary_view())).tolist()


def test_bytes_hash_like_the_reference_of_xxh3() -> None:
    lengths, expected = zip(*VECTORS["xxh3_64"], strict=True)
    contents = [bytes((i * 167 + 13) % 256 for i in range(length)) for length in lengths]
    assert [f"{hashed:016x}" for hashed in hash_each(contents)] == list(expected)


def test_text_hashes_as_its_utf8() -> None:
    texts, expected = zip(*VECTORS["texts"], strict=True)
    assert [f"{hashed:016x}" for hashed in hash_each([t.encode() for t in texts])] == list(expected)


def test_words_hash_like_the_reference_of_splitmix64() -> None:
    words, expected = zip(*VECTORS["splitmix64"], strict=True)
    mixed = hashes.mix(np.array([int(word, 16) for word in words], np.uint64))
    assert [f"{hash:016x}" for hash in mixed.tolist()] == list(expected)


@given(st.lists(st.floats(), min_size=1))
def test_floats_hash_by_value(values: list[float]) -> None:
    hash_values = hashes.hash_floats(np.array(values))
    assert hash_values.tolist() == [hash_value(value) for value in values]


def test_zeros_are_one_value_and_so_are_all_nan() -> None:
    odd_nan = np.array([0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    hash_values = hashes.hash_floats(np.array([0.0, -0.0, math.nan, -math.nan, *odd_nan]))
    assert len(set(hash_values[:2].tolist())) == 1
    assert len(set(hash_values[2:].tolist())) == 1


@given(st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1))
def test_decimals_hash_by_unscaled_value(values: list[int]) -> None:
    words = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    low, high = np.frombuffer(words, np.uint64).reshape(-1, 2).T
    hash_values = hashes.hash_decimals(low, high.view(np.int64))
    assert hash_values.tolist() == [hash_value(value, is_decimal=True) for value in values]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_an_integer_has_the_same_hash_at_every_width(dtype: type[np.integer]) -> None:
    words = np.array([-3, 0, 7], dtype).astype(np.int64).view(np.uint64)
    assert hashes.mix(words).tolist() == [hash_value(-3), hash_value(0), hash_value(7)]


Words = np.ndarray[tuple[int], np.dtype[np.uint64]]
HASHES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2**20), st.sampled_from([0, 4095]))
SKETCHES = st.sets(HASHES, max_size=600).map(sketch_of)

# 1.04 / sqrt(registers), from the HyperLogLog paper.
STANDARD_ERROR = 1.04 / math.sqrt(REGISTERS)


def build(*parts: Words) -> Sketch:
    builder = SketchBuilder()
    for part in parts:
        builder.update(part)
    return builder.finish()


@given(st.lists(st.lists(HASHES, max_size=50), max_size=5))
def test_a_builder_keeps_the_highest_rank_of_every_register(parts: list[list[int]]) -> None:
    built = build(*(np.array(part, np.uint64) for part in parts))
    assert built == sketch_of({hash for part in parts for hash in part})


def test_a_builder_keeps_them_past_its_warm_up() -> None:
    hashes = mix(np.arange(100_000, dtype=np.uint64))
    expected = sketch_of(set(hashes.tolist()))
    assert build(hashes) == expected
    assert build(*np.array_split(hashes, 37)) == expected
    assert build(hashes[::-1], hashes) == expected


def test_the_rarest_hash_has_the_highest_rank() -> None:
    assert build(np.array([0], np.uint64)).registers[0] == 53
    assert build(np.array([4095], np.uint64)).registers[4095] == 53
    assert build(np.array([1 << 12], np.uint64)).registers[0] == 52
    assert build(np.array([2**64 - 4096], np.uint64)).registers[0] == 1


@given(*[st.sets(HASHES, max_size=600)] * 3)
def test_a_union_is_the_sketch_of_all_values(x: set[int], y: set[int], z: set[int]) -> None:
    a, b, c = map(sketch_of, (x, y, z))
    assert union([union([a, b]), c]) == union([a, union([b, c])]) == union([c, a, b])
    assert union([a, b, c]) == sketch_of(x | y | z)
    assert union([a, a, EMPTY_SKETCH]) == a
    assert union([]) == EMPTY_SKETCH


def test_estimates_of_zero_and_one_value_are_correct() -> None:
    assert EMPTY_SKETCH.estimate() == 0
    assert build(np.array([77], np.uint64)).estimate() == pytest.approx(1, abs=1e-3)
    assert Sketch.of(bytes([53]) * REGISTERS).estimate() == 2**64
    assert Sketch.of(bytes([52]) * REGISTERS).estimate() > 2**60


@pytest.mark.parametrize("count", [2, 10, 100, 1_000, 4_096, 10_000, 20_000, 100_000, 1_000_000])
def test_estimates_stay_within_the_standard_error(count: int) -> None:
    """Over 40 sketches of disjoint values; the bounds are about four deviations of each."""
    runs = 40
    errors = np.empty(runs)
    for run in range(runs):
        words = np.arange(run * count, (run + 1) * count, dtype=np.uint64)
        errors[run] = build(mix(words)).estimate() / count - 1
    assert np.sqrt((errors**2).mean()) < 1.45 * STANDARD_ERROR
    assert abs(errors.mean()) < 4 * STANDARD_ERROR / math.sqrt(runs)


PATTERNS: dict[str, Callable[[Words], Words]] = {
    "sequence": lambda n: n,
    "multiples of a power of two": lambda n: n << np.uint64(20),
    "high bits": lambda n: n << np.uint64(44),
    "negative": lambda n: ~n,
    "days in microseconds": lambda n: n * np.uint64(86_400_000_000),
    "whole floats": lambda n: n.astype(np.float64).view(np.uint64),
    "small floats": lambda n: (n.astype(np.float64) / 100).view(np.uint64),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("count", [300, 5_000, 80_000])
def test_regular_values_do_not_mislead_the_hash(pattern: str, count: int) -> None:
    words = PATTERNS[pattern](np.arange(count, dtype=np.uint64))
    assert build(mix(words)).estimate() == pytest.approx(count, rel=3.5 * STANDARD_ERROR)


def test_registers_are_stable_across_releases() -> None:
    """A stored sketch must mean the same to every later version."""
    registers = build(mix(np.arange(100_000, dtype=np.uint64))).registers
    assert hashlib.sha256(registers).hexdigest() == (
        "7a5ec071e15ad411036bd9f47389b26359b3461ed64756dfd9cfbbb77481c579"
    )


@given(SKETCHES)
def test_the_stored_form_round_trips(sketch: Sketch) -> None:
    assert Sketch.decode(sketch.encode()) == sketch


@pytest.mark.parametrize("count", [0, 1, 400, 401, 5_000, 10**6])
def test_the_stored_form_round_trips_at_every_fill(count: int) -> None:
    sketch = build(mix(np.arange(count, dtype=np.uint64)))
    stored = sketch.encode()
    assert Sketch.decode(stored) == sketch
    assert len(stored) <= min(1 + 3 * count, 1_800)


def pair(index: int, rank: int) -> bytes:
    return index.to_bytes(2, "little") + bytes([rank])


def compressed(registers: bytes) -> bytes:
    return b"\1" + zlib.compress(registers)


MALFORMED = {
    "empty": b"",
    "unknown form": b"\2",
    "cut list": b"\0" + pair(1, 1)[:2],
    "unordered list": b"\0" + pair(5, 1) + pair(4, 1),
    "repeated register": b"\0" + pair(5, 1) + pair(5, 2),
    "register out of range": b"\0" + pair(4096, 1),
    "listed rank of zero": b"\0" + pair(1, 0),
    "listed rank too high": b"\0" + pair(1, 54),
    "list too long": b"\0" + b"".join(pair(index, 1) for index in range(401)),
    "not compressed": b"\1" + bytes(100),
    "too few registers": compressed(bytes(4095)),
    "too many registers": compressed(bytes(4097)),
    "bomb": compressed(bytes(10**7)),
    "rank too high": compressed(bytes(4095) + b"\x36"),
    "cut stream": compressed(bytes(range(50)) * 82)[:-5],
    "trailing bytes": compressed(bytes(4096)) + b"x",
}


@pytest.mark.parametrize("flaw", MALFORMED)
def test_a_malformed_form_is_refused(flaw: str) -> None:
    with pytest.raises(ValueError, match="a sketch"):
        Sketch.decode(MALFORMED[flaw])


@given(st.binary(max_size=40))
def test_arbitrary_bytes_decode_or_are_refused(stored: bytes) -> None:
    try:
        sketch = Sketch.decode(stored)
    except ValueError:
        return
    assert Sketch.decode(sketch.encode()) == sketch


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
def test_the_stored_form_of_quantiles_round_trips(values: list[float]) -> None:
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
