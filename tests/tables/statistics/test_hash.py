from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics import kernel as hashes
from tests.tables.statistics.columns import hash_value

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


def test_inputs_are_not_modified() -> None:
    words = np.arange(5, dtype=np.uint64)
    hashes.mix(words)
    hashes.hash_floats(words.view(np.float64))
    assert words.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_an_integer_has_the_same_hash_at_every_width(dtype: type[np.integer]) -> None:
    words = np.array([-3, 0, 7], dtype).astype(np.int64).view(np.uint64)
    assert hashes.mix(words).tolist() == [hash_value(-3), hash_value(0), hash_value(7)]
