"""Common values: a mergeable summary of the values that most rows hold."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest

from lancestat.tables.statistics.bounds import BOUND_BYTES, Bound, decode_bound, encode_bound
from lancestat.tables.statistics.sketches import inflated

# The value of a column alone, or those of a group in the order of its columns.
Values = tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class CommonValue:
    """A value, or the values of a group, with the fewest and the most rows that hold it."""

    values: Values
    lower: int
    upper: int

    @property
    def is_exact(self) -> bool:
        """Whether so many rows hold it."""
        return self.lower == self.upper


# By a value's stored form, the fewest and the most rows that hold it.
Counts = Mapping[bytes, tuple[int, int]]


@dataclass(frozen=True)
class CommonValues:
    """At most `capacity` values by their stored form, with bounds on the rows that hold each.

    No value that is not listed has more than `unlisted` rows. Nothing was left out where that is 0:
    these are then all values, with exact counts. Else `unlisted` is at most 2 / `capacity` of the
    rows, unless values of more than 256 bytes, which are never listed, are more common.

    Source: the summaries of Misra and Gries, and of Metwally, Agrawal and El Abbadi (Space-Saving),
        which merge as in P. K. Agarwal et al., Mergeable Summaries, PODS 2012. Bounds are kept for
        each value, since those that are listed from the start have exact counts.
    """

    capacity: int
    unlisted: int
    counts: Counts = field(hash=False)

    @property
    def is_exact(self) -> bool:
        """Whether all values are listed, with exact counts."""
        return not self.unlisted

    @cached_property
    def listed(self) -> tuple[CommonValue, ...]:
        """The values, the most common first."""
        entries = sorted(self.counts.items(), key=lambda entry: (-sum(entry[1]), entry[0]))
        return tuple(CommonValue(decode_values(stored), *rows) for stored, rows in entries)

    def bounds_of(self, values: Values) -> tuple[int, int]:
        """Return the fewest and the most rows that hold these values."""
        return self.counts.get(encode_values(values), (0, self.unlisted))

    def encode(self) -> bytes:
        """Return the stored form, compressed."""
        pieces = [_HEAD.pack(self.capacity, self.unlisted, len(self.counts))]
        for stored, (lower, upper) in sorted(self.counts.items()):
            pieces += (_ENTRY.pack(len(stored), lower, upper - lower), stored)
        return zlib.compress(b"".join(pieces))

    @classmethod
    def decode(cls, stored: bytes) -> CommonValues:
        """Invert `encode`; raises ValueError on anything else."""
        try:
            payload = inflated(stored, _LARGEST_STORED, "a list of common values")
            capacity, unlisted, entries = _HEAD.unpack_from(payload)
            counts, start = {}, _HEAD.size
            for _ in range(entries):
                length, lower, more = _ENTRY.unpack_from(payload, start)
                start += _ENTRY.size
                counts[payload[start : start + length]] = (lower, lower + more)
                start += length
        except struct.error as error:
            raise ValueError(f"stored common values are malformed: {error}") from None
        if start != len(payload) or len(counts) != entries or entries > capacity:
            raise ValueError("stored common values are cut, or more than there is room for")
        for values in counts:
            decode_values(values)
        return cls(capacity, unlisted, counts)


_LARGEST_STORED = 64 << 20
_HEAD = struct.Struct("<IQI")
_ENTRY = struct.Struct("<HQQ")
_LENGTH = struct.Struct("<H")


def encode_values(values: Values) -> bytes:
    """Return the stored form of values: that of each as a bound, after its length.

    All NaN are one value, and so are both zeros.
    """
    encoded = [encode_bound(_canonical(value)) for value in values]
    return b"".join(_LENGTH.pack(len(one)) + one for one in encoded)


def _canonical(value: Bound) -> Bound:
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0


def are_listable(values: Values) -> bool:
    """Whether values are short enough to be listed."""
    return not any(isinstance(one, bytes) and len(one) > BOUND_BYTES for one in values)


def decode_values(stored: bytes) -> Values:
    """Invert `encode_values`; raises ValueError on anything else."""
    values: list[Bound] = []
    start = 0
    while start < len(stored):
        end = start + _LENGTH.size
        length = int.from_bytes(stored[start:end], "little")
        start = end + length
        if start > len(stored):
            raise ValueError("stored values are cut")
        values.append(decode_bound(stored[end:start]))
    if not values:
        raise ValueError("stored values are none")
    return tuple(values)


def merge_common_values(summaries: Sequence[CommonValues]) -> CommonValues:
    """Combine summaries of disjoint rows, at least one; the least capacity is kept.

    Which values are listed may depend on the order of merges; that their bounds hold does not.
    """
    if len(summaries) == 1:
        return summaries[0]
    unlisted = sum(summary.unlisted for summary in summaries)
    lower: dict[bytes, int] = {}
    # The bounds of one value, beyond what each summary could have left out of it.
    beyond: dict[bytes, int] = {}
    for summary in summaries:
        for stored, (low, high) in summary.counts.items():
            lower[stored] = lower.get(stored, 0) + low
            beyond[stored] = beyond.get(stored, 0) + high - summary.unlisted
    counts = {stored: (low, beyond[stored] + unlisted) for stored, low in lower.items()}
    return pruned(min(summary.capacity for summary in summaries), unlisted, counts)


def pruned(capacity: int, unlisted: int, counts: Counts) -> CommonValues:
    """Return the summary that keeps the most common of some values."""
    if len(counts) > capacity:
        kept = dict(nlargest(capacity, counts.items(), key=_size))
        left_out: Iterable[int] = (rows[1] for one, rows in counts.items() if one not in kept)
        return CommonValues(capacity, max(unlisted, *left_out), kept)
    return CommonValues(capacity, unlisted, counts)


def _size(entry: tuple[bytes, tuple[int, int]]) -> tuple[int, int, bytes]:
    stored, (lower, upper) = entry
    return upper, lower, stored
