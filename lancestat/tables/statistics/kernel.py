"""The kernel: from the Arrow batches of some rows to one partial per column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash  # noqa: F401  (registers the `nchash` namespace)
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import UnexpectedBatch, UnsupportedColumn
from lancestat.interrupts import keep_interrupts
from lancestat.tables.statistics.bounds import Bound, lower_bound, upper_bound
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, Kind, column_type
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.sketches import (
    INDEX_BITS,
    LARGEST_RANK,
    REGISTERS,
    QuantileBuilder,
    Sketch,
)

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


def analyze(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, quantiles: Collection[str] = ()
) -> dict[str, ColumnPartial]:
    """Reduce batches to one partial for every column of `schema`.

    Args:
        batches: any number, none included; each is let go before the one after the next is read.
            Columns are found by name, and those that `schema` does not name are ignored.
        schema: the columns to analyze with their types, which every batch must have.
        quantiles: names of the columns, of kinds that have histograms, whose partials get them.

    Raises:
        UnsupportedColumn: a column's type cannot be analyzed.
        UnexpectedBatch: a batch lacks a column or has another type.
    """
    reducers = {field.name: _reducer(field, field.name in quantiles) for field in schema}
    for batch in batches:
        for field in schema:
            reducers[field.name].update(_column(batch, field))
    return {name: reducer.finish() for name, reducer in reducers.items()}


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise UnexpectedBatch(f"a batch has no column '{field.name}', or has it more than once")
    array = batch.column(index)
    if array.type != field.type:
        message = f"a batch has column '{field.name}' as {array.type}, not {field.type}"
        raise UnexpectedBatch(message)
    return array


_MILLISECONDS_PER_DAY = 86_400_000


def _reducer(field: pa.Field, with_quantiles: bool) -> Reducer:
    type = column_type(field.type)
    if type is None:
        raise UnsupportedColumn(f"column '{field.name}' of type {field.type} cannot be analyzed")
    stored = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if type.kind in (Kind.STRING, Kind.BINARY):
        return BytesReducer(is_text=type.kind is Kind.STRING)
    if type.kind is Kind.BOOLEAN:
        return BooleanReducer()
    quantiles = QuantileBuilder() if with_quantiles else None
    if type.kind is Kind.FLOAT:
        return FloatReducer(f"f{stored.bit_width // 8}", quantiles)
    if type.kind is Kind.DECIMAL:
        return DecimalReducer(stored.bit_width, quantiles)
    if type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME):
        divisor, factor = TO_MICROSECONDS[stored.unit]
        width = stored.bit_width // 8
        return IntegerReducer(f"i{width}", quantiles, divisor=divisor, factor=factor)
    if pa.types.is_date64(stored):
        return IntegerReducer("i8", quantiles, divisor=_MILLISECONDS_PER_DAY)
    sign = "u" if pa.types.is_unsigned_integer(stored) else "i"
    dtype = f"{sign}{stored.bit_width // 8}"
    return IntegerReducer(dtype, quantiles)


Integers = npt.NDArray[np.integer[Any]]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Reducer(ABC):
    """The running statistic of one column; nulls and dictionaries are dealt with here, for all."""

    def __init__(self) -> None:
        self._rows = 0
        self._nulls = 0
        self._minimum: Bound | None = None
        self._maximum: Bound | None = None
        self._sketch = SketchBuilder()

    def update(self, array: pa.Array) -> None:
        """Add the rows of `array`, whose type is the column's for every call."""
        self._rows += len(array)
        if pa.types.is_dictionary(array.type):
            values, counts = _used_entries(array)
            self._nulls += len(array) - int(counts.sum())
        else:
            values, counts = _present(array), None
            self._nulls += len(array) - len(values)
        if len(values):
            self._reduce(values, counts)

    @abstractmethod
    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        """Add values: at least one, no nulls, neither dictionary nor views.

        `counts` says how many rows hold each value; without it, each is one row's.
        """

    @abstractmethod
    def finish(self) -> ColumnPartial:
        """Return the partial of all rows so far."""

    def _widen(self, low: Bound, high: Bound) -> None:
        if self._minimum is None or low < self._minimum:  # type: ignore[operator]
            self._minimum = low
        if self._maximum is None or high > self._maximum:  # type: ignore[operator]
            self._maximum = high


