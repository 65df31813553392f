from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lancestat.joins.search import prefilter as prefilter_module
from lancestat.joins.search import search as search_module
from lancestat.joins.search.metrics import COSINE, DOT, L2, Metric
from lancestat.joins.search.neighbours import Neighbours, merge, within, without
from lancestat.joins.search.prefilter import Scaling
from lancestat.joins.search.search import UNLIMITED, ExactSearch, RowList
from lancestat.joins.search.work import distance_limit
from tests.examples import each, examples
from tests.joins.search.brute_force import (
    FORMULAS,
    assert_nearest,
    assert_same,
    nearest_by,
    pair_distances,
)
from tests.joins.search.exact import search

Matrix = NDArray[np.float32]


def ranked(queries: Matrix, rows: Matrix, k: int, metric: Metric, first: int = 0) -> Neighbours:
    """Return the expected neighbours of a search, computed pair by pair.

    `first` is the position of the first row.
    """
    matrix = np.array(
        [metric.distances(np.broadcast_to(query, rows.shape), rows) for query in queries]
    ).reshape(len(queries), len(rows))
    return nearest_by(matrix, first + np.arange(len(rows)), k)


def normal(random: np.random.Generator, rows: int, dimension: int) -> Matrix:
    return random.standard_normal((rows, dimension)).astype(np.float32)


def usable(vectors: Matrix, metric: Metric) -> Matrix:
    """Vectors that can match: under cosine none is zero."""
    if metric is COSINE:
        vectors[~vectors.any(axis=1)] = 1
    return vectors


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("dimension", [1, 2, 7, 64, 300, 768, 1536])
def test_neighbours_are_those_of_brute_force(dimension: int, metric: Metric) -> None:
    random = np.random.default_rng(dimension)
    queries, rows = normal(random, 23, dimension), normal(random, 1500, dimension)
    neighbours = search(queries, rows, 10, metric)
    assert_same(neighbours, ranked(queries, rows, 10, metric))
    assert_nearest(neighbours, pair_distances(queries, rows, metric), 10, noise=1e-11 * dimension)


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("exponent", [-44, -38, -30, -20, -10, 10, 19, 30, 37])
def test_neighbours_are_exact_at_every_scale_of_float32(exponent: int, metric: Metric) -> None:
    random = np.random.default_rng(7)
    scale = np.float32(10.0**exponent)
    queries, rows = normal(random, 20, 24) * scale, normal(random, 400, 24) * scale
    queries, rows = usable(queries, metric), usable(rows, metric)
    assert_same(search(queries, rows, 7, metric), ranked(queries, rows, 7, metric))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_neighbours_are_exact_when_lengths_differ_by_orders_of_magnitude(metric: Metric) -> None:
    random = np.random.default_rng(8)
    rows = normal(random, 600, 16) * (10.0 ** random.integers(-30, 30, (600, 1))).astype(np.float32)
    queries = normal(random, 40, 16) * (10.0 ** random.integers(-30, 30, (40, 1))).astype(
        np.float32
    )
    assert_same(search(queries, rows, 9, metric), ranked(queries, rows, 9, metric))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize(
    ("scales", "compared"), [((1, 1e30), 2 * 50 * 5), ((1e37, 1), 5000 + 3 * 49 * 5)]
)
def test_one_enormous_vector_does_not_reduce_the_accuracy_of_others(
    scales: tuple[float, float], compared: int, metric: Metric
) -> None:
    random = np.random.default_rng(9)
    queries, rows = normal(random, 50, 32), normal(random, 5000, 32)
    queries[7] *= scales[0]
    rows[1234] *= scales[1]
    nearest = ExactSearch(queries, 5, metric)
    nearest.add(rows, np.arange(5000))
    assert_same(nearest.neighbours(), ranked(queries, rows, 5, metric))
    assert nearest.compared < compared


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize(("short", "long"), [(-30, 20), (-19, 37), (-30, 37), (-10, 10)])
def test_lists_of_short_rows_do_not_reduce_the_accuracy_of_others(
    short: int, long: int, metric: Metric
) -> None:
    random = np.random.default_rng(24)
    queries, rows = normal(random, 9, 4), normal(random, 100, 4)
    queries[1:], queries[0] = queries[1:] * 10.0**long, queries[0] * 10.0**short
    rows *= np.float32(10.0**short)
    nearest = ExactSearch(queries, 2, metric)
    nearest.add_lists(rows[:50], np.arange(50), [RowList(slice(0, 50), np.array([0]))])
    nearest.add_lists(rows[50:], np.arange(50, 100), [RowList(slice(0, 50), np.arange(1, 9))])
    found = nearest.neighbours()
    expected = ranked(queries[1:], rows[50:], 2, metric, first=50)
    assert_same(Neighbours(found.positions[1:], found.distances[1:]), expected)
    expected = ranked(queries[:1], rows[:50], 2, metric)
    assert_same(Neighbours(found.positions[:1], found.distances[:1]), expected)


