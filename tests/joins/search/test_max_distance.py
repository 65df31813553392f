"""Neighbours within a largest distance, against all pairs in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.joins.search.metrics import DOT, L2, Metric
from lancestat.joins.search.neighbours import Neighbours, within
from lancestat.joins.search.request import distance_limit
from lancestat.joins.search.search import ExactSearch, search
from tests.examples import examples
from tests.joins.search.brute_force import FORMULAS, assert_same, nearest_by
from tests.joins.search.test_search import Matrix, normal, usable


def searched(
    queries: Matrix, rows: Matrix, k: int, metric: Metric, max_distance: float
) -> Neighbours:
    nearest = ExactSearch(queries, k, metric, limit=distance_limit(max_distance))
    nearest.add(rows, np.arange(len(rows)))
    return nearest.neighbours()


def ranked(
    queries: Matrix, rows: Matrix, k: int, metric: Metric, max_distance: float
) -> Neighbours:
    matrix = np.array(
        [metric.distances(np.broadcast_to(query, rows.shape), rows) for query in queries]
    )
    return nearest_by(matrix, np.arange(len(rows)), k, max_distance)


@settings(max_examples=examples(80))
@given(
    st.integers(0, 2**32),
    st.sampled_from(FORMULAS),
    st.integers(1, 12),
    st.integers(1, 60),
    st.lists(st.integers(0, 500), max_size=5),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 300.0]),
    st.sampled_from([100, 5000, 1 << 26]),
    st.floats(0, 1),
    st.sampled_from([-1, 0, 1]),
)
def test_neighbours_within_a_distance_are_those_of_brute_force(
    seed: int,
    metric: Metric,
    dimension: int,
    k: int,
    cuts: list[int],
    is_rounded: bool,
    offset: float,
    block_bytes: int,
    share: float,
    steps: int,
) -> None:
    """The largest distance is one that occurs, or the next number in double to it."""
    random = np.random.default_rng(seed)
    queries, rows = normal(random, 9, dimension) + offset, normal(random, 500, dimension) + offset
    if is_rounded:
        queries, rows = usable(queries.round(), metric), usable(rows.round(), metric)
    queries, rows = queries.astype(np.float32), rows.astype(np.float32)
    everything = search(queries[:1], rows, 500, metric).distances[0]
    max_distance = float(everything[round(share**3 * 499)])
    max_distance = float(np.nextafter(max_distance, steps * np.inf)) if steps else max_distance
    limit = distance_limit(max_distance)
    nearest = ExactSearch(queries, k, metric, limit=limit, block_bytes=block_bytes)
    parts = [slice(*edges) for edges in pairwise([0, *sorted(cuts), 500])]
    for number in random.permutation(len(parts)):
        nearest.add(rows[parts[number]], np.arange(500)[parts[number]])
    expected = ranked(queries, rows, k, metric, max_distance)
    assert_same(nearest.neighbours(), expected)
    assert_same(within(search(queries, rows, k, metric), limit), expected)


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 1.0])
def test_many_rows_are_searched_within_a_distance(metric: Metric, share: float) -> None:
    random = np.random.default_rng(3)
    queries, rows = normal(random, 300, 24), normal(random, 30_000, 24)
    some = search(queries[:1], rows, 30_000, metric).distances[0]
    max_distance = float(some[round(share * 29_999)])
    k = 10
    expected = ranked(queries, rows, k, metric, max_distance)
    assert_same(searched(queries, rows, k, metric, max_distance), expected)


def test_rows_that_are_too_far_are_ruled_out_by_products() -> None:
    """With a distance that few rows are within, few pairs are compared in float64."""
    random = np.random.default_rng(4)
    rows = normal(random, 100_000, 64)
    nearest = ExactSearch(rows[:500], 50, L2, limit=distance_limit(1.0))
    nearest.add(rows, np.arange(len(rows)))
    assert (np.count_nonzero(nearest.neighbours().positions >= 0, axis=1) == 1).all()
    assert nearest.compared < 500 * 80


@pytest.mark.parametrize(
    ("max_distance", "limit"),
    [
        (None, np.inf),
        (0.5, 0.5),
        (0.3, np.nextafter(np.float32(0.3), np.float32(0))),
        (float(np.float32(0.3)), np.float32(0.3)),
        (0.1, np.nextafter(np.float32(0.1), np.float32(0))),
        (0.7, np.float32(0.7)),
        (1e39, np.finfo(np.float32).max),
        (-1e39, -np.inf),
        (0.0, 0.0),
    ],
)
def test_the_limit_is_the_largest_float_that_is_at_most_the_distance(
    max_distance: float | None, limit: float
) -> None:
    assert distance_limit(max_distance) == np.float32(limit)
    if max_distance is not None:
        assert float(distance_limit(max_distance)) <= max_distance
        with np.errstate(over="ignore"):
            above = np.nextafter(distance_limit(max_distance), np.float32(np.inf))
        assert float(above) > max_distance


def test_a_distance_of_0_3_as_a_float_is_more_than_0_3() -> None:
    query, row = np.ones((1, 1), np.float32), np.full((1, 1), 0.7, np.float32)
    [[distance]] = search(query, row, 1, DOT).distances
    assert distance == np.float32(0.3)
    assert searched(query, row, 1, DOT, 0.3).positions[0, 0] == -1
    assert searched(query, row, 1, DOT, float(np.float32(0.3))).positions[0, 0] == 0
