"""Holds the distances that a run counted to those in the rows that it wrote, by numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from lancestat.joins.record import QUANTILES, JoinDistances

Line = tuple[Hashable, float | None]


def assert_counted(
    counted: JoinDistances | None, lines: Iterable[Line], *, by_rank: bool = True
) -> None:
    """Compare with lines of a result: the left row and the distance, the nearest first.

    Ranks that are not counted are left out of the comparison.
    """
    ranked: dict[int | None, list[float]] = {}
    seen: Counter[Hashable] = Counter()
    for left, distance in lines:
        if distance is not None:
            seen[left] += 1
            ranked.setdefault(seen[left] if by_rank else None, []).append(distance)
    if counted is None:
        assert not ranked
        return
    expected = [rank for rank in (1, 2, 3, 5, 10) if rank in ranked] if by_rank else [None]
    assert {rank.rank for rank in counted.ranks} >= set(expected)
    assert {rank.rank for rank in counted.ranks} <= ranked.keys()
    for rank in counted.ranks:
        distances = np.sort(np.array(ranked[rank.rank], np.float64))
        edges = counted.start + counted.width * np.arange(len(rank.counts) + 1)
        places = np.searchsorted(edges, distances, side="right") - 1
        inside = places[(places >= 0) & (distances < edges[-1])]
        assert rank.counts == tuple(np.bincount(inside, minlength=len(rank.counts)).tolist())
        assert rank.below == np.count_nonzero(distances < edges[0])
        assert rank.above == np.count_nonzero(distances >= edges[-1])
        assert rank.rows == len(distances)
        for share, quantile in zip(QUANTILES, rank.quantiles, strict=True):
            true = distances[int(np.ceil(share * len(distances))) - 1]
            if quantile is None:
                assert abs(true) > 3.38e38
            else:
                assert quantile <= true <= quantile + abs(quantile) / 128 + 1e-37
