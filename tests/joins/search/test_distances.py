"""Distances by rank: cells, sums over tasks, and intervals that suit what was counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lancestat.joins.record import JoinDistances
from lancestat.joins.search.distances import (
    CellCounts,
    DistanceTally,
    counted_ranks,
    join_distances,
    unpacked,
)
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.work import MOST_NEIGHBOURS
from tests.joins.search.counted_distances import assert_counted


def neighbours(distances: NDArray[np.float32]) -> Neighbours:
    """Neighbours at these distances, of which NaN are none."""
    found = ~np.isnan(distances)
    return Neighbours(
        np.where(found, 7, -1), np.where(found, distances, np.float32(np.inf)).astype(np.float32)
    )


def tallied(distances: NDArray[np.float32], ranks: tuple[int, ...]) -> CellCounts:
    tally = DistanceTally(ranks)
    tally.add(neighbours(distances))
    return tally.counts()


def counted(distances: NDArray[np.float32], *, least_width: float = 0.0) -> JoinDistances:
    ranks = counted_ranks(distances.shape[1])
    made = join_distances([tallied(distances, ranks)], ranks, 5, least_width=least_width)
    assert made is not None
    lines = [
        (at, None if np.isnan(d) else float(d)) for at, row in enumerate(distances) for d in row
    ]
    assert_counted(made, lines)
    return made


@pytest.mark.parametrize(
    ("k", "ranks"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (4, (1, 2, 3, 4)),
        (10, (1, 2, 3, 5, 10)),
        (64, (1, 2, 3, 5, 10, 64)),
        (MOST_NEIGHBOURS, (1, 2, 3, 5, 10, 100, 1000, 10_000, 100_000)),
    ],
)
def test_a_few_ranks_are_counted(k: int, ranks: tuple[int, ...]) -> None:
    assert counted_ranks(k) == ranks


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=True)
NEAR = st.floats(-4, 4, width=32)


@given(st.lists(st.lists(FLOATS | NEAR | st.integers(-3, 300), min_size=3, max_size=3), min_size=1))
def test_every_distance_is_counted_in_its_interval(rows: list[list[float]]) -> None:
    made = counted(np.sort(np.array(rows, np.float32), axis=1))
    assert len(made.ranks[0].counts) <= 64
    assert np.frexp(made.width)[0] == 0.5, "a power of two"


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_counts_of_tasks_are_added(parts: int) -> None:
    rows = np.sort(np.random.default_rng(3).gamma(3, size=(500, 4)), axis=1).astype(np.float32)
    ranks = counted_ranks(4)
    some = [tallied(part, ranks) for part in np.array_split(rows, parts)]
    assert join_distances(some, ranks, 500) == join_distances([tallied(rows, ranks)], ranks, 500)


def test_a_tally_goes_on_with_more_rows() -> None:
    rows = np.array([[0.5], [2.0], [np.nan]], np.float32)
    tally = DistanceTally((1,))
    for row in rows:
        tally.add(neighbours(row[None]))
    assert tally.counts() == tallied(rows, (1,))


def test_ranks_beyond_what_was_found_are_left_out() -> None:
    rows = np.array([[1, 2, np.nan], [1, np.nan, np.nan]], np.float32)
    made = counted(rows)
    assert [(rank.rank, rank.rows) for rank in made.ranks] == [(1, 2), (2, 1)]
    assert made.left_rows == 5


def test_all_distances_are_counted_together_without_ranks() -> None:
    rows = np.array([[1, 2, 3], [1, np.nan, np.nan]], np.float32)
    made = join_distances([tallied(rows, ())], (), 2)
    assert_counted(made, [(0, 1.0), (0, 2.0), (0, 3.0), (1, 1.0)], by_rank=False)


def test_nothing_is_made_of_no_neighbours() -> None:
    rows = np.full((3, 2), np.nan, np.float32)
    assert join_distances([tallied(rows, (1, 2))], (1, 2), 3) is None
    assert join_distances([], (1, 2), 3) is None


def test_intervals_are_fine_enough_to_see_a_shape() -> None:
    made = counted(np.random.default_rng(5).gamma(4, size=(5000, 1)).astype(np.float32))
    assert 32 <= len(made.ranks[0].counts) <= 64
    assert made.ranks[0].above < 5


def test_one_distance_far_from_all_others_does_not_flatten_them() -> None:
    bulk = np.random.default_rng(5).uniform(1, 2, 1000)
    made = counted(np.append(bulk, [1e30, -1e30]).astype(np.float32)[:, None])
    [rank] = made.ranks
    assert (rank.below, rank.above) == (1, 1)
    assert sum(number > 0 for number in rank.counts) > 30


def test_equal_distances_are_one_interval() -> None:
    for value in (0.0, 0.25, 3.0, -2.0, np.finfo(np.float32).max, np.inf):
        made = counted(np.full((9, 1), value, np.float32))
        assert made.ranks[0].rows == 9
        assert len(made.ranks[0].counts) == 1


def test_nearly_all_equal_distances_leave_the_others_visible() -> None:
    made = counted(np.append(np.zeros(5000), [0.2, 0.4]).astype(np.float32)[:, None])
    assert made.ranks[0].above == 0


def test_distances_that_are_whole_numbers_have_intervals_of_whole_numbers() -> None:
    made = counted(np.array([[3], [4], [4], [5]], np.float32), least_width=1.0)
    assert (made.start, made.width, made.ranks[0].counts) == (3.0, 1.0, (1, 2, 1))
    assert made.ranks[0].quantiles == (4.0, 5.0, 5.0)


def test_cells_are_as_fine_everywhere() -> None:
    ends = np.geomspace(1e-3, 1e3, 5000).astype(np.float32)
    cells, _ = unpacked(tallied(ends[:, None], (1,)))
    assert len(cells) > 128 * np.log2(1e6) * 0.95
    assert all(low < high for low, high in pairwise(cells.tolist()))


def test_what_a_task_counts_is_small() -> None:
    rows = np.sort(np.random.default_rng(1).random((50_000, 10), np.float32), axis=1)
    assert len(tallied(rows, counted_ranks(10))) < 10_000
