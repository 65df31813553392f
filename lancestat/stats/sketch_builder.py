"""A sketch while it grows: only hashes that raise a register get a rank computed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancestat.stats.sketch import INDEX_BITS, LARGEST_RANK, REGISTERS, Sketch

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
        self._ceiling = self._thresholds.max()

    def update(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Count these hashes; once warmed up, two compares discard nearly all of them."""
        # The first hashes raise nearly every register, which is slow for each: let few of them warm
        # the sketch up.
        if self._ceiling == _HIGHEST_RAISING[0] and len(hashes) > 2 * REGISTERS:
            self._raise_registers(hashes[: 2 * REGISTERS])
            hashes = hashes[2 * REGISTERS :]
        self._raise_registers(hashes)

    def finish(self) -> Sketch:
        """The sketch of all hashes so far."""
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
        self._ceiling = self._thresholds.max()
