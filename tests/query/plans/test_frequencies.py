"""Joins by how often values occur, compared with the pairs of rows counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.query.plans.frequencies import Frequencies, equal_pairs, of_pairs

Values = list[int]
# The second side has the values of the first, and perhaps others.
sides = st.lists(st.integers(0, 9), min_size=1, max_size=30).flatmap(
    lambda one: st.tuples(
        st.just(one), st.lists(st.integers(0, 12), max_size=30).map(lambda other: one + other)
    )
)


def counted(values: Values, *, at_least: int = 1) -> Frequencies:
    return Frequencies.of(
        (value, n / len(values)) for value, n in Counter(values).items() if n >= at_least
    )


@given(sides)
def test_pairs_are_exact_where_all_values_are_known(both: tuple[Values, Values]) -> None:
    one, other = both
    pairs = sum(a == b for a in one for b in other)
    share = equal_pairs(counted(one), counted(other), len(set(other)))
    assert share == pytest.approx(pairs / (len(one) * len(other)))
    joined = Counter(a for a in one for b in other if a == b)
    expected = {value: n / pairs for value, n in joined.items()}
    made = of_pairs(counted(one), counted(other), len(set(other)))
    assert {v: share for v, share in made.shares.items() if share} == pytest.approx(expected)


@pytest.mark.parametrize("domain", [1, 7, 10_000])
def test_values_of_which_nothing_is_known_occur_equally_often(domain: int) -> None:
    nothing = Frequencies({})
    assert equal_pairs(nothing, nothing, domain) == pytest.approx(1 / domain)
    # What is frequent on one side alone makes no difference, if all are among the other's.
    if domain > 2:
        frequent = Frequencies({1: 0.5, 2: 0.1})
        assert equal_pairs(frequent, nothing, domain) == pytest.approx(1 / domain)
        assert equal_pairs(nothing, frequent, domain) == pytest.approx(1 / domain)


@given(sides, st.integers(2, 5))
def test_shares_of_rows_add_up(both: tuple[Values, Values], at_least: int) -> None:
    one, other = (counted(values, at_least=at_least) for values in both)
    domain = max(len(set(values)) for values in both)
    for made in (one, other, of_pairs(one, other, domain)):
        assert sum(made.shares.values()) + made.rest == pytest.approx(1)
        assert 0 <= equal_pairs(one, other, domain) <= 1 + 1e-9


@pytest.mark.parametrize(("value", "same"), [(1, 1.0), ("a", "a"), (None, None)])
def test_the_most_frequent_are_kept(value: Any, same: Any) -> None:
    made = Frequencies.of([*((n, 0.001) for n in range(2, 500)), (value, 0.3)])
    assert len(made.shares) == 200
    rare = pytest.approx((1 - 0.3 - 0.199) / 800)
    assert made.shares_of([same, -1], 1_000) == {same: 0.3, -1: rare}
