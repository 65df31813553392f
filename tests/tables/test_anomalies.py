"""What is usual by some past."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.anomalies import (
    LEAST_PAST,
    Sample,
    _chance,
    _errors,
    _t_quantile,
    expected,
    surely_usual,
    usual_ranges,
)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_errors_are_distances_from_the_median_of_the_others(values: list[float]) -> None:
    ordered = sorted(values)
    slow = [abs(ordered[i] - median(ordered[:i] + ordered[i + 1 :])) for i in range(len(ordered))]
    assert _errors(values) == pytest.approx(slow)


@pytest.mark.parametrize(
    ("freedom", "chance", "quantile"),
    # Of tables of Student's t, two-sided.
    [
        (5, 0.01, 4.032),
        (10, 0.01, 3.169),
        (30, 0.001, 3.646),
        (120, 0.05, 1.980),
        (8, 0.002, 4.501),
    ],
)
def test_quantiles_are_those_of_student(freedom: float, chance: float, quantile: float) -> None:
    assert _t_quantile(chance, freedom) == pytest.approx(quantile, rel=0.02)


def test_three_deviations_are_as_likely_as_in_a_normal_distribution() -> None:
    assert _chance(3) == pytest.approx(0.0027, rel=0.01)


def days(values: list[float]) -> list[Sample]:
    return [Sample(value, number % 7) for number, value in enumerate(values)]


def test_too_short_a_past_says_nothing() -> None:
    past = days([100.0] * (LEAST_PAST - 1))
    assert expected(past, 0, sensitivity=3, noise=1) is None
    assert expected([*past, Sample(100.0, 6)], 0, sensitivity=3, noise=1) is not None


def test_outliers_of_the_past_do_not_hide_others() -> None:
    chance = random.Random(1)
    values = [chance.gauss(100, 1) for _ in range(40)]
    values[7] = values[23] = 1e9
    usual = expected(days(values), 3, sensitivity=3, noise=0.1)
    assert usual is not None
    assert usual.holds(100)
    assert not usual.holds(110)
    assert not usual.holds(90)


def test_a_day_of_the_week_is_compared_with_its_own() -> None:
    chance = random.Random(2)
    values = [chance.gauss(10 if day % 7 > 4 else 100, 1) for day in range(28)]
    weekend = expected(days(values), 5, sensitivity=3, noise=0.1)
    weekday = expected(days(values), 2, sensitivity=3, noise=0.1)
    assert weekend is not None
    assert weekday is not None
    assert weekend.holds(10)
    assert not weekend.holds(1)
    assert not weekday.holds(10)


def test_what_never_differs_has_the_noise_that_is_given() -> None:
    usual = expected(days([100.0] * 30), 3, sensitivity=3, noise=2)
    assert usual is not None
    assert usual.holds(104)
    assert not usual.holds(112)


def test_more_checks_and_less_sensitivity_find_less() -> None:
    chance = random.Random(3)
    past = days([chance.gauss(0, 1) for _ in range(40)])

    def high(**options: float) -> float:
        usual = expected(past, 3, noise=0.1, **{"sensitivity": 3, **options})  # type: ignore[arg-type]
        assert usual is not None
        return usual.high

    assert high(sensitivity=2) < high() < high(checks=50)
    assert high() < high(sensitivity=4)


@given(st.integers(0, 2**32 - 1), st.integers(LEAST_PAST, 40))
def test_what_is_surely_usual_is_usual(seed: int, number: int) -> None:
    chance = np.random.default_rng(seed)
    past = chance.normal(0, chance.choice([0, 0.5, 5], size=50), size=(number, 50))
    values, noise = chance.normal(0, 4, size=50), chance.uniform(0, 2, size=50)
    how: dict[str, Any] = {"sensitivity": 3.0, "checks": 50, "noise": noise}
    low, high = usual_ranges(past, chance.integers(0, 7, number), 3, **how)
    surely = surely_usual(past, values, **how)
    assert (surely <= ((low <= values) & (values <= high))).all()
    assert surely.any()
