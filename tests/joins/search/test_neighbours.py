"""Neighbours merged, against Python's own sort."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.joins.search.neighbours import Neighbours, merge, share_found
from tests.examples import examples

# Few values, so that there are ties; a distance of infinity is one, and a zero may be negative.
_DISTANCES = st.sampled_from([-1.5, -0.0, 0.0, 1e-45, 0.25, 0.5, 3e38, float("inf")])


@st.composite
def sides(draw: Any) -> tuple[list[list[list[tuple[float, int]]]], list[int]]:
    """Neighbours (part, query) as sorted pairs of distance and position, and the parts' widths."""
    widths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    queries = draw(st.integers(0, 4))
    parts: list[list[list[tuple[float, int]]]] = [[] for _ in widths]
    for _ in range(queries):
        places = iter(draw(st.permutations(range(sum(widths)))))
        for part, width in zip(parts, widths, strict=True):
            some = draw(st.lists(_DISTANCES, max_size=width))
            part.append(sorted((distance, next(places)) for distance in some))
    return parts, widths


def neighbours(lines: list[list[tuple[float, int]]], width: int) -> Neighbours:
    result = Neighbours(
        np.full((len(lines), width), -1, np.int64), np.full((len(lines), width), np.inf, np.float32)
    )
    for number, line in enumerate(lines):
        for rank, (distance, position) in enumerate(line):
            result.distances[number, rank], result.positions[number, rank] = distance, position
    return result


@settings(max_examples=examples(300))
@given(sides(), st.integers(1, 20))
def test_merged_neighbours_are_the_nearest_of_all(
    drawn: tuple[list[list[list[tuple[float, int]]]], list[int]], k: int
) -> None:
    parts, widths = drawn
    merged = merge([neighbours(part, width) for part, width in zip(parts, widths, strict=True)], k)
    together = [sorted(chain.from_iterable(lines))[:k] for lines in zip(*parts, strict=True)]
    expected = neighbours(together, k)
    np.testing.assert_array_equal(merged.positions, expected.positions)
    np.testing.assert_array_equal(merged.distances, expected.distances)


def test_the_share_of_true_neighbours_in_visited_lists() -> None:
    visits = np.array([[2, 0], [0, -1]], np.int32)
    true = np.array([[2, 2, 1, 0], [2, 0, -1, -1]], np.int32)
    assert share_found(true, visits) == pytest.approx(4 / 6)
    assert share_found(np.full((2, 4), -1, np.int32), visits) is None
    assert share_found(true[:0], visits[:0]) is None
