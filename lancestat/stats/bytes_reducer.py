"""The reducer of strings and binary: lengths, bounds, and one hash per value or per repeat."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.stats.bounds import lower_bound, upper_bound
from lancestat.stats.hash import hash_bytes
from lancestat.stats.partial import ColumnPartial
from lancestat.stats.reducer import Counts, Integers, Reducer

# Finding the distinct values of an array first pays when its head shows that most of them repeat.
_HEAD_ROWS = 1024
_MOST_DISTINCT_IN_HEAD = 128

_MOST_FAMILIAR = 256
_MOST_FAMILIAR_BYTES = 16_384

# What a view keeps of every value: its first bytes, padded with zeros.
_PREFIX_BYTES = 4


class BytesReducer(Reducer):
    """Strings and binary, as bytes."""

    def __init__(self, *, is_text: bool) -> None:
        super().__init__()
        self._is_text = is_text
        self._total_bytes = 0
        self._max_bytes = 0
        self._total_characters = 0
        self._max_characters = 0
        self._minimum: bytes | None = None
        self._maximum: bytes | None = None
        self._familiar: set[bytes] = set()

    def finish(self) -> ColumnPartial:
        """The partial of all rows so far."""
        minimum, maximum = self._minimum, self._maximum
        return ColumnPartial(
            rows=self._rows,
            nulls=self._nulls,
            nans=0,
            minimum=None if minimum is None else lower_bound(minimum),
            maximum=None if maximum is None else upper_bound(maximum),
            total_bytes=self._total_bytes,
            max_bytes=self._max_bytes,
            sketch=self._sketch.finish(),
            total_characters=self._total_characters,
            max_characters=self._max_characters,
        )

    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        if pa.types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        self._measure(values, counts)
        values = _distinct(values.cast(pa.large_binary() if _is_large(values) else pa.binary()))
        values = self._unfamiliar(values)
        if not len(values):
            return
        # A view enters Polars without a copy; casting to it copies only lengths and short values.
        views = values.cast(pa.binary_view())
        self._sketch.update(hash_bytes(views))
        self._widen(values, views)

    def _unfamiliar(self, values: pa.Array) -> pa.Array:
        """The values less those known to be counted: of few short values, the same ones recur."""
        if len(values) > _MOST_FAMILIAR or _content(values, np.uint8).size > _MOST_FAMILIAR_BYTES:
            return values
        fresh = [value for value in values.to_pylist() if value not in self._familiar]
        if len(self._familiar) + len(fresh) > _MOST_FAMILIAR:
            self._familiar.clear()
        self._familiar.update(fresh)
        return pa.array(fresh, values.type)

    def _measure(self, values: pa.Array, counts: Counts | None) -> None:
        offsets = _offsets(values)
        total, longest = _sum_and_max(offsets[1:] - offsets[:-1], counts)
        self._total_bytes += total
        self._max_bytes = max(self._max_bytes, longest)
        if not self._is_text:
            return
        # A byte of more than one character's bytes is negative as a signed one.
        if longest and _content(values, np.int8).min() < 0:
            total, longest = _sum_and_max(pc.utf8_length(values).to_numpy(), counts)
        self._total_characters += total
        self._max_characters = max(self._max_characters, longest)

    def _widen(self, values: pa.Array, views: pa.Array) -> None:
        """Widen the bounds; only values whose prefix reaches a bound so far are compared whole."""
        prefixes = _prefixes(views)
        if self._minimum is None or self._maximum is None:
            lowest, highest = prefixes.min(), prefixes.max()
        else:
            lowest, highest = _prefix(self._minimum), _prefix(self._maximum)
        reaching = np.flatnonzero((prefixes <= lowest) | (prefixes >= highest))
        if not len(reaching):
            return
        # Where most values share a prefix, comparing them all costs less than picking them out.
        bounds = pc.min_max(values.take(reaching) if 2 * len(reaching) < len(values) else values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if self._minimum is None or low < self._minimum:
            self._minimum = low
        if self._maximum is None or high > self._maximum:
            self._maximum = high


def _sum_and_max(lengths: Integers, counts: Counts | None) -> tuple[int, int]:
    total = lengths.sum(dtype=np.int64) if counts is None else counts @ lengths
    return int(total), int(lengths.max())


def _distinct(values: pa.Array) -> pa.Array:
    """The values without repeats, or as they are when finding repeats would not pay."""
    content = _content(values, np.uint8)
    if len(content) == len(values) and bool((np.diff(_offsets(values)) == 1).all()):
        return _one_byte_values(content)
    if len(values) < _HEAD_ROWS:
        return values
    head = pc.unique(values.slice(0, _HEAD_ROWS))
    return pc.unique(values) if len(head) <= _MOST_DISTINCT_IN_HEAD else values


def _one_byte_values(content: npt.NDArray[np.uint8]) -> pa.Array:
    occurs = np.zeros(256, np.bool_)
    occurs[content] = True
    codes = np.flatnonzero(occurs).astype(np.uint8)
    offsets = np.arange(len(codes) + 1, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(codes)]
    return pa.Array.from_buffers(pa.binary(), len(codes), buffers)


def _content(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The bytes of all values, one after the other."""
    offsets = _offsets(values)
    buffer = values.buffers()[2]
    content = np.frombuffer(buffer, dtype) if buffer else np.empty(0, dtype)
    return content[offsets[0] : offsets[-1]]


def _offsets(values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    dtype = np.int64 if _is_large(values) else np.int32
    return np.frombuffer(values.buffers()[1], dtype)[
        values.offset : values.offset + len(values) + 1
    ]


def _is_large(values: pa.Array) -> bool:
    return str(values.type) in ("large_binary", "large_string")


def _prefix(value: bytes) -> int:
    return int.from_bytes(value[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0"), "big")


def _prefixes(views: pa.Array) -> npt.NDArray[np.uint32]:
    """The first bytes of every value, as integers of the same order."""
    fields = np.frombuffer(views.buffers()[1], ">u4").reshape(-1, 4)
    return fields[views.offset : views.offset + len(views), 1].astype(np.uint32)
