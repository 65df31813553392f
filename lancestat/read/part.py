"""How a scan is cut into Spark partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancestat.lake.snapshot import Fragment


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
    raise NotImplementedError
