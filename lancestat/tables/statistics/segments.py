"""The kernel for many small fragments: one batch of all their rows, and whole columns of partials.

For 250 rows the calls to libraries cost far more than the work that they do. Here each is made once
for all fragments, and the partials are those that `kernel.reduce_batches` makes of each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancestat.polars import pl
from lancestat.tables.statistics.bounds import Bound, lower_bound, upper_bound
from lancestat.tables.statistics.column_type import Kind, column_type
from lancestat.tables.statistics.hashing import INDEX_MASK, Words, hash_bytes, hash_floats, mix
from lancestat.tables.statistics.hashing import ranks as ranks_of
from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.row_values import (
    content,
    is_large,
    offsets,
    stored,
    to_integers,
    without_views,
)
from lancestat.tables.statistics.sketches import (
    EMPTY_SKETCH,
    INDEX_BITS,
    MOST_LISTED,
    PAIR,
    PAIR_BYTES,
    REGISTERS,
    Sketch,
)

Counts = npt.NDArray[np.int64]

_RANK_BITS = 6
# As many segments fit 32 bits beside an index of a register and a rank.
MOST_SEGMENTS = 1 << (32 - INDEX_BITS - _RANK_BITS)


def reduce_segments(
    rows: pa.RecordBatch, lengths: Sequence[int], schema: pa.Schema, requests: Mapping[str, Request]
) -> list[dict[str, ColumnPartial]]:
    """Return the partials of consecutive segments of a batch, for each by the keys of requests.

    Args:
        rows: The rows of all segments, with the columns of `schema`.
        lengths: How many rows each segment has, which may be none; at most `MOST_SEGMENTS`.
        schema: The columns with their types.
        requests: What is asked, as for `kernel.reduce_batches`.
    """
    partials: list[dict[str, ColumnPartial]] = [{} for _ in lengths]
    others = {}
    for key, request in requests.items():
        array = rows.column(request.columns[0])
        made = None
        if not (request.quantiles or request.needs_tuples):
            made = _column_partials(array, np.asarray(lengths, np.int64))
        if made is None:
            others[key] = request
        else:
            for of_segment, partial in zip(partials, made, strict=True):
                of_segment[key] = partial
    if others:
        start = 0
        for of_segment, length in zip(partials, lengths, strict=True):
            segment = rows.slice(start, length)
            of_segment.update(reduce_batches([segment] if length else [], schema, others))
            start += length
    return partials


@dataclass(frozen=True, slots=True)
class _Segmented:
    """The values of a column that are not null: `counts` of them by segment, of `rows` rows."""

    values: pa.Array
    rows: Counts
    counts: Counts

    @property
    def starts(self) -> Counts:
        """Where each segment begins that has values."""
        starts: Counts = np.cumsum(self.counts)[self.counts > 0] - self.counts[self.counts > 0]
        return starts

    @property
    def numbers(self) -> npt.NDArray[np.uint32]:
        """The number of each value's segment."""
        return np.repeat(np.arange(len(self.counts), dtype=np.uint32), self.counts)

    def spread(self, reduced: Sequence[Any], empty: Any) -> list[Any]:
        """Return what was reduced by segment, with `empty` for those that have no values."""
        filled = iter(reduced)
        return [next(filled) if count else empty for count in self.counts.tolist()]


def _segmented(array: pa.Array, lengths: Counts) -> _Segmented:
    array = without_views(array)
    if not array.null_count:
        return _Segmented(array, lengths, lengths)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(valid)))
    counts = np.diff(before[np.concatenate(([0], np.cumsum(lengths)))])
    return _Segmented(array.drop_null(), lengths, counts)


def _column_partials(array: pa.Array, lengths: Counts) -> list[ColumnPartial] | None:
    """Return a column's partial of each segment, None for types that are reduced one by one."""
    type = column_type(array.type)
    if type is None or pa.types.is_dictionary(array.type) or type.kind is Kind.DECIMAL:
        return None
    segments = _segmented(array, lengths)
    if not len(segments.values):
        return [_partial(int(rows), int(rows)) for rows in lengths]
    if type.kind in (Kind.STRING, Kind.BINARY):
        return _texts(segments, is_text=type.kind is Kind.STRING)
    if type.kind is Kind.FLOAT:
        return _floats(segments)
    return _integers(segments)


def _partial(
    rows: int,
    nulls: int,
    nans: int = 0,
    bounds: tuple[Bound | None, Bound | None] = (None, None),
    sketch: Sketch = EMPTY_SKETCH,
) -> ColumnPartial:
    return ColumnPartial(rows, nulls, nans, *bounds, 0, 0, sketch)


