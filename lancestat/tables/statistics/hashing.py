"""Hashes of values, 64 bits each, and the distinct count's sketch while it grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancestat.polars import pl
from lancestat.tables.statistics.sketches import INDEX_BITS, LARGEST_RANK, REGISTERS, Sketch

_XXH3 = [pl.col("v").nchash.xxh3_64(seed=seed) for seed in (0, 1)]  # type: ignore[attr-defined]

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


def hash_bytes(views: pa.Array, seed: int = 0) -> Words:
    """XXH3-64 of each value of a binary_view array without nulls, of seed 0 or 1."""
    hashes: Words = pl.Series("v", views).to_frame().select(_XXH3[seed]).to_series().to_numpy()
    return hashes


def hash_tuples(columns: Sequence[Words]) -> Words:
    """Hashes of tuples, given those of their values by column, which are uniform themselves.

    A sum of multiples would not be uniform where columns are equal or depend on each other.
    """
    hashes, *others = columns
    for words in others:
        hashes = mix(hashes)
        hashes += words
    return hashes


INDEX_MASK = np.uint64(REGISTERS - 1)
_INDEX_SHIFT = np.uint64(INDEX_BITS)

# A register that holds rank r is raised exactly by the hashes with at least r leading zeros: those
# up to 2^(64 - r) - 1.
_HIGHEST_RAISING = np.array([2 ** (64 - rank) - 1 for rank in range(LARGEST_RANK)] + [0], np.uint64)


def ranks(hashes: Words) -> npt.NDArray[np.uint8]:
    """Return the rank of each hash: one more than the leading zeros after its index."""
    # frexp's exponent is the bit length, and exact: float64 holds every integer below 2^53.
    bit_lengths = np.frexp((hashes >> _INDEX_SHIFT).astype(np.float64))[1]
    ranks: npt.NDArray[np.uint8] = (LARGEST_RANK - bit_lengths).astype(np.uint8)
    return ranks


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
        return Sketch.of(self._registers.tobytes())

    def _raise_registers(self, hashes: npt.NDArray[np.uint64]) -> None:
        if self._ceiling != _HIGHEST_RAISING[0]:
            hashes = hashes[np.flatnonzero(hashes <= self._ceiling)]
        indexes = (hashes & INDEX_MASK).view(np.int64)
        raising = np.flatnonzero(hashes <= self._thresholds[indexes])
        if not len(raising):
            return
        np.maximum.at(self._registers, indexes[raising], ranks(hashes[raising]))
        self._thresholds = _HIGHEST_RAISING[self._registers]
        self._ceiling = np.max(self._thresholds)
