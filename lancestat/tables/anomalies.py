"""Whether a value is unlike those of the past: robust against outliers, weeks and few values.

A value is compared with the median of the past, and with that of the past of the same day of the
week. How far past values lie from the median of all others, by the median of their distances (MAD),
says how far is usual: a value is an anomaly where it lies further away than a Student t
distribution would have it, by both medians.

Sources: the modified z-score of B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers
(1993); intervals for a future value, with the t distribution for few past ones, of G. Hahn and W.
Meeker, Statistical Intervals (1991); medians and MAD by seasons as in the seasonal hybrid ESD of O.
Vallis, J. Hochenbaum and A. Kejariwal (HotCloud 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

LEAST_PAST = 14
"""How many values there have to be before anything is an anomaly."""

# The MAD of a normal distribution is this part of its standard deviation.
_MAD = 0.6745
# As an estimate of the standard deviation, the MAD is worth so much of the values.
_EFFICIENCY = 0.37
# Values of the same day of a week, at least.
_LEAST_OF_SEASON = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """A value, and the day of the week that it belongs to."""

    value: float
    weekday: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What is usual: values from `low` to `high`."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def expected(
    past: Sequence[Sample], weekday: int, *, sensitivity: float, checks: int = 1, noise: float
) -> Expected | None:
    """Return the values that are usual after some past, None where that is too short to say.

    Args:
        past: Values, in any order.
        weekday: That of the value in question.
        sensitivity: How many standard deviations of a normal distribution an anomaly is away.
        checks: How many values are looked at together, by which each becomes less likely to be one.
        noise: The least standard deviation, below which differences mean nothing.
    """
    if len(past) < LEAST_PAST:
        return None
    values = np.array([[sample.value] for sample in past], np.float64)
    weekdays = np.array([sample.weekday for sample in past])
    low, high = usual_ranges(
        values, weekdays, weekday, sensitivity=sensitivity, checks=checks, noise=np.array([noise])
    )
    return Expected(low.item(), high.item())


def usual_ranges(
    past: Values, weekdays: Values, weekday: int, *, sensitivity: float, checks: int, noise: Values
) -> tuple[Values, Values]:
    """Return the least and the greatest usual values of several series, as `expected` does.

    `past` has a row for each value of the past and a column for each series, `weekdays` the days of
    its rows, and `noise` that of each series.
    """

    def around(center: Values, errors: Values) -> tuple[Values, Values]:
        scale = np.maximum(_median(errors) / _MAD, noise)
        freedom = _EFFICIENCY * (len(errors) - 1)
        reach = scale * _t_quantile(_chance(sensitivity) / checks, freedom)
        return center - reach, center + reach

    low, high = around(_median(past), _errors(past))
    same_day = past[weekdays == weekday]
    if len(same_day) >= _LEAST_OF_SEASON:
        by_day = (past[weekdays == day] for day in set(weekdays.tolist()))
        errors = np.concatenate([_errors(of_day) for of_day in by_day if len(of_day) > 1])
        low_of_day, high_of_day = around(_median(same_day), errors)
        return np.minimum(low, low_of_day), np.maximum(high, high_of_day)
    return low, high


def surely_usual(
    past: Values, values: Values, *, sensitivity: float, checks: int, noise: Values
) -> Values:
    """Return which values lie in their `usual_ranges` however far those of the past lie apart.

    That is less work than the ranges, which are wider: noise is the least that they allow for.
    """
    freedom = _EFFICIENCY * (len(past) - 1)
    center, reach = _median(past), noise * _t_quantile(_chance(sensitivity) / checks, freedom)
    usual: Values = (center - reach <= values) & (values <= center + reach)
    return usual


def _median(values: Values) -> Values:
    ordered = np.sort(values, axis=0)
    middle = len(ordered) // 2
    median: Values = (ordered[~middle] + ordered[middle]) / 2
    return median


def _errors(values: Values) -> Values:
    """Return how far each value lies from the median of the others, in ascending order of values.

    Of the others the median is told by where the value itself stands.
    """
    ordered = np.sort(values, axis=0)
    middle, centers = len(ordered) // 2, np.empty_like(ordered)
    if len(ordered) % 2:
        low, high = ordered[middle - 1], ordered[middle + 1]
        centers[:middle] = (ordered[middle] + high) / 2
        centers[middle] = (low + high) / 2
        centers[middle + 1 :] = (low + ordered[middle]) / 2
    else:
        centers[:middle], centers[middle:] = ordered[middle], ordered[middle - 1]
    errors: Values = np.abs(ordered - centers)
    return errors


def _chance(sensitivity: float) -> float:
    """Return how likely a normal value is to be so many standard deviations away, or more."""
    return 2 * (1 - NormalDist().cdf(sensitivity))


def _t_quantile(chance: float, freedom: float) -> float:
    """Return what the absolute value of Student's t exceeds with a small chance.

    Source: the expansion of the quantile in powers of 1/n, Abramowitz and Stegun 26.7.5, whose
    error is below 2 % from n = 5 on for such chances.
    """
    x = NormalDist().inv_cdf(1 - chance / 2)
    n = max(freedom, 1.0)
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return math.fsum(term / n**power for power, term in enumerate(terms))
