"""Distances by rank: tasks count them in fixed cells, the driver makes histograms of these.

A cell holds the floats that have their first 16 bits in common: their sign, their exponent and 7
bits of their significand. Cells are the same in all tasks, so that counts are added exactly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from math import ceil, floor, log2

import numpy as np

from lancestat.joins.record import QUANTILES, JoinDistances, RankDistances
from lancestat.joins.search.neighbours import Floats, Ints, Neighbours, Reals

_CELL_BITS = 16
_CELLS = 1 << 16
# The cells of numbers below 0 come before it.
_ZERO = _CELLS // 2
# The cells of both infinities.
_INFINITE = (_ZERO - 0x7F80, _ZERO + 0x7F80)

_MOST_INTERVALS = 64
# What is farther from the bulk of the distances than that is wide has no intervals.
_BULK = (0.005, 0.995)


def counted_ranks(k: int) -> tuple[int, ...]:
    """Return the ranks up to `k` whose distances are counted: 1, 2, 3, 5, 10, 100, ... and `k`."""
    ranks = {rank for rank in (1, 2, 3, 5, *(10**power for power in range(1, 6))) if rank < k}
    return tuple(sorted({*ranks, k}))


# How many distances are in which cells, of which each rank has 65,536, packed to a tenth.
CellCounts = bytes


def unpacked(counts: CellCounts) -> tuple[Ints, Ints]:
    """Return the cells that have distances, and how many."""
    steps, numbers = np.frombuffer(zlib.decompress(counts), "<i8").reshape(2, -1)
    return np.cumsum(steps), numbers


class DistanceTally:
    """Counts the distances of neighbours by rank, or all together where there are no ranks."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._columns = np.array(ranks, np.int64) - 1
        self._counts = np.zeros(max(1, len(ranks)) * _CELLS, np.int64)

    def add(self, neighbours: Neighbours) -> None:
        positions, distances = neighbours.positions, neighbours.distances
        first: Ints | int = 0
        if len(self._columns):
            columns = self._columns[self._columns < positions.shape[1]]
            positions, distances = positions[:, columns], distances[:, columns]
            first = np.arange(len(columns)) * _CELLS
        cells = (_cells(distances) + first)[positions >= 0]
        counts = np.bincount(cells)
        self._counts[: len(counts)] += counts

    def counts(self) -> CellCounts:
        cells = np.flatnonzero(self._counts)
        steps = np.concatenate([np.diff(cells, prepend=0), self._counts[cells]])
        return zlib.compress(steps.astype("<i8").tobytes(), level=1)


def _cells(distances: Floats) -> Ints:
    bits = np.ascontiguousarray(distances, np.float32).view(np.int32).astype(np.int64)
    # The bits of floats below 0 are in the opposite order.
    ascending = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return (ascending >> _CELL_BITS) + _ZERO


def _lower_ends(cells: Ints) -> Reals:
    """Return the smallest number of each cell."""
    numbers = cells - _ZERO
    bits = (np.abs(numbers) << _CELL_BITS).astype(np.int32)
    return np.copysign(bits.view(np.float32), numbers).astype(np.float64)


def join_distances(
    counted: Iterable[CellCounts], ranks: Sequence[int], left_rows: int, *, least_width: float = 0.0
) -> JoinDistances | None:
    """Add the counts of tasks; return histograms of them, None where no row has a neighbour.

    Their intervals are unions of cells, no narrower than `least_width`, and so their counts exact.
    Without ranks all distances were counted together.
    """
    total = np.zeros((max(1, len(ranks)), _CELLS), np.int64)
    for part in counted:
        cells, counts = unpacked(part)
        total.reshape(-1)[cells] += counts
    everything = total.sum(axis=0)
    if not everything.any():
        return None
    numbers, width = _intervals(everything, least_width)
    made = (
        _rank(ranks[at] if ranks else None, counts, numbers, width)
        for at, counts in enumerate(total)
    )
    start = float(numbers[0] * width)
    return JoinDistances(left_rows, start, width, tuple(rank for rank in made if rank.rows))


def _intervals(counts: Ints, least_width: float) -> tuple[range, float]:
    """Return the numbers of the intervals that are to be shown, as multiples of their width."""
    occupied = np.flatnonzero(counts)
    occupied = occupied[(occupied > _INFINITE[0]) & (occupied < _INFINITE[1])]
    low, high = _shown(occupied, counts[occupied]) if len(occupied) else (_ZERO, _ZERO)
    first, last = _lower_ends(np.array([low, high])).tolist()
    if first == last == 0.0:
        return range(0, 1), max(1.0, least_width)
    # The widest cell is the one that is farthest from 0.
    farthest = np.float32(max(abs(first), abs(last)))
    widest = float(np.spacing(farthest)) * (1 << _CELL_BITS)
    wanted = max((last - first) / (_MOST_INTERVALS - 2), widest, least_width)
    width = 2.0 ** ceil(log2(wanted))
    return range(floor(first / width), floor(last / width) + 1), width


def _shown(cells: Ints, counts: Ints) -> tuple[int, int]:
    """Return the first and the last cell that is to be shown, without far outliers."""
    ends = _lower_ends(cells)
    low, high = (float(ends[at]) for at in _quantile_places(counts, _BULK))
    if low == high:
        return int(cells[0]), int(cells[-1])
    shown = cells[(ends >= low - (high - low)) & (ends <= high + (high - low))]
    return int(shown[0]), int(shown[-1])


def _quantile_places(counts: Ints, shares: Sequence[float]) -> list[int]:
    """Return at which of the cells so many of all rows are counted, from the first on."""
    reached = np.cumsum(counts)
    return [int(np.searchsorted(reached, ceil(share * int(reached[-1])))) for share in shares]


def _rank(rank: int | None, counts: Ints, numbers: range, width: float) -> RankDistances:
    cells = np.flatnonzero(counts)
    rows, ends = counts[cells], _lower_ends(cells)
    if not len(cells):
        return RankDistances(rank, (), 0, 0, ())
    places = np.floor(ends / width) - numbers[0]
    is_shown = (places >= 0) & (places < len(numbers))
    shown = np.bincount(
        places[is_shown].astype(np.int64), weights=rows[is_shown], minlength=len(numbers)
    )
    quantiles = ends[_quantile_places(rows, QUANTILES)]
    return RankDistances(
        rank,
        tuple(int(number) for number in shown),
        below=int(rows[places < 0].sum()),
        above=int(rows[places >= len(numbers)].sum()),
        quantiles=tuple(float(end) if np.isfinite(end) else None for end in quantiles),
    )
