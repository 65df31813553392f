"""The reducer of strings and binary: lengths, bounds, and one hash per value or per repeat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.stats.bounds import lower_bound, upper_bound
from lancestat.stats.hash import hash_bytes
from lancestat.stats.partial import ColumnPartial
from lancestat.stats.reducer import Reducer

# Finding the distinct values of an array first pays when the head shows that most of them repeat.
_HEAD_ROWS = 1024
_MOST_DISTINCT_IN_HEAD = 128


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

    def finish(self) -> ColumnPartial:  # noqa: D102
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

    def _reduce(self, values: pa.Array) -> None:
        if pa.types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        self._measure(values)
        values = values.cast(pa.large_binary() if _is_large(values) else pa.binary())
        if _repeats(values):
            values = pc.unique(values)
        self._sketch.update(hash_bytes(values))
        self._widen(values)

    def _measure(self, values: pa.Array) -> None:
        offsets = _offsets(values)
        start, end = int(offsets[0]), int(offsets[-1])
        longest = int(np.diff(offsets).max())
        self._total_bytes += end - start
        self._max_bytes = max(self._max_bytes, longest)
        if not self._is_text:
            return
        if end == start or np.frombuffer(values.buffers()[2], np.int8)[start:end].min() >= 0:
            self._total_characters += end - start
            self._max_characters = max(self._max_characters, longest)
            return
        lengths = pc.utf8_length(values)
        self._total_characters += pc.sum(lengths).as_py()
        self._max_characters = max(self._max_characters, pc.max(lengths).as_py())

    def _widen(self, values: pa.Array) -> None:
        bounds = pc.min_max(values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if self._minimum is None or low < self._minimum:
            self._minimum = low
        if self._maximum is None or high > self._maximum:
            self._maximum = high


def _offsets(values: pa.Array) -> npt.NDArray[np.signedinteger]:
    dtype = np.int64 if _is_large(values) else np.int32
    return np.frombuffer(values.buffers()[1], dtype)[
        values.offset : values.offset + len(values) + 1
    ]


def _repeats(values: pa.Array) -> bool:
    if len(values) < _HEAD_ROWS:
        return False
    return len(pc.unique(values.slice(0, _HEAD_ROWS))) <= _MOST_DISTINCT_IN_HEAD


def _is_large(values: pa.Array) -> bool:
    return str(values.type) in ("large_binary", "large_string")
