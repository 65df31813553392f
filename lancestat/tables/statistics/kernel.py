"""The kernel: from the Arrow batches of some rows to one partial per column and group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.errors import UnexpectedBatch, UnsupportedColumn
from lancestat.tables.statistics.bounds import Bound, lower_bound, upper_bound
from lancestat.tables.statistics.column_type import Kind, column_type
from lancestat.tables.statistics.hashing import (
    SketchBuilder,
    Words,
    hash_bytes,
    hash_decimals,
    hash_floats,
    mix,
)
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.row_values import (
    DIGITS_OF_64_BITS,
    RowValues,
    TextEncoder,
    are_one_byte,
    content,
    is_large,
    mostly_repeat,
    offsets,
    one_byte_values,
    stored,
    to_integers,
    unscaled,
    without_views,
)
from lancestat.tables.statistics.sketches import QuantileBuilder
from lancestat.tables.statistics.tuples import TupleReducer

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


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a column, or of a group of them.

    Attributes:
        columns: The column, or those of the group in the order of their tuples.
        quantiles: Whether a column's partial gets them; its kind must have histograms.
        common_values: The capacity of its common values, 0 for none.
        is_key: Whether to find out whether values repeat.
        keeps_hashes: Whether the proof of a key gets hashes, with which it merges.
    """

    columns: tuple[str, ...]
    quantiles: bool = False
    common_values: int = 0
    is_key: bool = False
    keeps_hashes: bool = False

    @property
    def needs_tuples(self) -> bool:
        """Whether the partial takes more than a column's reducer."""
        return len(self.columns) > 1 or self.common_values > 0 or self.is_key


def analyze(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, quantiles: Collection[str] = ()
) -> dict[str, ColumnPartial]:
    """Reduce batches to one partial for every column of `schema`.

    Args:
        batches: as for `reduce_batches`.
        schema: the columns to analyze with their types, which every batch must have.
        quantiles: names of the columns, of kinds that have histograms, whose partials get them.

    Raises:
        UnsupportedColumn: a column's type cannot be analyzed.
        UnexpectedBatch: a batch lacks a column or has another type.
    """
    requests = {name: Request((name,), quantiles=name in quantiles) for name in schema.names}
    return reduce_batches(batches, schema, requests)


def reduce_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, requests: Mapping[str, Request]
) -> dict[str, ColumnPartial]:
    """Reduce batches to one partial for each request, by its key.

    Args:
        batches: any number, none included; each is let go before the one after the next is read.
            Columns are found by name, and those that `schema` does not name are ignored.
        schema: the columns of the requests with their types, which every batch must have.
        requests: what is asked, by a key of the caller's.

    Raises:
        UnsupportedColumn: a column's type cannot be analyzed.
        UnexpectedBatch: a batch lacks a column or has another type.
    """
    reducers: dict[str, Reducer] = {}
    tuples: dict[str, TupleReducer] = {}
    for key, request in requests.items():
        if len(request.columns) == 1:
            reducers[key] = _reducer(schema.field(request.columns[0]), request.quantiles)
        if request.needs_tuples:
            tuples[key] = TupleReducer(
                len(request.columns),
                capacity=request.common_values,
                is_key=request.is_key,
                keeps_hashes=request.keeps_hashes,
            )
    by_row = dict.fromkeys(name for key in tuples for name in requests[key].columns)
    texts = {name: TextEncoder() for name in by_row if _is_text(schema.field(name).type)}
    for batch in batches:
        columns = {field.name: _column(batch, field) for field in schema}
        rows = {
            name: texts[name].encoded(columns[name]) if name in texts else RowValues(columns[name])
            for name in by_row
        }
        for key, request in requests.items():
            name = request.columns[0]
            if key in reducers:
                is_counted = request.common_values or name in texts
                counted = rows[name].counted() if is_counted else None
                if counted is None:
                    reducers[key].update(columns[name])
                else:
                    reducers[key].add(*counted, batch.num_rows)
            if key in tuples:
                tuples[key].update([rows[name] for name in request.columns], batch.num_rows)
    return {key: _finished(reducers.get(key), tuples.get(key)) for key in requests}


def _is_text(type: pa.DataType) -> bool:
    """Whether values are strings or binary, and no dictionary yet."""
    of_column = column_type(type)
    is_text = of_column is not None and of_column.kind in (Kind.STRING, Kind.BINARY)
    return is_text and not pa.types.is_dictionary(type)


