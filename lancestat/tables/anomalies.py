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
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

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
    values = [sample.value for sample in past]
    ranges = [_around(median(values), _errors(values), sensitivity, checks, noise)]
    by_day: dict[int, list[float]] = defaultdict(list)
    for sample in past:
        by_day[sample.weekday].append(sample.value)
    same_day = by_day[weekday]
    if len(same_day) >= _LEAST_OF_SEASON:
        errors = [
            error for of_day in by_day.values() if len(of_day) > 1 for error in _errors(of_day)
        ]
        ranges.append(_around(median(same_day), errors, sensitivity, checks, noise))
    return Expected(min(low for low, _ in ranges), max(high for _, high in ranges))


def _errors(values: Sequence[float]) -> list[float]:
    """Return how far each value lies from the median of the others."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    found = []
    for place, value in enumerate(ordered):
        others = len(ordered) - 1
        # The median of the others, by where the value itself stands.
        if others % 2:
            center = ordered[middle] if place < middle else ordered[middle - 1]
        else:
            low = ordered[middle - 1] if place > middle - 1 else ordered[middle]
            high = ordered[middle + 1] if place < middle + 1 else ordered[middle]
            center = (low + high) / 2
        found.append(abs(value - center))
    return found


def _around(
    center: float, errors: Sequence[float], sensitivity: float, checks: int, noise: float
) -> tuple[float, float]:
    scale = max(median(errors) / _MAD, noise)
    reach = scale * _t_quantile(_chance(sensitivity) / checks, _EFFICIENCY * (len(errors) - 1))
    return center - reach, center + reach


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
