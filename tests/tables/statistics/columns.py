"""Columns of every type that can be analyzed, and the truth about them in plain Python."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.hashing import hash_bytes
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.sketches import Sketch

WORD = 2**64
EXACT = Context(prec=60)


def _build(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, type)


def _build_halves(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array([None if v is None else np.float16(v) for v in values], type)


def _build_view(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).view(type)


def _build_decimals(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    decimals = [None if v is None else EXACT.scaleb(Decimal(v), -type.scale) for v in values]
    return pa.array(decimals, type)


def _build_text(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array([None if v is None else v.decode() for v in values], pa.string()).cast(type)


@dataclass(frozen=True)
class Column:
    """A type with its values as Arrow stores them, and as the kernel counts them."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    build: Callable[[Sequence[Any], pa.DataType], pa.Array] = _build
    canonical: Callable[[Any], Bound] = field(default=lambda value: value)
    is_text: bool = False

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.build(values, self.type)

    def __repr__(self) -> str:
        return str(self.type)


def _integers(type: pa.DataType, bits: int, *, signed: bool = True, **kw: Any) -> Column:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = st.sampled_from([low, low + 1, 0, high - 1, high])
    near = st.integers(max(low, -60), min(high, 60))
    return Column(type, st.one_of(near, edges, st.integers(low, high)), **kw)


def _floats(type: pa.DataType, width: int, **kw: Any) -> Column:
    edges = st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1.5])
    return Column(type, st.one_of(edges, st.floats(width=width)), **kw)


def _decimals(type: pa.DataType) -> Column:
    most = 10**type.precision - 1
    edges = st.sampled_from([-most, -1, 0, 1, most])
    return Column(type, st.one_of(edges, st.integers(-most, most)), build=_build_decimals)


LONG = st.sampled_from([0, 1, 12, 13, 200, 255, 256, 257, 300])
BYTES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff", b"prefix-1", b"prefix-2"]),
    st.builds(lambda n, tail: b"\xff" * n + tail, LONG, st.binary(max_size=2)),
    st.builds(lambda n, tail: b"m" * n + tail, LONG, st.binary(max_size=2)),
)
CHARACTERS = st.characters(codec="utf-8")
TEXT = st.one_of(
    st.text(CHARACTERS, max_size=10),
    st.sampled_from(["", "\x00", "a", "b", "a\x00", "é", "€", "\U0010ffff", "\ud7ff", "common-1"]),
    st.builds(lambda n, tail: "m" * n + tail, LONG, st.text(CHARACTERS, max_size=2)),
    st.builds(lambda n, tail: "\U0010ffff" * n + tail, LONG, st.text(CHARACTERS, max_size=2)),
).map(str.encode)


def _build_clock(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)


_TO_MICROS: dict[str, Callable[[int], int]] = {
    "s": lambda s: s * 1_000_000,
    "ms": lambda ms: ms * 1_000,
    "us": lambda us: us,
    "ns": lambda ns: ns // 1_000,
}


def _instants(unit: str, zone: str | None) -> Column:
    type = pa.timestamp(unit, zone)
    return _integers(type, 64, build=_build_view, canonical=_TO_MICROS[unit])


def _clocks(unit: str, second: int) -> Column:
    type = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    last = 86_400 * second - 1
    values = st.one_of(st.sampled_from([0, 1, last - 1, last]), st.integers(0, last))
    return Column(type, values, build=_build_clock, canonical=_TO_MICROS[unit])


