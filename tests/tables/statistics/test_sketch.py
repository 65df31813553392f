from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.kernel import SketchBuilder, mix
from lancestat.tables.statistics.sketches import EMPTY_SKETCH, REGISTERS, Sketch, union
from tests.tables.statistics.columns import sketch_of

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


@given(SKETCHES, SKETCHES, SKETCHES)
def test_union_is_associative_commutative_and_idempotent(a: Sketch, b: Sketch, c: Sketch) -> None:
    assert union([union([a, b]), c]) == union([a, union([b, c])]) == union([c, a, b])
    assert union([a, a, EMPTY_SKETCH]) == a
    assert union([]) == EMPTY_SKETCH


@given(st.sets(HASHES, max_size=50), st.sets(HASHES, max_size=50))
def test_a_union_equals_the_sketch_of_all_values(a: set[int], b: set[int]) -> None:
    assert union([sketch_of(a), sketch_of(b)]) == sketch_of(a | b)


def test_estimates_of_zero_and_one_value_are_correct() -> None:
    assert EMPTY_SKETCH.estimate() == 0
    assert build(np.array([77], np.uint64)).estimate() == pytest.approx(1, abs=1e-3)
    assert Sketch(bytes([53]) * REGISTERS).estimate() == 2**64
    assert Sketch(bytes([52]) * REGISTERS).estimate() > 2**60


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