def _used_entries(array: pa.DictionaryArray) -> tuple[pa.Array, Counts]:
    """Return the entries of a dictionary that rows refer to, and how many rows do.

    Decoding it instead could take far more memory than the batch does.
    """
    dictionary = _without_views(array.dictionary)
    codes = _present(array.indices).to_numpy()
    counts = np.bincount(codes.astype(np.int64, copy=False), minlength=len(dictionary))
    used = (counts > 0) & dictionary.is_valid().to_numpy(zero_copy_only=False)
    return dictionary.filter(pa.array(used)), counts[used]


def _present(array: pa.Array) -> pa.Array:
    array = _without_views(array)
    return array.drop_null() if array.null_count else array


def _without_views(array: pa.Array) -> pa.Array:
    """Return the same values without views, which few of Arrow's functions take."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


class FixedWidthReducer(Reducer):
    """A reducer of a type whose values all have one width, with bounds that Python can compare."""

    def __init__(self, quantiles: QuantileBuilder | None = None) -> None:
        super().__init__()
        self._quantiles = quantiles
        self._nans = 0

    def finish(self) -> ColumnPartial:
        return ColumnPartial(
            rows=self._rows,
            nulls=self._nulls,
            nans=self._nans,
            minimum=self._minimum,
            maximum=self._maximum,
            total_bytes=0,
            max_bytes=0,
            sketch=self._sketch.finish(),
            quantiles=self._quantiles.finish() if self._quantiles else None,
        )


class BooleanReducer(FixedWidthReducer):
    """Booleans, as the integers 0 and 1."""

    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        true_count = values.true_count
        low, high = int(true_count == len(values)), int(true_count > 0)
        self._widen(low, high)
        self._sketch.update(mix(np.array([low, high], np.uint64)))


class IntegerReducer(FixedWidthReducer):
    """Integers, and what Arrow stores as integers: dates, timestamps and times of day.

    The canonical integer is `stored // divisor * factor`: what Spark sees of dates in milliseconds,
    and of timestamps and times of any unit.
    """

    def __init__(
        self,
        dtype: npt.DTypeLike,
        quantiles: QuantileBuilder | None = None,
        *,
        divisor: int = 1,
        factor: int = 1,
    ) -> None:
        super().__init__(quantiles)
        self._dtype = np.dtype(dtype)
        self._divisor = divisor
        self._factor = factor
        self._window = Window()

    def finish(self) -> ColumnPartial:
        self._count(self._window.drain())
        return super().finish()

    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        self._reduce_integers(stored(values, self._dtype), counts)

    def _reduce_integers(self, integers: Integers, counts: Counts | None) -> None:
        low, high = int(np.min(integers)), int(np.max(integers))
        self._widen(self._canonical(low), self._canonical(high))
        words = integers.astype(np.int64, copy=False).view(np.uint64)
        self._count(self._window.add(words, low, high))
        if self._quantiles:
            whole = integers if self._divisor == 1 else np.floor_divide(integers, self._divisor)
            floats = whole.astype(np.float64)
            self._quantiles.update(repeated(floats * self._factor, counts))

    def _canonical(self, integer: int) -> int:
        return integer // self._divisor * self._factor

    def _count(self, words: Words) -> None:
        if self._divisor != 1:
            words = np.floor_divide(words.view(np.int64), self._divisor).view(np.uint64)
        if self._factor != 1:
            words = words * np.uint64(self._factor)
        self._sketch.update(mix(words))


class DecimalReducer(IntegerReducer):
    """Decimals, as their unscaled integers; in 64 bits when all values of an array fit those."""

    def __init__(self, bit_width: int, quantiles: QuantileBuilder | None = None) -> None:
        super().__init__(np.int64 if bit_width == 128 else f"i{bit_width // 8}", quantiles)
        self._is_wide = bit_width == 128

    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        if not self._is_wide:
            super()._reduce(values, counts)
            return
        halves = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
        low, high = halves[values.offset : values.offset + len(values)].T
        low = np.ascontiguousarray(low)
        if values.type.precision <= _DIGITS_OF_64_BITS or (high == low >> 63).all():
            self._reduce_integers(low, counts)
            return
        bounds = pc.min_max(values)
        self._widen(_unscaled(bounds["min"]), _unscaled(bounds["max"]))
        self._sketch.update(hash_decimals(low.view(np.uint64), high))
        if self._quantiles:
            wide = high * 2.0**64 + low.view(np.uint64)
            floats = np.where(high == low >> 63, low, wide)
            self._quantiles.update(repeated(floats, counts))


class FloatReducer(FixedWidthReducer):
    """Floats of any width, as float64."""

    def __init__(self, dtype: npt.DTypeLike, quantiles: QuantileBuilder | None = None) -> None:
        super().__init__(quantiles)
        self._dtype = np.dtype(dtype)

    @np.errstate(invalid="ignore")  # signalling NaN are valid input
    def _reduce(self, values: pa.Array, counts: Counts | None) -> None:
        floats = stored(values, self._dtype).astype(np.float64, copy=False)
        self._sketch.update(hash_floats(floats))
        if self._quantiles:
            self._quantiles.update(repeated(floats, counts))
        is_nan = np.isnan(floats)
        if is_nan.any():
            self._nans += int(is_nan.sum() if counts is None else counts[is_nan].sum())
            floats = floats[~is_nan]
        if not len(floats):
            return
        low, high = float(np.min(floats)), float(np.max(floats))
        # Zero bounds cover both zeros, as Lance's own file statistics do.
        self._widen(low if low else -0.0, high if high else 0.0)


_DIGITS_OF_64_BITS = 18


def stored(values: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values as Arrow stores them, without a copy."""
    return np.frombuffer(values.buffers()[1], dtype)[values.offset : values.offset + len(values)]