def _finished(reducer: Reducer | None, tuples: TupleReducer | None) -> ColumnPartial:
    if reducer is None:
        assert tuples is not None, "a request of several columns has tuples"
        return tuples.finish()
    partial = reducer.finish()
    return replace(partial, common=tuples.common, key=tuples.key) if tuples else partial


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise UnexpectedBatch(f"a batch has no column '{field.name}', or has it more than once")
    array = batch.column(index)
    if array.type != field.type:
        message = f"a batch has column '{field.name}' as {array.type}, not {field.type}"
        raise UnexpectedBatch(message)
    return array


def _reducer(field: pa.Field, with_quantiles: bool) -> Reducer:
    type = column_type(field.type)
    if type is None:
        raise UnsupportedColumn(f"column '{field.name}' of type {field.type} cannot be analyzed")
    arrow_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if type.kind in (Kind.STRING, Kind.BINARY):
        return BytesReducer(is_text=type.kind is Kind.STRING)
    if type.kind is Kind.BOOLEAN:
        return BooleanReducer()
    quantiles = QuantileBuilder() if with_quantiles else None
    if type.kind is Kind.FLOAT:
        return FloatReducer(f"f{arrow_type.bit_width // 8}", quantiles)
    if type.kind is Kind.DECIMAL:
        return DecimalReducer(arrow_type.bit_width, quantiles)
    divisor, factor = to_integers(arrow_type)
    sign = "u" if pa.types.is_unsigned_integer(arrow_type) else "i"
    dtype = f"{sign}{arrow_type.bit_width // 8}"
    return IntegerReducer(dtype, quantiles, divisor=divisor, factor=factor)


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
        if pa.types.is_dictionary(array.type):
            self.add(*_used_entries(array), len(array))
        else:
            self.add(_present(array), None, len(array))

    def add(self, values: pa.Array, counts: Counts | None, rows: int) -> None:
        """Add so many rows, given those of their values that are no nulls, as for `_reduce`."""
        self._rows += rows
        self._nulls += rows - (len(values) if counts is None else int(counts.sum()))
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
    dictionary = without_views(array.dictionary)
    codes = _present(array.indices).to_numpy()
    counts = np.bincount(codes.astype(np.int64, copy=False), minlength=len(dictionary))
    used = (counts > 0) & dictionary.is_valid().to_numpy(zero_copy_only=False)
    return dictionary.filter(pa.array(used)), counts[used]


def _present(array: pa.Array) -> pa.Array:
    array = without_views(array)
    return array.drop_null() if array.null_count else array


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
        if values.type.precision <= DIGITS_OF_64_BITS or (high == low >> 63).all():
            self._reduce_integers(low, counts)
            return
        bounds = pc.min_max(values)
        self._widen(unscaled(bounds["min"]), unscaled(bounds["max"]))
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


def repeated(floats: Floats, counts: Counts | None) -> Floats:
    """Return each value as many times as rows hold it."""
    return floats if counts is None else np.repeat(floats, counts)


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
        values = _distinct(values.cast(pa.large_binary() if is_large(values) else pa.binary()))
        values = self._unfamiliar(values)
        if not len(values):
            return
        # A view enters Polars without a copy; casting to it copies only lengths and short values.
        views = values.cast(pa.binary_view())
        self._sketch.update(hash_bytes(views))
        self._widen_to(values, views)

    def _unfamiliar(self, values: pa.Array) -> pa.Array:
        """Return the values less those already counted: of few short values, the same recur."""
        if len(values) > _MOST_FAMILIAR or content(values, np.uint8).size > _MOST_FAMILIAR_BYTES:
            return values
        fresh = [value for value in values.to_pylist() if value not in self._familiar]
        if len(self._familiar) + len(fresh) > _MOST_FAMILIAR:
            self._familiar.clear()
        self._familiar.update(fresh)
        return pa.array(fresh, values.type)

    def _measure(self, values: pa.Array, counts: Counts | None) -> None:
        total, longest = _sum_and_max(np.diff(offsets(values)), counts)
        self._total_bytes += total
        self._max_bytes = max(self._max_bytes, longest)
        if not self._is_text:
            return
        # A byte of more than one character's bytes is negative as a signed one.
        if longest and content(values, np.int8).min() < 0:
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
    if are_one_byte(values):
        occurs = np.zeros(256, np.bool_)
        occurs[content(values, np.uint8)] = True
        return one_byte_values(np.flatnonzero(occurs).astype(np.uint8))
    return pc.unique(values) if mostly_repeat(values) else values


def _prefix(value: bytes) -> int:
    return int.from_bytes(value[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0"), "big")


def _prefixes(views: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the first bytes of every value, as integers of the same order."""
    fields = np.frombuffer(views.buffers()[1], ">u4").reshape(-1, 4)
    return fields[views.offset : views.offset + len(views), 1].astype(np.uint32)
