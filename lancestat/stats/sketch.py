"""HyperLogLog over 64-bit hashes: 4,096 registers, standard error about 1.6 %."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sketch:
    """Immutable registers, one byte each, 4,096 of them; all zero is the empty sketch."""

    registers: bytes
