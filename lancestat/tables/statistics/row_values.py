"""The values of a column by row: their hashes, and values in the form of bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, Kind, column_type
from lancestat.tables.statistics.hashing import Words, hash_bytes, hash_decimals, hash_floats, mix

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_MILLISECONDS_PER_DAY = 86_400_000
_TEXTS = (Kind.STRING, Kind.BINARY)
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME)
_SECOND = np.uint64(0xD6E8FEB86659FD93)
_WORD = 2**64
_HALVES = np.dtype((np.int64, 2))
DIGITS_OF_64_BITS = 18


def stored(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values as Arrow stores them, without a copy; those of nulls are anything."""
    width = np.dtype(dtype)
    return np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values)]


def without_views(array: pa.Array) -> pa.Array:
    """Return the same values without views, which few of Arrow's functions take."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def content(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the bytes of all strings or binary values, one after the other."""
    ends = offsets(values)
    buffer = values.buffers()[2]
    whole = np.frombuffer(buffer, dtype) if buffer else np.empty(0, dtype)
    return whole[ends[0] : ends[-1]]


def offsets(values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """Return where strings or binary values begin, and the last one ends."""
    window = slice(values.offset, values.offset + len(values) + 1)
    return np.frombuffer(values.buffers()[1], np.int64 if is_large(values) else np.int32)[window]


def is_large(values: pa.Array) -> bool:
    """Whether offsets have 64 bits."""
    return str(values.type) in ("large_binary", "large_string")


def are_one_byte(values: pa.Array) -> bool:
    """Whether each of some strings or binary values has one byte; not tried of other layouts."""
    if values.null_count or not (is_large(values) or str(values.type) in ("binary", "string")):
        return False
    ends = offsets(values)
    return bool(ends[-1] - ends[0] == len(values) and (np.diff(ends) == 1).all())


# Finding the distinct values of an array first pays when its head shows that most of them repeat.
_HEAD_ROWS = 1024
_MOST_DISTINCT_IN_HEAD = 128


def mostly_repeat(values: pa.Array) -> bool:
    """Whether many of the first values are equal."""
    if len(values) < _HEAD_ROWS:
        return False
    return len(pc.unique(values.slice(0, _HEAD_ROWS))) <= _MOST_DISTINCT_IN_HEAD


def one_byte_values(codes: npt.NDArray[np.uint8]) -> pa.Array:
    """Return binary values of one byte each."""
    ends = np.arange(len(codes) + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(codes), [None, *map(pa.py_buffer, (ends, codes))])


def unscaled(scalar: pa.Scalar) -> int:
    """Return the unscaled integer of a decimal."""
    words = pa.array([scalar], scalar.type).buffers()[1]
    width = scalar.type.bit_width // 8
    return int.from_bytes(words[:width].to_pybytes(), "little", signed=True)


def to_integers(type: pa.DataType) -> tuple[int, int]:
    """Return the divisor and the factor from stored integers to those of bounds."""
    if pa.types.is_date64(type):
        return _MILLISECONDS_PER_DAY, 1
    if pa.types.is_timestamp(type) or pa.types.is_time(type):
        return TO_MICROSECONDS[type.unit]
    return 1, 1


@dataclass(frozen=True, slots=True)
class Codes:
    """A number below `size` for each row: those of rows with equal values, and of no others, are
    equal; those of nulls are anything. Of integers they are the differences to `low`."""

    rows: Rows
    size: int
    low: int = 0


# More values than that are counted as fast by their hashes.
_MOST_CODES = 1 << 17
_MOST_JOINT_CODES = 1 << 16


def joint_codes(columns: Sequence[RowValues]) -> Codes | None:
    """Return codes of the tuples of columns, None where there are none, or too many."""
    first, *others = columns
    if first.codes is None or not others:
        return first.codes
    rows, size = first.codes.rows, first.codes.size
    for column in others:
        if column.codes is None or size * column.codes.size > _MOST_JOINT_CODES:
            return None
        rows, size = rows * column.codes.size + column.codes.rows, size * column.codes.size
    return Codes(rows, size)


def codes_by_column(codes: Rows, columns: Sequence[RowValues]) -> list[Rows]:
    """Return the codes in each column of tuples, given their joint codes."""
    parts: list[Rows] = []
    for column in reversed(columns[1:]):
        assert column.codes is not None, "joint codes are made of those of the columns"
        codes, part = np.divmod(codes, column.codes.size)
        parts.append(part)
    return [codes, *reversed(parts)]


class RowValues:
    """A column of a batch, of a type that can be analyzed.

    Args:
        array: The column.
        distinct: The values of its dictionary, where it is one in which none is twice or null.
    """

    def __init__(self, array: pa.Array, *, distinct: RowValues | None = None) -> None:
        self._distinct = distinct
        self._codes: npt.NDArray[np.int64] | None = None
        self._valid: Mask | None = None
        if pa.types.is_dictionary(array.type):
            # Decoding it could take far more memory than the batch does.
            indices = array.indices
            self._codes = indices.fill_null(0).to_numpy().astype(np.int64, copy=False)
            self._valid = _validity(indices)
            array = array.dictionary
        self._values = without_views(array)
        type = column_type(array.type)
        assert type is not None, f"{array.type} can be analyzed"
        self._kind = type.kind

    @cached_property
    def valid(self) -> Mask | None:
        """Which rows are not null, None where all are."""
        valid = _validity(self._values)
        if self._codes is None or (valid is None and len(self._values)):
            return valid if self._codes is None else self._valid
        if not len(self._values):
            return np.zeros(len(self._codes), np.bool_)
        assert valid is not None
        return valid[self._codes] if self._valid is None else valid[self._codes] & self._valid

    @cached_property
    def hashes(self) -> Words:
        """A hash of each row's value; those of nulls are anything."""
        return self._by_row(self._hashes)

    @cached_property
    def _hashes(self) -> Words:
        return self._distinct.hashes if self._distinct else self._hashed(0)

    @cached_property
    def codes(self) -> Codes | None:
        """The codes of the values, where they are few or close together."""
        if self._codes is not None:
            return Codes(self._codes, len(self._values)) if self._distinct else None
        integers = self._integers()
        if integers is None or not len(integers):
            return None
        if integers.itemsize < 8:
            # Differences of short ones could overflow.
            integers = integers.astype(np.int64)
        present = integers if self.valid is None else integers[self.valid]
        if not len(present):
            return None
        low = np.min(present)
        size = int(np.max(present)) - int(low) + 1
        if size > _MOST_CODES:
            return None
        codes = (integers - low).astype(np.int64, copy=False)
        if self.valid is not None:
            codes = np.where(self.valid, codes, 0)
        return Codes(codes, size, int(low))

    @cached_property
    def counts(self) -> Rows | None:
        """How many rows have each code, where there are codes."""
        if self.codes is None:
            return None
        rows = self.codes.rows if self.valid is None else self.codes.rows[self.valid]
        return np.bincount(rows, minlength=self.codes.size)

    def counted(self) -> tuple[pa.Array, Rows] | None:
        """Return the different values and how many rows hold each, None where few are equal."""
        if self.codes is None or 4 * self.codes.size > len(self.codes.rows):
            return None
        assert self.counts is not None, "there are codes"
        used = np.flatnonzero(self.counts > 0)
        return self.values_at(used), self.counts[used]

    def values_at(self, codes: Rows) -> pa.Array:
        """Return the values that have these codes."""
        assert self.codes is not None, "there are codes"
        if self._codes is not None:
            return self._values.take(pa.array(codes))
        # Modulo 2^64, which is the same for signed and unsigned ones.
        integers = codes + np.array(self.codes.low % _WORD, np.uint64).view(np.int64)
        return _of_integers(integers, self._values.type)

    def hashes_at(self, codes: Rows) -> Words:
        """Return the hashes of the values that have these codes."""
        if self._codes is not None:
            return self._hashes[codes]
        if self._kind in _TEXTS and self.codes is not None:
            return _byte_hashes()[codes + self.codes.low]
        return RowValues(self.values_at(codes)).hashes

    def bounds_at(self, codes: Rows) -> list[Bound]:
        """Return the values that have these codes in the form of bounds."""
        return RowValues(self.values_at(codes)).bounds()

    def _integers(self) -> npt.NDArray[Any] | None:
        """Return integers that are equal where values are, None where there are none."""
        if self._kind is Kind.FLOAT:
            return None
        if self._kind in _TEXTS:
            return content(self._values, np.uint8) if are_one_byte(self._values) else None
        if self._kind is Kind.BOOLEAN:
            booleans: npt.NDArray[Any] = self._values.fill_null(False).cast(pa.uint8()).to_numpy()
            return booleans
        if self._is_wide:
            low, high = stored(self._values, _HALVES).T
            low = np.ascontiguousarray(low)
            fits = self._values.type.precision <= DIGITS_OF_64_BITS or (high == low >> 63).all()
            return low if fits else None
        divisor, _ = to_integers(self._values.type)
        return _fixed_width(self._values) if divisor == 1 else None

    @property
    def other_hashes(self) -> Words:
        """Other hashes than `hashes`: of values with the same one they differ."""
        if self._kind in _TEXTS or self._is_wide:
            return self._by_row(self._hashed(1))
        return mix(self.hashes ^ _SECOND)

    @property
    def is_invertible(self) -> bool:
        """Whether values with equal hashes are equal."""
        return self._kind not in _TEXTS and not self._is_wide

    @property
    def _is_wide(self) -> bool:
        return self._kind is Kind.DECIMAL and self._values.type.bit_width == 128

    def _by_row(self, hashes: Words) -> Words:
        if self._codes is None:
            return hashes
        return hashes[self._codes] if len(hashes) else np.zeros(len(self._codes), np.uint64)

    def _hashed(self, seed: int) -> Words:
        values = self._values
        if self._kind in _TEXTS:
            return hash_bytes(_bytes(values).fill_null(b"").cast(pa.binary_view()), seed)
        if self._kind is Kind.BOOLEAN:
            return mix(values.fill_null(False).cast(pa.uint8()).to_numpy().astype(np.uint64))
        if self._kind is Kind.FLOAT:
            with np.errstate(invalid="ignore"):
                return hash_floats(_fixed_width(values).astype(np.float64, copy=False))
        if self._is_wide:
            low, high = np.ascontiguousarray(stored(values, _HALVES).T)
            halves = (high, low) if seed else (low, high)
            return hash_decimals(halves[0].view(np.uint64), halves[1])
        integers = _fixed_width(values).astype(np.int64, copy=False)
        divisor, _ = to_integers(values.type)
        if divisor != 1:
            integers = np.floor_divide(integers, divisor)
        return mix(integers.view(np.uint64))

    def comparable(self, rows: Rows | None = None) -> pa.Array:
        """Return the values of some rows in a type whose order and equality are those of bounds."""
        values = self._taken(rows)
        if self._kind in _TEXTS:
            return _bytes(values)
        if self._kind is Kind.BOOLEAN:
            return values.cast(pa.uint8())
        if self._kind is Kind.FLOAT:
            return values.cast(pa.float64())
        if self._kind is Kind.DECIMAL:
            return values.cast(pa.decimal128(values.type.precision, values.type.scale))
        divisor, _ = to_integers(values.type)
        bits = values.type.bit_width
        if not pa.types.is_integer(values.type):
            values = values.view(pa.int64() if bits == 64 else pa.int32())
        if divisor == 1:
            return values
        whole = np.floor_divide(values.fill_null(0).to_numpy(), divisor)
        return pa.array(whole, mask=~values.is_valid().to_numpy(zero_copy_only=False))

    def bounds(self, rows: Rows | None = None) -> list[Bound]:
        """Return the values of some rows, none of which is null, in the form of bounds."""
        return self.as_bounds(self.comparable(rows))

    def as_bounds(self, comparable: Iterable[pa.Scalar]) -> list[Bound]:
        """Return comparable values in the form of bounds."""
        if self._kind is Kind.DECIMAL:
            return [unscaled(scalar) for scalar in comparable]
        _, factor = to_integers(self._values.type)
        return [
            value * factor if factor != 1 else value
            for value in (scalar.as_py() for scalar in comparable)
        ]

    def _taken(self, rows: Rows | None) -> pa.Array:
        if self._codes is not None:
            codes = self._codes if rows is None else self._codes[rows]
            return self._values.take(pa.array(codes))
        return self._values if rows is None else self._values.take(pa.array(rows))


_MOST_KNOWN = 1024
_MOST_KNOWN_BYTES = 1 << 20
_MOST_MISSES = 4


class TextEncoder:
    """Makes dictionaries of the batches of a column of strings or binary whose values repeat.

    To look values up among those of earlier batches takes three quarters of what
    `dictionary_encode` does; it is given up where batches go on to have others.
    """

    def __init__(self) -> None:
        self._known: pa.Array | None = None
        self._distinct: RowValues | None = None
        self._misses = 0

    def encoded(self, array: pa.Array) -> RowValues:
        """Return the rows of a batch, as a dictionary where that pays."""
        array, known = without_views(array), self._known
        if known is not None:
            codes = pc.index_in(array, value_set=known)
            if codes.null_count == array.null_count:
                encoded = pa.DictionaryArray.from_arrays(codes, known, safe=False)
                return RowValues(encoded, distinct=self._distinct)
            self._misses += 1
        if not mostly_repeat(array) or are_one_byte(array):
            return RowValues(array)
        encoded = array.dictionary_encode()
        values = encoded.dictionary
        known = values if known is None else pc.unique(pa.concat_arrays([known, values]))
        is_small = len(known) <= _MOST_KNOWN and known.nbytes <= _MOST_KNOWN_BYTES
        self._known = known if is_small and self._misses < _MOST_MISSES else None
        self._distinct = RowValues(known)
        return RowValues(encoded, distinct=RowValues(values))


def all_valid(columns: Sequence[RowValues]) -> Mask | None:
    """Return the rows in which no column is null, None where those are all rows."""
    masks = [mask for column in columns if (mask := column.valid) is not None]
    return np.logical_and.reduce(masks) if masks else None


def _validity(values: pa.Array) -> Mask | None:
    valid: Mask | None = None
    if values.null_count:
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return valid


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary() if is_large(values) else pa.binary())


def _fixed_width(values: pa.Array) -> npt.NDArray[Any]:
    type = values.type
    if pa.types.is_floating(type):
        return stored(values, f"f{type.bit_width // 8}")
    sign = "u" if pa.types.is_unsigned_integer(type) else "i"
    return stored(values, f"{sign}{type.bit_width // 8}")


@lru_cache(maxsize=1)
def _byte_hashes() -> Words:
    return RowValues(one_byte_values(np.arange(256, dtype=np.uint8))).hashes


def _of_integers(integers: Rows, type: pa.DataType) -> pa.Array:
    """Return the values of a type whose integers `RowValues` makes codes of."""
    if pa.types.is_boolean(type):
        return pa.array(integers.astype(np.bool_))
    if not (pa.types.is_primitive(type) or pa.types.is_decimal(type)):
        return one_byte_values(integers.astype(np.uint8))
    if type.bit_width == 128:
        words = np.stack((integers, integers >> 63), axis=1)
    else:
        words = integers.astype(f"i{type.bit_width // 8}")
    return pa.Array.from_buffers(type, len(integers), [None, pa.py_buffer(words)])
