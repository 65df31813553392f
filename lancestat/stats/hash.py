"""The 64-bit hashes behind sketches: sketches are stored, so hashes are part of the format.

- Strings and binary: XXH3-64 with seed 0 over the bytes (Y. Collet,
  https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
- Everything else: the first output of SplitMix64 seeded with the value's 64-bit word, that is the
  finaliser over word + 0x9E3779B97F4A7C15 (G. Steele, D. Lea, C. Flood, "Fast splittable
  pseudorandom number generators", OOPSLA 2014; the constants are those of S. Vigna's
  https://prng.di.unimi.it/splitmix64.c).

The word of a value, so that equal values hash equal whatever their width or encoding: integers
sign-extended (uint64 as is), booleans 0 or 1, dates their day, timestamps their microsecond, floats
the bits of the float64 with one NaN (0x7FF8000000000000) and no negative zero. A decimal's word is
its unscaled value where that fits 64 bits, and otherwise `low ^ mix(high)` of the halves of its
128-bit two's complement.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash  # noqa: F401  (registers the `nchash` namespace)
import pyarrow as pa

Words = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_STEPS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_NAN_WORD = np.uint64(0x7FF8000000000000)
_XXH3 = pl.col("v").nchash.xxh3_64()  # type: ignore[attr-defined]


def mix(words: Words) -> Words:
    """SplitMix64's first output for each seed; overwrites nothing."""
    mixed: Words = words + _GAMMA
    shifted = np.empty_like(mixed)
    for shift, factor in _STEPS:
        np.right_shift(mixed, shift, out=shifted)
        mixed ^= shifted
        mixed *= factor
    np.right_shift(mixed, _LAST_SHIFT, out=shifted)
    mixed ^= shifted
    return mixed


def hash_floats(values: npt.NDArray[np.float64]) -> Words:
    """Hashes of floats: all NaN are one value, and so are both zeros."""
    with np.errstate(invalid="ignore"):  # signalling NaN are valid input
        words: Words = (values + 0.0).view(np.uint64)
    is_nan = np.isnan(values)
    if is_nan.any():
        words[is_nan] = _NAN_WORD
    return mix(words)


def hash_decimals(low: Words, high: npt.NDArray[np.int64]) -> Words:
    """Hashes of 128-bit unscaled decimals, given as the halves of their two's complement."""
    fits = high == low.view(np.int64) >> 63
    return mix(np.where(fits, low, low ^ mix(high.view(np.uint64))))


def hash_bytes(views: pa.Array) -> Words:
    """XXH3-64 of each value of a binary_view array without nulls."""
    hashes: Words = pl.Series("v", views).to_frame().select(_XXH3).to_series().to_numpy()
    return hashes
