from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.search.metrics import COSINE, DOT, L2, Metric
from tests.joins.search.brute_force import FORMULAS

FLOATS = st.floats(-100, 100, width=32)
PAIRS = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(FLOATS, min_size=size, max_size=size),
        st.lists(FLOATS, min_size=size, max_size=size),
    )
)


def one(left: list[float], right: list[float], metric: Metric) -> float:
    pair = np.array([left], np.float32), np.array([right], np.float32)
    return float(metric.distances(*pair)[0])


@given(PAIRS)
def test_l2_and_dot_are_those_of_exact_arithmetic(pair: tuple[list[float], list[float]]) -> None:
    left, right = ([Fraction(value) for value in side] for side in pair)
    square = sum((a - b) ** 2 for a, b in zip(left, right, strict=True))
    product = sum(a * b for a, b in zip(left, right, strict=True))
    assert one(*pair, L2) == pytest.approx(float(square), rel=1e-14, abs=1e-300)
    size = sum(abs(a * b) for a, b in zip(left, right, strict=True))
    assert one(*pair, DOT) == pytest.approx(float(1 - product), abs=1e-15 * float(1 + size))


def test_cosine_is_one_minus_the_cosine_of_the_angle() -> None:
    for angle in np.linspace(0, np.pi, 30):
        distance = one([3, 0], [2 * np.cos(angle), 2 * np.sin(angle)], COSINE)
        assert distance == pytest.approx(1 - np.cos(angle), abs=1e-7)


@given(st.lists(FLOATS, min_size=1, max_size=300), st.integers(1, 1000))
def test_vectors_of_one_direction_are_at_cosine_distance_zero(
    vector: list[float], factor: int
) -> None:
    whole = [float(round(value)) for value in vector]
    if any(whole):
        assert one(whole, [value * factor for value in whole], COSINE) == 0.0


@pytest.mark.parametrize("metric", FORMULAS, ids=str)
def test_a_distance_depends_only_on_its_two_vectors(metric: Metric) -> None:
    random = np.random.default_rng(1)
    for dimension in (1, 3, 8, 17, 128, 300, 1537):
        left = random.standard_normal((200, dimension)).astype(np.float32)
        right = random.standard_normal((200, dimension)).astype(np.float32)
        together = metric.distances(left, right)
        for row in range(0, 200, 7):
            alone = metric.distances(left[row : row + 1], right[row : row + 1])
            padded = np.concatenate([left[:3], left[row : row + 1]]), right[[0, 1, 2, row]]
            assert alone[0] == together[row] == metric.distances(*padded)[-1]
            spread = np.broadcast_to(left[row], right.shape), np.asfortranarray(right)
            assert metric.distances(*spread)[row] == alone[0]


def test_the_largest_and_smallest_floats_have_distances() -> None:
    big, tiny = 3.0e38, 1e-45
    assert one([big], [-big], L2) == pytest.approx(3.6e77, rel=1e-6)
    assert one([big, 0], [big, big], COSINE) == pytest.approx(1 - 2**-0.5, rel=1e-6)
    assert one([tiny, 0], [tiny, tiny], COSINE) == pytest.approx(1 - 2**-0.5, rel=1e-6)
