"""HyperLogLog over 64-bit hashes: 4,096 registers, standard error about 1.6 %."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

# A hash's low 12 bits choose the register; its rank is one more than the leading zeros of the other
# 52.
INDEX_BITS = 12
REGISTERS = 1 << INDEX_BITS
LARGEST_RANK = 64 - INDEX_BITS + 1

_ALL_HASHES = 2.0**64


@dataclass(frozen=True, slots=True)
class Sketch:
    """Immutable registers, one byte each, 4,096 of them; all zero is the empty sketch."""

    registers: bytes

    def estimate(self) -> float:
        """Estimate the number of distinct hashes seen.

        Source: the improved estimator of O. Ertl, "New cardinality estimation algorithms for
            HyperLogLog sketches", 2017, https://arxiv.org/abs/1702.01284, algorithm 6. It needs no
            correction at either end of the range.
        """
        counts = [self.registers.count(rank) for rank in range(LARGEST_RANK + 1)]
        total = REGISTERS * _tau(1 - counts[LARGEST_RANK] / REGISTERS)
        for count in reversed(counts[1:LARGEST_RANK]):
            total = 0.5 * (total + count)
        total += REGISTERS * _sigma(counts[0] / REGISTERS)
        if total == 0:
            return _ALL_HASHES
        return min(REGISTERS * REGISTERS / (2 * math.log(2) * total), _ALL_HASHES)

    def encode(self) -> bytes:
        """Return a compact form: the registers in use when few, else all of them, compressed."""
        if REGISTERS - self.registers.count(0) <= _MOST_LISTED:
            return _LISTED + _listed(self.registers)
        # Ranks are near independent: entropy coding finds all there is to find, and string matching
        # only costs time.
        deflate = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
        return _COMPRESSED + deflate.compress(self.registers) + deflate.flush()

    @classmethod
    def decode(cls, stored: bytes) -> Sketch:
        """Invert `encode`; raises ValueError on anything else."""
        form, payload = stored[:1], stored[1:]
        if form == _LISTED:
            return cls(_listed_registers(payload))
        if form == _COMPRESSED:
            return cls(_inflated_registers(payload))
        raise ValueError(f"a sketch of an unknown form {form!r}")


EMPTY_SKETCH = Sketch(bytes(REGISTERS))

_LISTED, _COMPRESSED = b"\0", b"\1"
_PAIR = struct.Struct("<HB")
_MOST_LISTED = 400
_RANKS = bytes(range(LARGEST_RANK + 1))


def union(sketches: Iterable[Sketch]) -> Sketch:
    """Return the sketch of all their hashes together; that of no sketches is empty."""
    import numpy as np

    registers = np.zeros(REGISTERS, np.uint8)
    for sketch in sketches:
        np.maximum(registers, np.frombuffer(sketch.registers, np.uint8), out=registers)
    return Sketch(registers.tobytes())


def _sigma(x: float) -> float:
    """x + sum over k >= 1 of x^(2^k) * 2^(k-1), for registers never hit."""
    if x == 1:
        return math.inf
    total, weight = x, 1.0
    while True:
        x *= x
        previous = total
        total += x * weight
        weight += weight
        if total == previous:
            return total


def _tau(x: float) -> float:
    """(1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 * 2^-k) / 3, for registers at their limit."""
    if x in (0, 1):
        return 0.0
    total, weight = 1 - x, 1.0
    while True:
        x = math.sqrt(x)
        previous = total
        weight *= 0.5
        total -= (1 - x) ** 2 * weight
        if total == previous:
            return total / 3


def _listed(registers: bytes) -> bytes:
    import numpy as np

    ranks = np.frombuffer(registers, np.uint8)
    used = np.flatnonzero(ranks)
    pairs = np.empty(len(used), [("index", "<u2"), ("rank", "u1")])
    pairs["index"], pairs["rank"] = used, ranks[used]
    return pairs.tobytes()


def _listed_registers(payload: bytes) -> bytes:
    if len(payload) % _PAIR.size or len(payload) > _MOST_LISTED * _PAIR.size:
        raise ValueError("a sketch's list of registers is cut or too long")
    registers = bytearray(REGISTERS)
    last = -1
    for index, rank in _PAIR.iter_unpack(payload):
        if not last < index < REGISTERS or not 0 < rank <= LARGEST_RANK:
            raise ValueError(f"a sketch's list of registers holds ({index}, {rank}) after {last}")
        registers[index] = rank
        last = index
    return bytes(registers)


def _inflated_registers(payload: bytes) -> bytes:
    inflate = zlib.decompressobj()
    try:
        registers = inflate.decompress(payload, REGISTERS + 1)
    except zlib.error as error:
        raise ValueError(f"a sketch's registers do not decompress: {error}") from None
    if len(registers) != REGISTERS or not inflate.eof or inflate.unused_data:
        raise ValueError(f"a sketch has {len(registers)} registers, not {REGISTERS}")
    # Taking the sound ones out is thirty times as fast as looking for the largest.
    unsound = registers.translate(None, _RANKS)
    if unsound:
        raise ValueError(f"a sketch's register holds {max(unsound)}, more than {LARGEST_RANK}")
    return registers
