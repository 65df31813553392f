from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.search.centroids import best, choose_nprobes, recall_curve, train
from lancestat.joins.search.metrics import COSINE, DOT, L2, Metric
from tests.joins.search import brute_force
from tests.joins.search.brute_force import FORMULAS
from tests.joins.search.exact import search

clustered = partial(brute_force.clustered, dimension=16, clusters=50, width=0.5)


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_training_is_the_same_for_the_same_rows(metric: Metric) -> None:
    sample = clustered(1, 2000)
    first, again = train(sample, 20, metric), train(sample.copy(), 20, metric)
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, train(sample, 20, metric, seed=1).values)


@pytest.mark.parametrize("metric", [L2, COSINE])
def test_rows_belong_to_the_nearest_centroid(metric: Metric) -> None:
    rows = clustered(2, 1000)
    centroids = train(clustered(1, 2000), 20, metric)
    middles = centroids.values / np.float32(centroids.scale)
    nearest = search(rows, middles, 1, metric).positions[:, 0]
    np.testing.assert_array_equal(centroids.assign(rows), nearest)


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_queries_visit_every_list_once_when_asked_for_all(metric: Metric) -> None:
    centroids = train(clustered(1, 2000), 20, metric)
    order = centroids.nearest_lists(clustered(3, 50), 1000)
    assert (np.sort(order, axis=1) == np.arange(20)).all()
    np.testing.assert_array_equal(centroids.nearest_lists(clustered(3, 50), 3), order[:, :3])


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_few_lists_hold_most_neighbours(metric: Metric) -> None:
    rows, queries = clustered(1, 5000), clustered(3, 200)
    rows *= np.random.default_rng(4).uniform(0.7, 1.3, (5000, 1)).astype(np.float32)
    centroids = train(rows[::2], 50, metric)
    neighbours = search(queries, rows, 10, metric)
    curve = recall_curve(
        centroids.nearest_lists(queries, 50), centroids.assign(rows)[neighbours.positions]
    )
    assert curve[0][9] > 0.9


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
@pytest.mark.parametrize("exponent", [-110, -20, 20, 110])
def test_lists_do_not_depend_on_the_scale(metric: Metric, exponent: int) -> None:
    scale = np.float32(2.0**exponent)
    rows, queries = clustered(1, 2000), clustered(3, 200)
    usual, scaled = train(rows, 30, metric), train(rows * scale, 30, metric)
    np.testing.assert_array_equal(scaled.assign(rows * scale), usual.assign(rows))
    np.testing.assert_array_equal(
        scaled.nearest_lists(queries * scale, 5), usual.nearest_lists(queries, 5)
    )


def test_the_length_of_a_query_does_not_affect_lists_under_dot() -> None:
    centroids, queries = train(clustered(1, 2000), 30, DOT), clustered(3, 200)
    order = centroids.nearest_lists(queries, 5)
    for length in (2.0**-20, 2.0**20):
        np.testing.assert_array_equal(
            centroids.nearest_lists(queries * np.float32(length), 5), order
        )


def test_dot_finds_long_rows_which_are_nearest_to_everything() -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((4000, 16)).astype(np.float32)
    rows[::40] *= 10
    queries = random.standard_normal((100, 16)).astype(np.float32)
    centroids = train(rows[:2000], 40, DOT)
    neighbours = search(queries, rows, 10, DOT)
    curve = recall_curve(
        centroids.nearest_lists(queries, 40), centroids.assign(rows)[neighbours.positions]
    )
    assert curve[0][9] > 0.75


def test_there_are_no_more_lists_than_rows_to_train_on() -> None:
    centroids = train(clustered(1, 5), 20, L2)
    assert len(centroids) == 5
    same = train(np.ones((100, 4), np.float32), 10, COSINE)
    assert np.isfinite(same.values).all()
    assert np.isin(same.assign(np.ones((7, 4), np.float32)), range(10)).all()


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_rows_far_from_the_training_rows_are_assigned_to_a_list(metric: Metric) -> None:
    centroids = train(clustered(1, 500), 10, metric)
    far = np.array([np.full(16, 3e38), np.full(16, -1e30), np.full(16, 1e-45)], np.float32)
    assert np.isin(centroids.assign(far), range(10)).all()
    assert np.isin(centroids.nearest_lists(far, 3), range(10)).all()


def test_the_recall_curve_counts_neighbours_in_visited_lists() -> None:
    order = np.array([[2, 0, 1], [0, 1, 2]], np.int32)
    truth = np.array([[2, 2, 1, 0], [2, 1, -1, -1]], np.int32)
    np.testing.assert_allclose(recall_curve(order, truth)[0], [0.25, 0.625, 1.0])


def test_queries_without_neighbours_are_ignored() -> None:
    order = np.array([[0, 1], [0, 1]], np.int32)
    truth = np.array([[1, -1], [-1, -1]], np.int32)
    np.testing.assert_allclose(recall_curve(order, truth)[0], [0.0, 1.0])
    assert (recall_curve(order, np.full((2, 2), -1, np.int32))[0] == 1).all()


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 60), st.integers(0, 30))
def test_as_many_lists_are_visited_as_have_k_rows(
    seed: int, nprobes: int, k: int, most: int
) -> None:
    random = np.random.default_rng(seed)
    centroids = train(clustered(1, 500), 25, L2)
    rows = random.integers(0, most + 1, 25) * (random.random(25) < 0.5)
    queries = clustered(3, 20)
    visits = centroids.visited_lists(queries, nprobes, k, rows)
    order = centroids.nearest_lists(queries, 25)
    for visited, nearest in zip(visits.tolist(), order.tolist(), strict=True):
        wanted = nprobes
        while sum(rows[nearest[:wanted]]) < min(k, rows.sum()):
            wanted += 1
        assert [number for number in visited if number >= 0] == nearest[:wanted]


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 12), st.integers(1, 8))
def test_recall_rises_to_one(seed: int, queries: int, lists: int, k: int) -> None:
    random = np.random.default_rng(seed)
    order = random.permuted(np.tile(np.arange(lists, dtype=np.int32), (queries, 1)), axis=1)
    truth = random.integers(-1, lists, (queries, k)).astype(np.int32)
    curve = recall_curve(order, truth)
    assert (np.diff(curve[0]) >= -1e-12).all()
    assert curve[0][-1] == curve[1][-1] == 1
    assert (curve[1] <= curve[0] + 1e-12).all()
    probes = choose_nprobes(curve[1], 0.9)
    assert curve[1][probes - 1] >= 0.9
    assert (curve[1][: probes - 1] < 0.9).all()
    assert curve[0][choose_nprobes(curve[1], 1.0) - 1] == pytest.approx(1)


def test_the_lower_bound_holds_with_its_stated_frequency() -> None:
    """Samples of 128 out of queries whose recall is known: 95 % of the bounds are below it."""
    random = np.random.default_rng(6)
    order = np.tile(np.arange(2, dtype=np.int32), (128, 1))
    held = 0
    for _ in range(400):
        shares = random.beta(18, 2, 128)
        truth = (random.random((128, 10)) > shares[:, None]).astype(np.int32)
        held += recall_curve(order, truth)[1][0] <= 0.9
    assert 0.92 < held / 400 < 0.98


def test_scoring_in_blocks_restores_thread_settings() -> None:
    import faiss

    before = faiss.cvar.distance_compute_blas_threshold
    vectors = np.eye(4, dtype=np.float32)
    scores, rows = best(vectors, vectors, 1, L2)
    assert rows[:, 0].tolist() == [0, 1, 2, 3] and (scores == 0).all()
    assert faiss.cvar.distance_compute_blas_threshold == before
