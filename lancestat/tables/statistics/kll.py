"""The serialized form of a KLL sketch: checked before the library reads it, and written directly.

Source: https://datasketches.apache.org/docs/KLL/KLLSketch.html and `kll_sketch_impl.hpp` of
https://github.com/apache/datasketches-cpp, version 5.2, whose forms are the same in all languages.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The library's `get_normalized_rank_error(800)` is 0.35 %, which 99 of 100 sketches keep at every
# rank: a little less than one of a histogram's 254 bins. It takes at most 20 kB.
K = 800

# Size of the preamble, version, family, flags, K, least room of a level; then, of more than one
# value, the number of values seen, a K, the number of levels, where each begins, the extremes, and
# the values kept.
_EMPTY = struct.pack("<BBBBHBx", 2, 1, 15, 1, K, 8)
_SINGLE = struct.pack("<BBBBHBx", 2, 2, 15, 4, K, 8)
_HEAD = (5, 1, 15, 0, K, 8)
_SEVERAL = struct.Struct("<BBBBHBxQHBx")
_MOST_LEVELS = 60

# Values of a thinned batch: of 65,536 values ranks are off by 32 at most, 0.05 %.
_MOST_KEPT = 1024


def is_sound(serialized: bytes) -> bool:
    """Whether these bytes are a sketch of `K`; the library does not check, and may crash."""
    if serialized == _EMPTY:
        return True
    if len(serialized) == len(_SINGLE) + 8:
        return serialized.startswith(_SINGLE) and _are_finite(serialized[len(_SINGLE) :])
    if len(serialized) < _SEVERAL.size:
        return False
    *head, count, _, levels = _SEVERAL.unpack_from(serialized)
    start = _SEVERAL.size + 4 * levels
    if tuple(head) != _HEAD or not 0 < levels <= _MOST_LEVELS or len(serialized) < start:
        return False
    begins = struct.unpack(f"<{levels}I", serialized[_SEVERAL.size : start])
    sizes = [end - begin for begin, end in pairwise([*begins, _end(levels)])]
    if min(sizes) < 0 or len(serialized) != start + 8 * (2 + sum(sizes)):
        return False
    seen = sum(size << level for level, size in enumerate(sizes))
    return seen == count and _are_finite(serialized[start:])


def kept_values(serialized: bytes) -> tuple[Floats, Floats]:
    """Return the values of a sound sketch, and how many seen values each stands for.

    The library's own iterator starts with the weight of the lowest level, also where that is empty.
    """
    if len(serialized) <= len(_SINGLE) + 8:
        values = np.frombuffer(serialized[len(_SINGLE) :], "<f8")
        return values, np.ones(len(values))
    levels = _SEVERAL.unpack_from(serialized)[-1]
    begins = np.frombuffer(serialized, "<u4", levels, _SEVERAL.size).astype(np.int64)
    sizes = np.diff(begins, append=_end(levels))
    values = np.frombuffer(serialized, "<f8", offset=_SEVERAL.size + 4 * levels + 16)
    return values, np.repeat(2.0 ** np.arange(levels), sizes)


def thinned(values: Floats) -> bytes:
    """Make a sketch of many finite values: the middle of each sorted run of a power of two.

    The levels of a sketch hold the same kind of values; this makes them at once, without
    randomness, in a quarter of the time. Values that fill no run are kept as they are.
    """
    level = max(1, ((len(values) - 1) // _MOST_KEPT).bit_length())
    run = 1 << level
    rest = np.sort(values[: len(values) % run])
    sampled = np.sort(values[len(rest) :])
    extremes = [np.min(values), np.max(values)]
    sampled = sampled[run // 2 :: run]
    levels = level + 1
    begin = _end(levels) - len(sampled)
    begins = struct.pack(f"<{levels}I", begin - len(rest), *[begin] * level)
    head = _SEVERAL.pack(*_HEAD, len(values), K, levels)
    items: bytes = np.concatenate((extremes, rest, sampled)).astype("<f8").tobytes()
    return head + begins + items


def _end(levels: int) -> int:
    """Return the capacity of that many levels: each has two thirds of the capacity of the next."""
    rooms = (((2 * K << depth) // int(3**depth) + 1) // 2 for depth in range(levels))
    return sum(max(8, room) for room in rooms)


def _are_finite(values: bytes) -> bool:
    return bool(np.isfinite(np.frombuffer(values, "<f8")).all())