COLUMNS = [
    Column(pa.bool_(), st.booleans(), canonical=int),
    *(_integers(type, type.bit_width) for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(
        _integers(type, type.bit_width, signed=False)
        for type in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    ),
    _floats(pa.float16(), 16, build=_build_halves),
    _floats(pa.float32(), 32),
    _floats(pa.float64(), 64),
    *(
        _decimals(pa.decimal128(*digits))
        for digits in ((5, 0), (18, 2), (19, 4), (38, 0), (38, 38))
    ),
    *(_decimals(type) for type in (pa.decimal32(9, 3), pa.decimal64(18, 0))),
    _integers(pa.date32(), 32, build=lambda values, type: pa.array(values, pa.int32()).view(type)),
    _integers(pa.date64(), 64, build=_build_view, canonical=lambda ms: ms // 86_400_000),
    *(_instants(unit, zone) for zone in ("Europe/Berlin", None) for unit in _TO_MICROS),
    *(
        _clocks(unit, second)
        for unit, second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    ),
    *(
        Column(type, TEXT, build=_build_text, is_text=True)
        for type in (pa.string(), pa.large_string(), pa.string_view())
    ),
    *(Column(type, BYTES) for type in (pa.binary(), pa.large_binary(), pa.binary_view())),
    Column(pa.binary(3), st.binary(min_size=3, max_size=3)),
    Column(pa.binary(0), st.just(b"")),
]


def mix(word: int) -> int:
    """SplitMix64's first output, on Python's integers."""
    z = (word + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def hash_value(value: int | float, *, is_decimal: bool = False) -> int:
    """The documented hash of one canonical value that is a number."""
    if isinstance(value, float):
        canonical = math.nan if math.isnan(value) else value + 0.0
        return mix(int.from_bytes(struct.pack("<d", canonical), "little"))
    if is_decimal and not -(2**63) <= value < 2**63:
        return mix(value % WORD ^ mix((value >> 64) % WORD))
    return mix(value % WORD)


def hashes_of(values: set[Bound], *, is_decimal: bool) -> set[int]:
    """The documented hashes of canonical values."""
    texts = [value for value in values if isinstance(value, bytes)]
    numbers = [value for value in values if not isinstance(value, bytes)]
    return {
        *hash_bytes(pa.array(texts, pa.binary_view())).tolist(),
        *(hash_value(value, is_decimal=is_decimal) for value in numbers),
    }


def sketch_of(hashes: set[int]) -> Sketch:
    """A sketch, one hash at a time."""
    registers = bytearray(4096)
    for hash in hashes:
        index, rest = hash % 4096, hash >> 12
        registers[index] = max(registers[index], 53 - rest.bit_length())
    return Sketch.of(bytes(registers))


def true_partial(column: Column, stored: Sequence[Any]) -> ColumnPartial:
    """The partial of some rows, from the definitions."""
    values = [column.canonical(value) for value in stored if value is not None]
    is_nan = [isinstance(value, float) and math.isnan(value) for value in values]
    bounded = [value for value, nan in zip(values, is_nan, strict=True) if not nan]
    lengths = [len(value) if isinstance(value, bytes) else 0 for value in values]
    characters = [len(value.decode()) if column.is_text else 0 for value in values]
    is_decimal = pa.types.is_decimal(column.type)
    minimum, maximum = min(bounded, default=None), max(bounded, default=None)
    return ColumnPartial(
        rows=len(stored),
        nulls=len(stored) - len(values),
        nans=sum(is_nan),
        minimum=_true_lower(minimum),
        maximum=_true_upper(maximum),
        total_bytes=sum(lengths),
        max_bytes=max(lengths, default=0),
        sketch=sketch_of(hashes_of(set(values), is_decimal=is_decimal)),
        total_characters=sum(characters),
        max_characters=max(characters, default=0),
    )


def _true_lower(value: Bound | None) -> Bound | None:
    if isinstance(value, float) and value == 0:
        return -0.0
    return value[:256] if isinstance(value, bytes) else value


def _true_upper(value: Bound | None) -> Bound | None:
    if isinstance(value, float) and value == 0:
        return 0.0
    if not isinstance(value, bytes) or len(value) <= 256:
        return value
    # The least longer-or-equal prefix of at most 256 bytes that ends in a byte raised by one.
    for end in range(256, 0, -1):
        if value[end - 1] < 255:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None
