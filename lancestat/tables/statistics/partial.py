"""The statistic of one column in one fragment, and how partials combine."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from lancestat.tables.statistics.bounds import Bound as Bound
from lancestat.tables.statistics.bounds import check_bounds, decode_bound, encode_bound
from lancestat.tables.statistics.quantiles import QuantileSketch
from lancestat.tables.statistics.quantiles import union as union_quantiles
from lancestat.tables.statistics.sketch import EMPTY_SKETCH, Sketch, union


@dataclass(frozen=True, slots=True)
class ColumnPartial:
    """Mergeable statistic of one column over some rows.

    `minimum` and `maximum` ignore nulls and NaN and are None when nothing else is left. A float
    minimum of zero is -0.0 and a maximum of zero 0.0, as in Lance's file statistics. Of strings and
    binary they are bounds of at most 256 bytes (`lower_bound`, `upper_bound`); only there may
    `maximum` be None while `minimum` is not: no short bytes are above the values. `total_bytes` and
    `max_bytes` are the summed and the largest length of strings and binary, 0 for fixed-width
    types; `total_characters` and `max_characters` those of strings in code points, 0 elsewhere.
    `quantiles` are those of finite values (decimals unscaled), None where they were not requested.
    """

    rows: int
    nulls: int
    nans: int
    minimum: Bound | None
    maximum: Bound | None
    total_bytes: int
    max_bytes: int
    sketch: Sketch
    total_characters: int = 0
    max_characters: int = 0
    quantiles: QuantileSketch | None = None

    @property
    def values(self) -> int:
        """Rows that are not null."""
        return self.rows - self.nulls

    @property
    def distinct(self) -> int:
        """The sketch's estimate of distinct values, at most what rows and bounds allow."""
        if not self.values:
            return 0
        most = self.values
        if isinstance(self.minimum, int) and isinstance(self.maximum, int):
            most = min(most, self.maximum - self.minimum + 1)
        return max(1, min(most, round(self.sketch.estimate())))


EMPTY_PARTIAL = ColumnPartial(0, 0, 0, None, None, 0, 0, EMPTY_SKETCH)


def merge(partials: Iterable[ColumnPartial]) -> ColumnPartial:
    """Combine partials of one column over disjoint rows; associative and commutative.

    Bounds ignore nulls and NaN; the sketch is the union. Quantiles are there when all parts with
    rows have them. Of no partials it is the empty one.
    """
    parts = list(partials)
    if len(parts) == 1:
        return parts[0]
    bounded = [part for part in parts if part.minimum is not None]
    maxima = [part.maximum for part in bounded]
    return ColumnPartial(
        rows=sum(part.rows for part in parts),
        nulls=sum(part.nulls for part in parts),
        nans=sum(part.nans for part in parts),
        minimum=min((part.minimum for part in bounded), default=None),  # type: ignore[type-var]
        maximum=None if None in maxima else max(maxima, default=None),  # type: ignore[type-var]
        total_bytes=sum(part.total_bytes for part in parts),
        max_bytes=max((part.max_bytes for part in parts), default=0),
        sketch=union(part.sketch for part in parts),
        total_characters=sum(part.total_characters for part in parts),
        max_characters=max((part.max_characters for part in parts), default=0),
        quantiles=_merged_quantiles(parts),
    )


def _merged_quantiles(parts: Iterable[ColumnPartial]) -> QuantileSketch | None:
    known = [part.quantiles for part in parts if part.rows or part.quantiles]
    sketches = [sketch for sketch in known if sketch is not None]
    return union_quantiles(sketches) if sketches and len(sketches) == len(known) else None


# Stored form, little-endian: form, rows, nulls, NaNs, total and largest bytes, total and largest
# characters; the minimum and the maximum, each as tag, length and payload; in form 2 alone the
# quantiles, as length and payload; the sketch; CRC-32 of all before it.
_FORM, _FORM_WITH_QUANTILES = 1, 2
_COUNTS = struct.Struct("<B7Q")
_LENGTH = struct.Struct("<I")
_CHECKSUM = struct.Struct("<I")


def encode(partial: ColumnPartial) -> bytes:
    """Return the stored form of a partial."""
    counts = _COUNTS.pack(
        _FORM if partial.quantiles is None else _FORM_WITH_QUANTILES,
        partial.rows,
        partial.nulls,
        partial.nans,
        partial.total_bytes,
        partial.max_bytes,
        partial.total_characters,
        partial.max_characters,
    )
    bounds = encode_bound(partial.minimum) + encode_bound(partial.maximum)
    body = counts + bounds + _encode_quantiles(partial.quantiles) + partial.sketch.encode()
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _encode_quantiles(quantiles: QuantileSketch | None) -> bytes:
    if quantiles is None:
        return b""
    payload = quantiles.encode()
    return _LENGTH.pack(len(payload)) + payload


def decode(stored: bytes) -> ColumnPartial:
    """Invert `encode`; raises ValueError on anything else."""
    body, checksum = stored[: -_CHECKSUM.size], stored[-_CHECKSUM.size :]
    if len(body) < _COUNTS.size or checksum != _CHECKSUM.pack(zlib.crc32(body)):
        raise ValueError("a stored partial is cut or altered: its checksum does not match")
    form, rows, nulls, nans, *lengths = _COUNTS.unpack_from(body)
    if form not in (_FORM, _FORM_WITH_QUANTILES):
        raise ValueError(f"a stored partial has form {form}; this version reads forms 1 and 2")
    minimum, end = decode_bound(body, _COUNTS.size)
    maximum, end = decode_bound(body, end)
    quantiles = None
    if form == _FORM_WITH_QUANTILES:
        quantiles, end = _decode_quantiles(body, end)
    if nulls + nans > rows:
        raise ValueError(f"a stored partial has {nulls} nulls and {nans} NaN in {rows} rows")
    check_bounds(minimum, maximum)
    total_bytes, max_bytes, total_characters, max_characters = lengths
    return ColumnPartial(
        rows,
        nulls,
        nans,
        minimum,
        maximum,
        total_bytes,
        max_bytes,
        Sketch.decode(body[end:]),
        total_characters,
        max_characters,
        quantiles,
    )


def _decode_quantiles(body: bytes, start: int) -> tuple[QuantileSketch, int]:
    try:
        (length,) = _LENGTH.unpack_from(body, start)
    except struct.error:
        raise ValueError("a stored partial ends inside its quantiles") from None
    start += _LENGTH.size
    return QuantileSketch.decode(body[start : start + length]), start + length
