"""How a scan is cut into Spark partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.lake.snapshot import Fragment

# Decoded bytes that a task reads, at least and at most, where rows can be cut.
LIGHTEST_PART = 8 << 20
HEAVIEST_PART = 128 << 20
PARTS_PER_CORE = 3
_FRAGMENT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """Live rows of one fragment from `offset` on: `count` of them, all that are left when None."""

    fragment_id: int
    offset: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What one Spark task reads, in order."""

    pieces: tuple[Piece, ...]


def split_parts(
    fragments: Sequence[Fragment],
    *,
    row_bytes: float,
    cores: int,
    is_filtered: bool = False,
    limit: int | None = None,
) -> list[Part]:
    """Cut fragments into parts: small ones together, large ones in row ranges.

    Args:
        fragments: What is to be read.
        row_bytes: Decoded bytes per row of the projected columns.
        cores: How many tasks run at once.
        is_filtered: Whether a filter is pushed into the scan, which then cannot be cut by rows.
        limit: Read no more rows than this in all, where no filter is pushed.
    """
    weights = [_FRAGMENT_BYTES + int(each.rows * row_bytes) for each in fragments]
    ideal = -(-sum(weights) // (max(1, cores) * PARTS_PER_CORE))
    bound = min(HEAVIEST_PART, max(LIGHTEST_PART, ideal))
    parts: list[Part] = []
    group: list[Piece] = []
    filled = 0
    for fragment, weight in zip(fragments, weights, strict=True):
        if fragment.rows == 0:
            continue
        if group and filled + weight > bound:
            parts.append(Part(tuple(group)))
            group, filled = [], 0
        group.append(Piece(fragment.id))
        filled += weight
    if group:
        parts.append(Part(tuple(group)))
    return parts
