"""How a scan is cut into Spark partitions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from lancestat.lake.snapshot import Fragment

# Decoded bytes of a part. Below, a task costs more than what it reads; above, too much is lost when
# one fails, and cores wait for the last one.
LIGHTEST_PART = 16 << 20
HEAVIEST_PART = 256 << 20
PARTS_PER_CORE = 2

# What opening a fragment costs, in bytes read in the same time.
_FRAGMENT_WEIGHT = 1 << 20
# Of a part: how far from where it should end it may end with a fragment instead.
_SLACK = 0.125


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one fragment from `offset` on: `count` of them, all that are left when None.

    Without a filter on the scan they are live rows, with one they are physical rows.
    """

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
    """Cut fragments into parts of about equal weight: small ones together, large ones in ranges.

    The parts follow the order of the fragments and hold every live row once. There are
    `PARTS_PER_CORE` for each core, fewer where they would be lighter than `LIGHTEST_PART`, and more
    where they would be heavier than `HEAVIEST_PART`.

    Args:
        fragments: What is to be read.
        row_bytes: Decoded bytes per row of the projected columns.
        cores: How many tasks run at once.
        is_filtered: Whether a filter is pushed into the scan; ranges are then of physical rows.
        limit: Read no more rows than this in all, where no filter is pushed.
    """
    spans = [
        _Span(each.id, each.physical_rows if is_filtered else each.rows)
        for each in fragments
        if each.rows > 0
    ]
    if limit is not None and not is_filtered:
        spans = list(_limited(spans, limit))
    if not spans:
        return []
    ends = list(accumulate(_FRAGMENT_WEIGHT + span.rows * row_bytes for span in spans))
    cuts = _cuts(spans, ends, _count(ends[-1], max(1, cores)))
    parts = (Part(tuple(_pieces(spans, *bounds))) for bounds in pairwise(cuts))
    return [part for part in parts if part.pieces]


@dataclass(frozen=True, slots=True)
class _Span:
    """The first rows of a fragment; `is_whole` when they are all."""

    fragment_id: int
    rows: int
    is_whole: bool = True


# A place in the table: an index of spans, and a row of that span.
_Cut = tuple[int, int]


def _limited(spans: Iterable[_Span], limit: int) -> Iterator[_Span]:
    for span in spans:
        if limit <= 0:
            return
        yield span if span.rows <= limit else _Span(span.fragment_id, limit, is_whole=False)
        limit -= span.rows


def _count(weight: float, cores: int) -> int:
    count = min(cores * PARTS_PER_CORE, int(weight // LIGHTEST_PART))
    if weight > HEAVIEST_PART * cores * PARTS_PER_CORE:
        # So many that no core waits for the last round.
        count = -(-int(weight // HEAVIEST_PART + 1) // cores) * cores
    return max(1, count)


def _cuts(spans: Sequence[_Span], ends: Sequence[float], count: int) -> list[_Cut]:
    share = ends[-1] / count
    cuts = [(0, 0)]
    for number in range(1, count):
        target = number * share
        index = bisect_right(ends, target)
        start = ends[index - 1] if index else 0.0
        nearest = min(target - start, ends[index] - target)
        if nearest < share * _SLACK:
            cut = (index if nearest == target - start else index + 1, 0)
        else:
            cut = (index, int(spans[index].rows * (target - start) / (ends[index] - start)))
        cuts.append(max(cuts[-1], cut))
    return [*cuts, (len(spans), 0)]


def _pieces(spans: Sequence[_Span], start: _Cut, stop: _Cut) -> Iterator[Piece]:
    for index in range(start[0], min(stop[0] + 1, len(spans))):
        span = spans[index]
        first = start[1] if index == start[0] else 0
        last = stop[1] if index == stop[0] else span.rows
        if last > first:
            to_the_end = last == span.rows and span.is_whole
            yield Piece(span.fragment_id, first, None if to_the_end else last - first)