def repeated(floats: Floats, counts: Counts | None) -> Floats:
    """Return each value as many times as rows hold it."""
    return floats if counts is None else np.repeat(floats, counts)


def _unscaled(scalar: pa.Scalar) -> int:
    words = pa.array([scalar], scalar.type).buffers()[1]
    return int.from_bytes(words[:16].to_pybytes(), "little", signed=True)


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
        self._familiar: set[bytes] = set()

    def finish(self) -> ColumnPartial:
        minimum, maximum = self._minimum, self._maximum
        return ColumnPartial(
            rows=self._rows,
            nulls=self._nulls,
            nans=0,
            minimum=lower_bound(minimum) if isinstance(minimum, bytes) else None,
            maximum=upper_bound(maximum) if isinstance(maximum, bytes) else None,
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
        self._widen_to(values, views)

    def _unfamiliar(self, values: pa.Array) -> pa.Array:
        """Return the values less those already counted: of few short values, the same recur."""
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

    def _widen_to(self, values: pa.Array, views: pa.Array) -> None:
        """Widen the bounds; only values whose prefix reaches a bound so far are compared whole."""
        prefixes = _prefixes(views)
        if isinstance(self._minimum, bytes) and isinstance(self._maximum, bytes):
            lowest, highest = _prefix(self._minimum), _prefix(self._maximum)
        else:
            lowest, highest = int(np.min(prefixes)), int(np.max(prefixes))
        reaching = np.flatnonzero((prefixes <= lowest) | (prefixes >= highest))
        if not len(reaching):
            return
        # Where most values share a prefix, comparing them all costs less than picking them out.
        bounds = pc.min_max(values.take(reaching) if 2 * len(reaching) < len(values) else values)
        self._widen(bounds["min"].as_py(), bounds["max"].as_py())


def _sum_and_max(lengths: Integers, counts: Counts | None) -> tuple[int, int]:
    total = lengths.sum(dtype=np.int64) if counts is None else counts @ lengths
    return int(total), int(np.max(lengths))


def _distinct(values: pa.Array) -> pa.Array:
    """Return the values without repeats, or as they are when finding repeats would not pay."""
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
    """Return the bytes of all values, one after the other."""
    offsets = _offsets(values)
    buffer = values.buffers()[2]
    content = np.frombuffer(buffer, dtype) if buffer else np.empty(0, dtype)
    return content[offsets[0] : offsets[-1]]


def _offsets(values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    buffer = values.buffers()[1]
    window = slice(values.offset, values.offset + len(values) + 1)
    if _is_large(values):
        return np.frombuffer(buffer, np.int64)[window]
    return np.frombuffer(buffer, np.int32)[window]


def _is_large(values: pa.Array) -> bool:
    return str(values.type) in ("large_binary", "large_string")


def _prefix(value: bytes) -> int:
    return int.from_bytes(value[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0"), "big")


def _prefixes(views: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the first bytes of every value, as integers of the same order."""
    fields = np.frombuffer(views.buffers()[1], ">u4").reshape(-1, 4)
    return fields[views.offset : views.offset + len(views), 1].astype(np.uint32)
