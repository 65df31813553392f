"""Partials: the statistic of one column in one fragment, how they combine, and their stored form.

A partial is made of parts, each declared once, as a field of `ColumnPartial`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from lancestat.tables.statistics.bounds import Bound, check_bounds, decode_bound, encode_bound
from lancestat.tables.statistics.common_values import CommonValues, merge_common_values
from lancestat.tables.statistics.key_proof import KeyProof, merge_key_proofs
from lancestat.tables.statistics.sketches import (
    EMPTY_SKETCH,
    QuantileSketch,
    Sketch,
    union,
    union_quantiles,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a partial.

    Attributes:
        tag: Its number in the stored form: ascending with the fields, never used for another part.
        merge: Combines the values of this part in two and more partials, which it receives as well
            if `needs_partials`.
        encode: Returns the stored form of a value.
        decode: Inverts `encode`; raises ValueError on anything else.
    """

    tag: int
    merge: Callable[..., Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    needs_partials: bool = False


def _count(tag: int, merge: Callable[[Iterable[int]], int]) -> dict[str, Part]:
    return {"part": Part(tag, merge, _encode_count, _decode_count)}


def _encode_count(count: int) -> bytes:
    return count.to_bytes((count.bit_length() + 7) // 8, "little")


def _decode_count(payload: bytes) -> int:
    if len(payload) > 8:
        raise ValueError(f"a stored partial has a count of {len(payload)} bytes")
    return int.from_bytes(payload, "little")


def _lowest(values: Sequence[Any]) -> Bound | None:
    return min((value for value in values if value is not None), default=None)


def _highest(values: Sequence[Any], partials: Sequence[ColumnPartial]) -> Bound | None:
    pairs = zip(values, partials, strict=True)
    maxima = [value for value, partial in pairs if partial.minimum is not None]
    return None if None in maxima else max(maxima, default=None)


def _where_kept(unite: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Return what merges a part that is None where it was not requested: of all rows, or none."""

    def merged(values: Sequence[Any], partials: Sequence[ColumnPartial]) -> Any:
        pairs = zip(values, partials, strict=True)
        known = [value for value, partial in pairs if partial.rows or value]
        kept = [value for value in known if value is not None]
        return unite(kept) if kept and len(kept) == len(known) else None

    return merged


@dataclass(frozen=True, slots=True)
class ColumnPartial:
    """Mergeable statistic of one column, or of the tuples of a group of columns, over some rows.

    `minimum` and `maximum` ignore nulls and NaN and are None when nothing else is left. A float
    minimum of zero is -0.0 and a maximum of zero 0.0, as in Lance's file statistics. Of strings and
    binary they are bounds of at most 256 bytes (`lower_bound`, `upper_bound`); only there may
    `maximum` be None while `minimum` is not: no short bytes are above the values. `total_bytes` and
    `max_bytes` are the summed and the largest length of strings and binary, 0 for fixed-width
    types; `total_characters` and `max_characters` those of strings in code points, 0 elsewhere.
    `quantiles` are those of finite values (decimals unscaled), `common` the most common values,
    and `key` what is known of repeated values; each is None where it was not requested.

    Of a group `nulls` are the rows where one of its columns is null, and the sketch has the tuples
    of all others; there are neither bounds nor lengths.
    """

    rows: int = field(metadata=_count(1, sum))
    nulls: int = field(metadata=_count(2, sum))
    nans: int = field(metadata=_count(3, sum))
    minimum: Bound | None = field(metadata={"part": Part(4, _lowest, encode_bound, decode_bound)})
    maximum: Bound | None = field(
        metadata={"part": Part(5, _highest, encode_bound, decode_bound, needs_partials=True)}
    )
    total_bytes: int = field(metadata=_count(6, sum))
    max_bytes: int = field(metadata=_count(7, max))
    sketch: Sketch = field(metadata={"part": Part(8, union, Sketch.encode, Sketch.decode)})
    total_characters: int = field(default=0, metadata=_count(9, sum))
    max_characters: int = field(default=0, metadata=_count(10, max))
    quantiles: QuantileSketch | None = field(
        default=None,
        metadata={
            "part": Part(
                11,
                _where_kept(union_quantiles),
                QuantileSketch.encode,
                QuantileSketch.decode,
                needs_partials=True,
            )
        },
    )

    common: CommonValues | None = field(
        default=None,
        metadata={
            "part": Part(
                12,
                _where_kept(merge_common_values),
                CommonValues.encode,
                CommonValues.decode,
                needs_partials=True,
            )
        },
    )
    key: KeyProof | None = field(
        default=None,
        metadata={
            "part": Part(
                13,
                _where_kept(merge_key_proofs),
                KeyProof.encode,
                KeyProof.decode,
                needs_partials=True,
            )
        },
    )

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
_PARTS: dict[str, Part] = {part.name: part.metadata["part"] for part in fields(ColumnPartial)}
# By tag, a part's place among the fields and its decoder.
_DECODERS = {part.tag: (place, part.decode) for place, part in enumerate(_PARTS.values())}
_ALL = attrgetter(*_PARTS)
_EMPTY: tuple[Any, ...] = _ALL(EMPTY_PARTIAL)


def merge(partials: Iterable[ColumnPartial]) -> ColumnPartial:
    """Combine partials of one column over disjoint rows; associative and commutative.

    Bounds ignore nulls and NaN; the sketch is the union. Quantiles, common values and a
    key's proof are there when all parts with rows have them. Of no partials it is the empty one.
    """
    some = list(partials)
    if len(some) < 2:
        return some[0] if some else EMPTY_PARTIAL
    pairs = zip(_PARTS.values(), zip(*map(_ALL, some), strict=True), strict=True)
    return ColumnPartial(
        *[
            part.merge(values, some) if part.needs_partials else part.merge(values)
            for part, values in pairs
        ]
    )


# The stored form, little-endian: the form's number; the number of parts; every part that is not the
# empty partial's, in the order of tags, as tag, length and payload; CRC-32 of all before it. A part
# that is not there has the empty partial's value. A form or tag that is not known makes the partial
# unreadable.
_FORM = 3
_START = struct.Struct("<BB")
_HEAD = struct.Struct("<BI")
_CHECKSUM = struct.Struct("<I")


def encode(partial: ColumnPartial) -> bytes:
    """Return the stored form of a partial."""
    pieces: list[bytes] = []
    for part, value, empty in zip(_PARTS.values(), _ALL(partial), _EMPTY, strict=True):
        if value != empty:
            payload = part.encode(value)
            pieces += (_HEAD.pack(part.tag, len(payload)), payload)
    body = b"".join((_START.pack(_FORM, len(pieces) // 2), *pieces))
    return body + _CHECKSUM.pack(zlib.crc32(body))


def decode(stored: bytes) -> ColumnPartial:
    """Invert `encode`; raises ValueError on anything else."""
    body, checksum = stored[: -_CHECKSUM.size], stored[-_CHECKSUM.size :]
    if len(body) < _START.size or checksum != _CHECKSUM.pack(zlib.crc32(body)):
        raise ValueError("a stored partial is cut or altered: its checksum does not match")
    if body[0] != _FORM:
        raise ValueError(f"a stored partial has form {body[0]}; this version reads form {_FORM}")
    partial = ColumnPartial(*_decode_parts(body))
    if partial.nulls + partial.nans > partial.rows:
        counts = f"{partial.nulls} nulls and {partial.nans} NaN in {partial.rows} rows"
        raise ValueError(f"a stored partial has {counts}")
    check_bounds(partial.minimum, partial.maximum)
    return partial


def _decode_parts(body: bytes) -> list[Any]:
    """Return the values of all parts, in the order of the fields."""
    values = list(_EMPTY)
    before, start = 0, _START.size
    for _ in range(body[1]):
        if start + _HEAD.size > len(body):
            raise ValueError("a stored partial ends inside its parts")
        tag, length = _HEAD.unpack_from(body, start)
        decoder = _DECODERS.get(tag)
        if decoder is None or tag <= before:
            raise ValueError(f"a stored partial has a part of tag {tag} after tag {before}")
        start += _HEAD.size
        payload = body[start : start + length]
        if len(payload) != length:
            raise ValueError("a stored partial ends inside its parts")
        place, decode_part = decoder
        values[place] = decode_part(payload)
        before, start = tag, start + length
    if start != len(body):
        raise ValueError(f"a stored partial has {len(body) - start} bytes after its parts")
    return values
