"""Key proofs: whether rows are known to differ in the columns of a key, and what that rests on."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.common_values import decode_values, encode_values

if TYPE_CHECKING:
    from lancestat.tables.statistics.hashing import Words

# The least and the greatest values of some rows, in lexicographic order. A bound of long bytes is
# the last of its values, since all of the rows' are beyond it.
Range = tuple[tuple[Bound, ...], tuple[Bound, ...]]
# Disjoint ranges in ascending order.
Ranges = tuple[Range, ...]

# Of so many rows a table's hashes are kept: 2 MB.
MOST_HASHES = 1 << 17
_MOST_RANGES = 1024
_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class KeyProof:
    """What is known of rows whose columns may be a key; rows with a null are left out.

    Attributes:
        is_repeated: Two rows are equal in all columns.
        ranges: For each column: ranges of the key's values in the order that begins with that
            column, disjoint, such that rows within one differ; None where that is not known.
        hashes: 128-bit hashes of all rows, ascending and different; None where that is not known.
    """

    is_repeated: bool
    ranges: tuple[Ranges | None, ...]
    hashes: bytes | None = None

    @property
    def is_proven(self) -> bool:
        """Whether all rows differ."""
        return not self.is_repeated and (
            self.hashes is not None or any(ranges is not None for ranges in self.ranges)
        )

    def encode(self) -> bytes:
        """Return the stored form: the kind of each part, and its content."""
        pieces = [_HEAD.pack(self.is_repeated, self.hashes is not None, len(self.ranges))]
        for ranges in self.ranges:
            pieces.append(_COUNT.pack(-1 if ranges is None else len(ranges)))
            for values in (values for pair in ranges or () for values in pair):
                stored = encode_values(values)
                pieces += (_COUNT.pack(len(stored)), stored)
        return b"".join((*pieces, self.hashes or b""))

    @classmethod
    def decode(cls, stored: bytes) -> KeyProof:
        """Invert `encode`; raises ValueError on anything else."""
        try:
            is_repeated, has_hashes, columns = _HEAD.unpack_from(stored)
            reader = _Reader(stored, _HEAD.size)
            ranges = tuple(reader.ranges() for _ in range(columns))
        except struct.error as error:
            raise ValueError(f"a stored key proof is malformed: {error}") from None
        hashes = stored[reader.position :]
        if len(hashes) % _HASH_BYTES or (hashes and not has_hashes):
            raise ValueError("a stored key proof is cut, or has bytes after its end")
        return cls(is_repeated, ranges, hashes if has_hashes else None)


_HEAD = struct.Struct("<??B")
_COUNT = struct.Struct("<i")


@dataclass
class _Reader:
    stored: bytes
    position: int

    def count(self) -> int:
        (count,) = _COUNT.unpack_from(self.stored, self.position)
        self.position += _COUNT.size
        return int(count)

    def ranges(self) -> Ranges | None:
        count = self.count()
        return None if count < 0 else tuple((self.values(), self.values()) for _ in range(count))

    def values(self) -> tuple[Bound, ...]:
        length = self.count()
        start, self.position = self.position, self.position + length
        if length < 0 or self.position > len(self.stored):
            raise ValueError("a stored key proof is cut")
        return decode_values(self.stored[start : self.position])


def merge_key_proofs(proofs: Sequence[KeyProof]) -> KeyProof:
    """Combine proofs of one key over disjoint rows, at least one.

    Rows of two proofs differ where their ranges are disjoint, in the order that begins with one of
    the columns, or where no hash is in both. A hash that is in both is a repeated row.
    """
    if len(proofs) == 1:
        return proofs[0]
    columns = len(proofs[0].ranges)
    if any(proof.is_repeated for proof in proofs):
        return repeated(columns)
    hashes = _united([proof.hashes for proof in proofs])
    if hashes is _REPEATED:
        return repeated(columns)
    by_column = zip(*(proof.ranges for proof in proofs), strict=True)
    return KeyProof(False, tuple(_disjoint(ranges) for ranges in by_column), hashes)


def repeated(columns: int) -> KeyProof:
    """Return that rows are equal in so many columns."""
    return KeyProof(True, (None,) * columns)


# The hashes of rows of which two are equal; no real hashes are so short.
_REPEATED = b"repeated"


def _united(parts: Sequence[bytes | None]) -> bytes | None:
    known = [part for part in parts if part is not None]
    total = sum(map(len, known))
    if len(known) < len(parts) or total > MOST_HASHES * _HASH_BYTES:
        return None
    import numpy as np

    words = np.frombuffer(b"".join(known), "<u8").reshape(-1, 2)
    return sorted_hashes(words[:, 0], words[:, 1])


def sorted_hashes(first: Words, second: Words) -> bytes:
    """Return the stored form of different hashes, given as their halves; `_REPEATED` of others."""
    import numpy as np

    order = np.lexsort((second, first))
    words = np.stack((first[order], second[order]), axis=1)
    is_repeated = bool(len(words)) and bool((words[1:] == words[:-1]).all(axis=1).any())
    return _REPEATED if is_repeated else words.astype("<u8").tobytes()


def _disjoint(parts: Iterable[Ranges | None]) -> Ranges | None:
    """Return the union of disjoint ranges, None where one is not known, or others share values."""
    union: list[Range] = []
    for part in parts:
        if part is None:
            return None
        union += part
    union.sort(key=lambda each: each[0])
    # A bound of long bytes stands for all that begin with it.
    if any(high >= low[: len(high)] for (_, high), (low, _) in pairwise(union)):
        return None
    while len(union) > _MOST_RANGES:
        pairs = [union[index : index + 2] for index in range(0, len(union), 2)]
        union = [(pair[0][0], pair[-1][1]) for pair in pairs]
    return tuple(union)