def _integers(segments: _Segmented) -> list[ColumnPartial]:
    """Return the partials of what Arrow stores as integers, and of booleans, as 0 and 1."""
    values = segments.values
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    sign = "u" if pa.types.is_unsigned_integer(values.type) else "i"
    integers = stored(values, f"{sign}{values.type.bit_width // 8}")
    divisor, factor = to_integers(values.type)
    words = integers.astype(np.int64, copy=False)
    if divisor != 1:
        words = np.floor_divide(words, divisor)
    hashes = mix(words.view(np.uint64) * np.uint64(factor))

    starts = segments.starts
    lows = np.minimum.reduceat(integers, starts).tolist()
    highs = np.maximum.reduceat(integers, starts).tolist()
    bounds = [
        (low // divisor * factor, high // divisor * factor)
        for low, high in zip(lows, highs, strict=True)
    ]
    return _fixed_width(segments, [0] * len(segments.rows), bounds, hashes)


def _floats(segments: _Segmented) -> list[ColumnPartial]:
    width = segments.values.type.bit_width // 8
    with np.errstate(invalid="ignore"):  # signalling NaN are valid input
        floats = stored(segments.values, f"f{width}").astype(np.float64, copy=False)
        starts = segments.starts
        lows, highs = np.fmin.reduceat(floats, starts), np.fmax.reduceat(floats, starts)
        nans = np.add.reduceat(np.isnan(floats).astype(np.int64), starts).tolist()
    # Zero bounds cover both zeros, as Lance's own file statistics do.
    bounds = [
        (None, None) if low != low else (low or -0.0, high or 0.0)
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    return _fixed_width(segments, segments.spread(nans, 0), bounds, hash_floats(floats))


def _fixed_width(
    segments: _Segmented,
    nans: Sequence[int],
    bounds: Sequence[tuple[Bound | None, Bound | None]],
    hashes: Words,
) -> list[ColumnPartial]:
    nulls = (segments.rows - segments.counts).tolist()
    columns = (
        segments.rows.tolist(),
        nulls,
        nans,
        segments.spread(bounds, (None, None)),
        _sketches(hashes, segments),
    )
    return [_partial(*of_segment) for of_segment in zip(*columns, strict=True)]


def _texts(segments: _Segmented, *, is_text: bool) -> list[ColumnPartial]:
    values = segments.values
    values = values.cast(pa.large_binary() if is_large(values) else pa.binary())
    lengths = np.diff(offsets(values)).astype(np.int64)
    characters = lengths if is_text else np.zeros_like(lengths)
    # A byte of more than one character's bytes is negative as a signed one.
    if is_text and lengths.any() and content(values, np.int8).min() < 0:
        characters = pc.utf8_length(segments.values).to_numpy().astype(np.int64)
    starts = segments.starts
    # A view enters Polars without a copy.
    views = values.cast(pa.binary_view())
    by_segment = pl.DataFrame({"segment": segments.numbers, "value": pl.Series("value", views)})
    bounds = (
        by_segment.group_by("segment")
        .agg(pl.col("value").min().alias("low"), pl.col("value").max().alias("high"))
        .sort("segment")
    )
    zeros = ((0, 0), (0, 0))
    measures = zip(
        zip(*_sums_and_maxima(lengths, starts), strict=True),
        zip(*_sums_and_maxima(characters, starts), strict=True),
        strict=True,
    )
    columns = (
        segments.rows.tolist(),
        (segments.rows - segments.counts).tolist(),
        segments.spread(bounds["low"].to_list(), None),
        segments.spread(bounds["high"].to_list(), None),
        segments.spread(list(measures), zeros),
        _sketches(hash_bytes(views), segments),
    )
    return [
        ColumnPartial(
            rows=rows,
            nulls=nulls,
            nans=0,
            minimum=None if low is None else lower_bound(low),
            maximum=None if high is None else upper_bound(high),
            total_bytes=size[0],
            max_bytes=size[1],
            sketch=sketch,
            total_characters=text[0],
            max_characters=text[1],
        )
        for rows, nulls, low, high, (size, text), sketch in zip(*columns, strict=True)
    ]


def _sums_and_maxima(lengths: Counts, starts: Counts) -> tuple[list[int], list[int]]:
    sums, maxima = np.add.reduceat(lengths, starts), np.maximum.reduceat(lengths, starts)
    return sums.tolist(), maxima.tolist()


def _sketches(hashes: Words, segments: _Segmented) -> list[Sketch]:
    """Return the sketch of each segment's hashes."""
    indexes = (hashes & INDEX_MASK).astype(np.uint32)
    cells = segments.numbers << np.uint32(INDEX_BITS) | indexes
    # The highest rank of a cell comes last.
    ordered = np.sort(cells << np.uint32(_RANK_BITS) | ranks_of(hashes))
    cells = ordered >> np.uint32(_RANK_BITS)
    highest = ordered[np.append(cells[1:] != cells[:-1], True)]
    pairs = np.empty(len(highest), PAIR)
    pairs["index"] = (highest >> np.uint32(_RANK_BITS)) & np.uint32(REGISTERS - 1)
    pairs["rank"] = highest & np.uint32((1 << _RANK_BITS) - 1)
    numbers = highest >> np.uint32(INDEX_BITS + _RANK_BITS)
    ends = np.searchsorted(numbers, np.arange(1, len(segments.rows) + 1)).tolist()
    content, sketches, start = pairs.tobytes(), [], 0
    for end in ends:
        listed = content[PAIR_BYTES * start : PAIR_BYTES * end]
        sketches.append(Sketch(listed) if end - start <= MOST_LISTED else _dense(listed))
        start = end
    return sketches


def _dense(listed: bytes) -> Sketch:
    pairs = np.frombuffer(listed, PAIR)
    registers = np.zeros(REGISTERS, np.uint8)
    registers[pairs["index"]] = pairs["rank"]
    return Sketch(registers.tobytes())
