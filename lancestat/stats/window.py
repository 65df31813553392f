"""A window over the integers that marks which of them occurred, to hash each only once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancestat.stats.hash import Words

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
        """Mark integers between `low` and `high`; what it gives back the caller must count.

        That is what a move displaced, or all of `words` when they spread too wide.
        """
        if self._marks is None:
            self._marks = self._first_marks(high - low, len(words))
        if self._marks is None or high - low >= len(self._marks):
            return words
        displaced = _NOTHING
        if not self._low <= low or high >= self._low + len(self._marks):
            displaced = self.drain()
            self._low = self._place(low, high, len(self._marks), is_first=not len(displaced))
        self._marks[(words - np.uint64(self._low % _WORD)).view(np.int64)] = True
        return displaced

    def drain(self) -> Words:
        """The integers marked, each once; none is afterwards."""
        if self._marks is None:
            return _NOTHING
        marked = np.flatnonzero(self._marks)
        self._marks[marked] = False
        values: Words = marked.view(np.uint64) + np.uint64(self._low % _WORD)
        return values

    def _place(self, low: int, high: int, size: int, *, is_first: bool) -> int:
        """Where the window goes: around its first values, then on in the direction they took."""
        if is_first:
            return (low + high - size) // 2 + 1
        return low if low >= self._low else high - size + 1

    @staticmethod
    def _first_marks(spread: int, rows: int) -> npt.NDArray[np.bool_] | None:
        size = min(_MOST_MARKS, _MARKS_PER_ROW * rows)
        return np.zeros(size, np.bool_) if spread < size else None
