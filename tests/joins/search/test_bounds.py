"""Neighbours within a distance, after a position, and without a row itself, against all pairs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.joins.search.metrics import DOT, L2, Metric
from lancestat.joins.search.neighbours import Neighbours, within, without
from lancestat.joins.search.request import distance_limit
from lancestat.joins.search.search import ExactSearch, search
from tests.examples import examples
from tests.joins.search.brute_force import FORMULAS, assert_same
from tests.joins.search.test_search import Matrix, normal, usable


def ranked(
    queries: Matrix, rows: Matrix, k: int, metric: Metric, allowed: np.ndarray, most: float = np.inf
) -> Neighbours:
    """The k nearest of the rows that each query may have."""
    places = np.full((len(queries), k), -1, np.int64)
    near = np.full((len(queries), k), np.inf, np.float32)
    for number, query in enumerate(queries):
        wide = metric.distances(np.broadcast_to(query, rows.shape), rows).astype(np.float32)
        some = np.flatnonzero(allowed[number] & (wide.astype(np.float64) <= most))
        order = some[np.lexsort((some, wide[some]))][:k]
        places[number, : len(order)], near[number, : len(order)] = order, wide[order]
    return Neighbours(places, near)


@settings(max_examples=examples(120))
@given(
    st.integers(0, 2**32),
    st.sampled_from(FORMULAS),
    st.integers(1, 12),
    st.integers(1, 60),
    st.lists(st.integers(0, 400), max_size=5),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 300.0]),
    st.sampled_from([100, 5000, 1 << 26]),
    st.none() | st.floats(0, 1),
    st.sampled_from([-1, 0, 1]),
    st.booleans(),
)
def test_bounded_neighbours_are_those_of_brute_force(
    seed: int,
    metric: Metric,
    dimension: int,
    k: int,
    cuts: list[int],
    is_rounded: bool,
    offset: float,
    block_bytes: int,
    share: float | None,
    steps: int,
    is_after: bool,
) -> None:
    """The largest distance, if any, is one that occurs, or the next number in double to it."""
    random = np.random.default_rng(seed)
    rows = normal(random, 400, dimension) + offset
    rows = (usable(rows.round(), metric) if is_rounded else rows).astype(np.float32)
    queries, most = rows[random.integers(0, 400, 12)], np.inf
    if share is not None:
        most = float(search(queries[:1], rows, 400, metric).distances[0][round(share**3 * 399)])
        most = float(np.nextafter(most, steps * np.inf)) if steps else most
    limit = distance_limit(None if np.isinf(most) else most)
    after = np.concatenate([[0, 400, 401], random.integers(0, 402, 9)]) if is_after else None
    nearest = ExactSearch(queries, k, metric, limit=limit, after=after, block_bytes=block_bytes)
    parts = [slice(*edges) for edges in pairwise([0, *sorted(cuts), 400])]
    for number in random.permutation(len(parts)):
        nearest.add(rows[parts[number]], np.arange(400)[parts[number]])
    allowed = np.arange(400) >= (np.zeros(12, int) if after is None else after)[:, None]
    expected = ranked(queries, rows, k, metric, allowed, most)
    assert_same(nearest.neighbours(), expected)
    if after is None:
        assert_same(within(search(queries, rows, k, metric), limit), expected)


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize(("share", "first"), [(0.0, 0), (0.001, 0), (0.2, 20_001), (1.0, 20_001)])
def test_many_rows_are_searched_within_bounds(metric: Metric, share: float, first: int) -> None:
    random = np.random.default_rng(3)
    rows = normal(random, 30_000, 24)
    queries = rows[20_000:20_300]
    most = float(search(queries[:1], rows, 30_000, metric).distances[0][round(share * 29_999)])
    after = np.arange(first, first + 300) if first else np.zeros(300, np.int64)
    nearest = ExactSearch(queries, 10, metric, limit=distance_limit(most), after=after)
    nearest.add(rows, np.arange(30_000))
    allowed = np.arange(30_000) >= after[:, None]
    assert_same(nearest.neighbours(), ranked(queries, rows, 10, metric, allowed, most))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("k", [1, 4, 200])
def test_a_row_is_left_out_by_its_position_and_not_by_its_vector(metric: Metric, k: int) -> None:
    random = np.random.default_rng(2)
    kinds = usable(normal(random, 9, 5), metric)
    rows = kinds[random.integers(0, 9, 150)]
    own = np.arange(150)
    own[::7] = -1
    found = without(search(rows, rows, k + 1, metric), own)
    assert_same(found, ranked(rows, rows, k, metric, np.arange(150) != own[:, None]))


def test_rows_that_are_too_far_are_ruled_out_by_gemm() -> None:
    """With a distance that few rows are within, few pairs are compared in float64."""
    rows = normal(np.random.default_rng(4), 100_000, 64)
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


def test_a_distance_of_0_3_as_a_float_is_more_than_0_3() -> None:
    query, row = np.ones((1, 1), np.float32), np.full((1, 1), 0.7, np.float32)
    for most, position in ((0.3, -1), (float(np.float32(0.3)), 0)):
        nearest = ExactSearch(query, 1, DOT, limit=distance_limit(most))
        nearest.add(row, np.arange(1))
        assert nearest.neighbours().positions[0, 0] == position
