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

from lancestat.interrupts import keep_interrupts
from lancestat.tables.statistics.sketch import INDEX_BITS, LARGEST_RANK, REGISTERS, Sketch

keep_interrupts()

_XXH3 = pl.col("v").nchash.xxh3_64()  # type: ignore[attr-defined]

Words = npt.NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_STEPS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


_LAST_SHIFT = np.uint64(31)
_NAN_WORD = np.uint64(0x7FF8000000000000)


def mix(words: Words) -> Words:
    """Return SplitMix64's first output for each seed; overwrites nothing."""
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


_INDEX_MASK = np.uint64(REGISTERS - 1)
_INDEX_SHIFT = np.uint64(INDEX_BITS)

# A register that holds rank r is raised exactly by the hashes with at least r leading zeros: those
# up to 2^(64 - r) - 1.
_HIGHEST_RAISING = np.array([2 ** (64 - rank) - 1 for rank in range(LARGEST_RANK)] + [0], np.uint64)


class SketchBuilder:
    """Registers that only grow."""

    __slots__ = ("_ceiling", "_registers", "_thresholds")

    def __init__(self) -> None:
        self._registers = np.zeros(REGISTERS, np.uint8)
        self._thresholds = _HIGHEST_RAISING[self._registers]
        self._ceiling = np.max(self._thresholds)

    def update(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Count these hashes; once warmed up, two compares discard nearly all of them."""
        # The first hashes raise nearly every register, which is slow for each: let few of them warm
        # the sketch up.
        if self._ceiling == _HIGHEST_RAISING[0] and len(hashes) > 2 * REGISTERS:
            self._raise_registers(hashes[: 2 * REGISTERS])
            hashes = hashes[2 * REGISTERS :]
        self._raise_registers(hashes)

    def finish(self) -> Sketch:
        """Return the sketch of all hashes so far."""
        return Sketch(self._registers.tobytes())

    def _raise_registers(self, hashes: npt.NDArray[np.uint64]) -> None:
        if self._ceiling != _HIGHEST_RAISING[0]:
            hashes = hashes[np.flatnonzero(hashes <= self._ceiling)]
        indexes = (hashes & _INDEX_MASK).view(np.int64)
        raising = np.flatnonzero(hashes <= self._thresholds[indexes])
        if not len(raising):
            return
        # frexp's exponent is the bit length, and exact: float64 holds every integer below 2^53.
        bit_lengths = np.frexp((hashes[raising] >> _INDEX_SHIFT).astype(np.float64))[1]
        ranks = (LARGEST_RANK - bit_lengths).astype(np.uint8)
        np.maximum.at(self._registers, indexes[raising], ranks)
        self._thresholds = _HIGHEST_RAISING[self._registers]
        self._ceiling = np.max(self._thresholds)


_MOST_MARKS = 1 << 18
_MARKS_PER_ROW = 4
_WORD = 2**64
_NOTHING = np.empty(0, np.uint64)


class Window:
    """Marks for a range of integers, of one byte each; it moves when values leave the range.

    Integers are 64-bit words, signed or not: positions are differences modulo 2^64.
    """

    __slots__ = ("_low", "_marks")

    def __init__(self) -> None:
        self._low = 0
        self._marks: npt.NDArray[np.bool_] | None = None

    def add(self, words: Words, low: int, high: int) -> Words:
        """Mark integers between `low` and `high`, and return integers that the caller must count.

        Those are what a move displaced, or all of `words` when they spread too wide.
        """
        if self._marks is None:
            self._marks = self._first_marks(high - low, len(words))
        if self._marks is None or high - low >= len(self._marks):
            return words
        displaced: Words = _NOTHING
        if not self._low <= low or high >= self._low + len(self._marks):
            displaced = self.drain()
            self._low = self._place(low, high, len(self._marks), is_first=not len(displaced))
        self._marks[(words - np.uint64(self._low % _WORD)).view(np.int64)] = True
        return displaced

    def drain(self) -> Words:
        """Return the marked integers, each once, and clear the marks."""
        if self._marks is None:
            return _NOTHING
        marked = np.flatnonzero(self._marks)
        self._marks[marked] = False
        values: Words = marked.view(np.uint64) + np.uint64(self._low % _WORD)
        return values

    def _place(self, low: int, high: int, size: int, *, is_first: bool) -> int:
        """Return the window's low end: around its first values, then on in their direction."""
        if is_first:
            return (low + high - size) // 2 + 1
        return low if low >= self._low else high - size + 1

    @staticmethod
    def _first_marks(spread: int, rows: int) -> npt.NDArray[np.bool_] | None:
        size = min(_MOST_MARKS, _MARKS_PER_ROW * rows)
        return np.zeros(size, np.bool_) if spread < size else None
