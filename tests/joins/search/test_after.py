"""Neighbours after a position, and without a row itself, against all pairs in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.joins.search.metrics import L2, Metric
from lancestat.joins.search.neighbours import Neighbours, without
from lancestat.joins.search.request import distance_limit
from lancestat.joins.search.search import ExactSearch, search
from tests.examples import examples
from tests.joins.search.brute_force import FORMULAS, assert_same
from tests.joins.search.test_search import Matrix, normal, usable


def ranked(
    queries: Matrix, rows: Matrix, k: int, metric: Metric, allowed: np.ndarray, most: float
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


@settings(max_examples=examples(80))
@given(
    st.integers(0, 2**32),
    st.sampled_from(FORMULAS),
    st.integers(1, 10),
    st.integers(1, 60),
    st.lists(st.integers(0, 400), max_size=5),
    st.booleans(),
    st.sampled_from([100, 5000, 1 << 26]),
    st.sampled_from([np.inf, 0.5, 3.0]),
)
def test_neighbours_behind_a_position_are_those_of_brute_force(
    seed: int,
    metric: Metric,
    dimension: int,
    k: int,
    cuts: list[int],
    is_rounded: bool,
    block_bytes: int,
    most: float,
) -> None:
    random = np.random.default_rng(seed)
    rows = normal(random, 400, dimension)
    if is_rounded:
        rows = usable(rows.round(), metric)
    after = random.integers(0, 402, 20)
    after[:3] = (0, 400, 401)
    queries = rows[random.integers(0, 400, 20)]
    limit = distance_limit(None if np.isinf(most) else most)
    nearest = ExactSearch(queries, k, metric, limit=limit, after=after, block_bytes=block_bytes)
    parts = [slice(*edges) for edges in pairwise([0, *sorted(cuts), 400])]
    for number in random.permutation(len(parts)):
        nearest.add(rows[parts[number]], np.arange(400)[parts[number]])
    allowed = np.arange(400) >= after[:, None]
    assert_same(nearest.neighbours(), ranked(queries, rows, k, metric, allowed, most))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("k", [1, 4, 200])
def test_a_row_is_left_out_by_its_position_and_not_by_its_vector(metric: Metric, k: int) -> None:
    random = np.random.default_rng(2)
    kinds = usable(normal(random, 9, 5), metric)
    rows = kinds[random.integers(0, 9, 150)]
    own = np.arange(150)
    own[::7] = -1
    found = without(search(rows, rows, k + 1, metric), own)
    allowed = np.arange(150) != own[:, None]
    assert_same(found, ranked(rows, rows, k, metric, allowed, np.inf))


def test_each_pair_of_many_rows_is_found_once() -> None:
    random = np.random.default_rng(3)
    rows = normal(random, 30_000, 8)
    queries = rows[20_000:20_300]
    after = np.arange(20_001, 20_301)
    nearest = ExactSearch(queries, 6, L2, after=after)
    nearest.add(rows, np.arange(30_000))
    allowed = np.arange(30_000) >= after[:, None]
    assert_same(nearest.neighbours(), ranked(queries, rows, 6, L2, allowed, np.inf))
