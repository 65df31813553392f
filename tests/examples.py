"""How much tests try: all that is written down, or a share of it in the profile `quick`.

That profile leaves out the tests marked `thorough`, too: each proves on Spark, or with real
processes, what another test in it proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations as pairs_of
from itertools import product
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

THOROUGH, QUICK = "thorough", "quick"

T = TypeVar("T")

settings.register_profile(
    THOROUGH, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.register_profile(QUICK, settings.get_profile(THOROUGH), max_examples=10)


def examples(thorough: int) -> int:
    """Return a number of examples, or its share in the profile that is loaded."""
    return max(1, thorough * settings().max_examples // 100)


def sample(cases: Sequence[T], quick: int) -> Sequence[T]:
    """Return the cases, or in the profile `quick` so many of them, evenly spread."""
    if is_thorough() or quick >= len(cases):
        return cases
    return [cases[number * len(cases) // quick] for number in range(quick)]


def combinations(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the product of the axes, or in the profile `quick` some with each pair of values."""
    cases = list(product(*axes))
    if is_thorough():
        return cases
    missing = set().union(*map(_pairs, cases))
    chosen = []
    while missing:
        chosen.append(max(cases, key=lambda case: len(_pairs(case) & missing)))
        missing -= _pairs(chosen[-1])
    return chosen


def each(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the product of the axes, or in the profile `quick` so few that each value is in one.

    It is for axes of which each has code of its own.
    """
    values = [list(axis) for axis in axes]
    if is_thorough():
        return list(product(*values))
    return [
        tuple(axis[number % len(axis)] for axis in values)
        for number in range(max(map(len, values)))
    ]


def profile_option() -> str:
    """Return the option with which another pytest tries as much."""
    return f"--hypothesis-profile={THOROUGH if is_thorough() else QUICK}"


def is_thorough() -> bool:
    """Return whether all is tried."""
    return settings().max_examples == settings.get_profile(THOROUGH).max_examples


def _pairs(case: tuple[Any, ...]) -> set[object]:
    return set(pairs_of(enumerate(case), 2))