@pytest.mark.parametrize("seed", range(10))
def test_queries_that_the_scaling_of_others_rounds_to_almost_zero_are_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = np.array([3e-18, *[1e19] * 9, 1e28], np.float32)[:, None]
    queries, rows = normal(random, 11, 5) * lengths, normal(random, 600, 5) * np.float32(5e37)
    nearest = ExactSearch(queries, 3, DOT, like=queries)
    for start in range(0, 600, 30):
        nearest.add(rows[start : start + 30], np.arange(start, start + 30))
    assert_same(nearest.neighbours(), ranked(queries, rows, 3, DOT))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_neighbours_are_exact_far_from_the_origin(metric: Metric) -> None:
    random = np.random.default_rng(10)
    offset = 1000 * random.standard_normal(48).astype(np.float32)
    queries, rows = normal(random, 30, 48) + offset, normal(random, 3000, 48) + offset
    nearest = ExactSearch(queries, 10, metric)
    nearest.add(rows, np.arange(3000))
    assert_same(nearest.neighbours(), ranked(queries, rows, 10, metric))
    if metric is L2:
        assert nearest.compared < 2 * 30 * 10


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_ties_are_in_row_order(metric: Metric) -> None:
    random = np.random.default_rng(11)
    kinds = usable(random.integers(-2, 3, (12, 4)).astype(np.float32), metric)
    rows, queries = kinds[random.integers(0, 12, 5000)], kinds[random.integers(0, 12, 30)]
    for k in (1, 10, 500):
        assert_same(search(queries, rows, k, metric), ranked(queries, rows, k, metric))


def test_integers_have_the_neighbours_of_exact_arithmetic() -> None:
    random = np.random.default_rng(12)
    rows = random.integers(-50, 50, (4000, 6))
    queries = random.integers(-50, 50, (60, 6))
    narrow = queries.astype(np.float32), rows.astype(np.float32)
    squares = ((queries[:, None] - rows[None]) ** 2).sum(axis=2)
    exact = nearest_by(squares.astype(np.float64), np.arange(4000), 25)
    assert_same(search(*narrow, 25, L2), exact)
    products = 1 - (queries[:, None] * rows[None]).sum(axis=2)
    exact = nearest_by(products.astype(np.float64), np.arange(4000), 25)
    assert_same(search(*narrow, 25, DOT), exact)


def test_zero_queries_are_equally_far_from_all_rows_under_dot() -> None:
    random = np.random.default_rng(13)
    rows = normal(random, 30_000, 8)
    nearest = ExactSearch(np.zeros((200, 8), np.float32), 5, DOT)
    nearest.add(rows, np.arange(30_000))
    assert (nearest.neighbours().positions == np.arange(5)).all()
    assert (nearest.neighbours().distances == 1).all()
    assert nearest.compared < 200 * 5000


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("k", [1, 2, 99, 100, 101, 5000])
def test_k_may_be_below_or_above_the_number_of_rows(k: int, metric: Metric) -> None:
    random = np.random.default_rng(14)
    queries, rows = normal(random, 5, 3), normal(random, 100, 3)
    assert_same(search(queries, rows, k, metric), ranked(queries, rows, k, metric))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_a_search_without_rows_or_queries_is_empty(metric: Metric) -> None:
    some, none = np.ones((3, 4), np.float32), np.empty((0, 4), np.float32)
    neighbours = search(some, none, 2, metric)
    assert (neighbours.positions == -1).all() and np.isinf(neighbours.distances).all()
    assert search(none, some, 2, metric).positions.shape == (0, 2)


@settings(max_examples=examples(150))
@given(
    st.integers(0, 2**32),
    st.sampled_from(FORMULAS),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 12), st.booleans()), max_size=12),
    st.sampled_from([200, 5_000, 1 << 20]),
    st.sampled_from([1, 16, 4096]),
    st.sampled_from(["plain", "rounded", "long row", "long query", "after"]),
    st.booleans(),
)
def test_lists_of_rows_are_searched_for_some_queries_each(
    seed: int,
    metric: Metric,
    k: int,
    sizes: list[tuple[int, int, bool]],
    held: int,
    tile: int,
    kind: str,
    is_limited: bool,
) -> None:
    """Lists of all lengths, some of them skipped, whatever is held and put together at once."""
    random = np.random.default_rng(seed)
    total = sum(size for size, _, _ in sizes)
    queries, rows = normal(random, 12, 6), normal(random, total, 6)
    if kind == "rounded":
        queries, rows = queries.round(), rows.round()
    if kind == "long row" and total:
        rows[random.integers(0, total)] *= np.float32(1e25)
    if kind == "long query":
        queries[3] *= np.float32(1e30)
    queries, rows = usable(queries, metric), usable(rows, metric)
    places = random.permutation(total + 5)[:total]
    after = random.integers(0, total + 5, 12) if kind == "after" else None
    limit = distance_limit(3.0 if metric is L2 else 0.7) if is_limited else UNLIMITED
    lists, start = [], 0
    for size, visitors, is_skipped in sizes:
        chosen = np.sort(random.permutation(12)[:visitors])
        if not is_skipped:
            lists.append(RowList(slice(start, start + size), chosen))
        start += size
    nearest = ExactSearch(
        queries, k, metric, limit=limit, after=after, like=rows if total else None
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (search_module, prefilter_module):
            patch.setattr(module, "HELD_PAIRS", held)
            patch.setattr(module, "TILE_ROWS", tile)
        nearest.add_lists(rows, places, lists)
    distance = np.array([metric.distances(np.broadcast_to(q, rows.shape), rows) for q in queries])
    for query in range(12):
        visited = [
            np.arange(item.rows.start, item.rows.stop) for item in lists if query in item.queries
        ]
        some = np.concatenate([np.empty(0, np.int64), *visited])
        if after is not None:
            some = some[places[some] >= after[query]]
        expected = nearest_by(distance[query][None, some], places[some], k)
        found = nearest.neighbours()
        alone = Neighbours(found.positions[query][None], found.distances[query][None])
        assert_same(alone, within(expected, limit))


@pytest.mark.parametrize("k", [4_000, 4_097, 9_000])
def test_k_may_be_above_the_rows_of_a_tile(k: int) -> None:
    random = np.random.default_rng(25)
    queries, rows = normal(random, 5, 3), normal(random, 20_000, 3).round(2)
    assert_same(search(queries, rows, k, L2), ranked(queries, rows, k, L2))


@pytest.mark.parametrize("period", [2, 16, 41, 64, 257])
def test_rows_that_repeat_something_are_not_all_compared(period: int) -> None:
    """Of every so many rows one is near: few of them are compared all the same."""
    random = np.random.default_rng(22)
    rows = normal(random, 4_000, 32)
    rows[period // 2 :: period] /= 4
    nearest = ExactSearch(normal(random, 50, 32) / 4, 10, L2)
    nearest.add(rows, np.arange(len(rows)))
    assert nearest.compared < 50 * 10 * 4


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("is_after", [False, True])
def test_products_with_the_largest_possible_error_do_not_change_the_result(
    metric: Metric, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of float32 are replaced by ones as far off as sums in any order can be.

    Sums of n products are off by up to n u / (1 - n u) times the sum of absolute values.
    """
    random = np.random.default_rng(17)
    kinds = normal(random, 60, 16)
    rows = (kinds[random.integers(0, 60, 12_000)] + 1e-6 * normal(random, 12_000, 16)).astype(
        np.float32
    )
    queries = (kinds + 1e-6 * normal(random, 60, 16)).astype(np.float32)
    rounded = 0

    def noisy(asked: Matrix, offered: Matrix) -> NDArray[np.float64]:
        nonlocal rounded
        rounded += asked.shape[0] * offered.shape[0]
        wide_asked, wide = asked.astype(np.float64), offered.astype(np.float64)
        share = asked.shape[1] * 2.0**-24 / (1 - asked.shape[1] * 2.0**-24)
        sizes = np.abs(wide_asked) @ np.abs(wide).T
        return wide_asked @ wide.T + random.choice([-1, 1], sizes.shape) * share * sizes

    def multiply(asked: Matrix, offered: Matrix, out: Matrix) -> None:
        out[:] = noisy(asked, offered)

    monkeypatch.setattr(prefilter_module, "multiply", multiply)
    after = np.full(60, 1) if is_after else None
    nearest = ExactSearch(queries, 10, metric, after=after)
    nearest.add(rows, np.arange(12_000))
    assert_same(nearest.neighbours(), ranked(queries, rows[is_after:], 10, metric, is_after))
    assert rounded >= 60 * 12_000


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("exponent", [-30, 0, 12])
def test_no_row_within_a_limit_falls_below_the_threshold(metric: Metric, exponent: int) -> None:
    """Limits are the very distances of pairs, which exact products place at the threshold."""
    random = np.random.default_rng(20)
    queries = normal(random, 50, 24) * np.float32(10.0**exponent)
    rows = normal(random, 50, 24) * np.float32(10.0**exponent)
    scaling = Scaling.around(queries, rows, metric)
    asked, (offered, longest, _) = scaling.prepare_queries(queries), scaling.prepare_rows(rows)
    limit = metric.distances(queries, rows).astype(np.float32)
    added, _ = scaling.thresholds(limit, asked, longest, scaling.error(asked, longest))
    asked.values[:, -1] = added
    sums = np.einsum("nd,nd->n", asked.values.astype(np.float64), offered.astype(np.float64))
    sizes = np.einsum(
        "nd,nd->n",
        np.abs(asked.values).astype(np.float64),
        np.abs(offered).astype(np.float64),
    )
    assert (sums - 26 * 2.0**-24 * sizes >= 0).all()


def test_few_pairs_are_compared_twice() -> None:
    """On vectors like those of embeddings, exactness costs few times k distances for a query.

    Of each tile of rows these are about k divided by the number of the tile.
    """
    random = np.random.default_rng(18)
    for dimension in (128, 768):
        rows = normal(random, 20_000, dimension)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        nearest = ExactSearch(rows[:200], 10, COSINE)
        nearest.add(rows, np.arange(20_000))
        assert nearest.compared < 200 * 10 * (1.3 + 1 + 1 / 2 + 1 / 3 + 1 / 4)


def within_bounds(
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
    expected = within_bounds(queries, rows, k, metric, allowed, most)
    assert_same(nearest.neighbours(), expected)
    if after is None:
        apart = [search(queries, rows[part], k, metric, np.arange(400)[part]) for part in parts]
        assert_same(within(merge(apart, k), limit), expected)


@pytest.mark.parametrize(
    ("near", "metric"),
    each([(0.0, 0), (0.001, 0), (0.2, 20_001), (1.0, 20_001)], FORMULAS),
    ids=str,
)
def test_many_rows_are_searched_within_bounds(metric: Metric, near: tuple[float, int]) -> None:
    share, first = near
    random = np.random.default_rng(3)
    rows = normal(random, 30_000, 24)
    queries = rows[20_000:20_300]
    most = float(search(queries[:1], rows, 30_000, metric).distances[0][round(share * 29_999)])
    after = np.arange(first, first + 300) if first else np.zeros(300, np.int64)
    nearest = ExactSearch(queries, 10, metric, limit=distance_limit(most), after=after)
    nearest.add(rows, np.arange(30_000))
    allowed = np.arange(30_000) >= after[:, None]
    assert_same(nearest.neighbours(), within_bounds(queries, rows, 10, metric, allowed, most))


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("k", [1, 4, 200])
def test_a_row_is_left_out_by_its_position_and_not_by_its_vector(metric: Metric, k: int) -> None:
    random = np.random.default_rng(2)
    kinds = usable(normal(random, 9, 5), metric)
    rows = kinds[random.integers(0, 9, 150)]
    own = np.arange(150)
    own[::7] = -1
    found = without(search(rows, rows, k + 1, metric), own)
    assert_same(found, within_bounds(rows, rows, k, metric, np.arange(150) != own[:, None]))


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
