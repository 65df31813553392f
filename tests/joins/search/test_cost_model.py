from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.record import JoinGroups
from lancestat.joins.search.cost_model import JoinSize, Strategy, choose, estimated_nprobes
from lancestat.joins.search.work import JoinRequest, SelfPairs
from lancestat.spec.knn_join import MOST_PAIRS

EXACT = JoinRequest(k=10)
RECALL = JoinRequest(k=10, recall=0.95)
PROBES = JoinRequest(k=10, nprobes=16)

ROWS = st.integers(0, 10**9)
SIZES = st.builds(
    JoinSize, st.none() | ROWS, st.none() | ROWS, st.none() | st.integers(1, 4096), st.booleans()
)


def sized(left: int | None, right: int | None, dimension: int | None, **known: Any) -> JoinSize:
    return JoinSize(left, right, dimension, **known)


def self_join(pairs: SelfPairs, **changes: Any) -> JoinRequest:
    return replace(EXACT, self_pairs=pairs, **changes)


WITHIN = replace(EXACT, max_distance=0.3)
EVERY = "every pair is to be compared"
SAME = "every pair of rows of the table is to be compared"


@pytest.mark.parametrize(
    ("request_", "size", "strategy", "why"),
    [
        (EXACT, sized(100, 9_999, 128), "spark", "fewer than 10,000 right rows"),
        (RECALL, sized(None, 9_999, None), "spark", "fewer than 10,000 right rows"),
        *(
            (EXACT, sized(left, 9_999, 8, has_nearest_by_join=False), "exact",
             "fewer than 10,000 right rows, but Spark's nearestByJoin cannot be used here")
            for left in (10, None)
        ),
        (EXACT, sized(100, 10_000, 128), "exact", EVERY),
        (replace(EXACT, min_right_rows=0), sized(100, 1, 128), "exact", EVERY),
        (replace(EXACT, min_right_rows=20_000), sized(10, 19_999, 128), "spark", "fewer than"),
        (EXACT, sized(1_000_000, 9_999, 128), "exact",
         "few right rows, but 9,999,000,000 pairs, which take Spark about"),
        *(
            (request, sized(10_000, 1_000_000, 128), "ivf", "about") for request in (RECALL, PROBES)
        ),
        (RECALL, sized(100, 100_000, 128), "exact", "comparing every pair takes about"),
        (RECALL, sized(10**6, 10_000, 8), "exact", "comparing every pair takes about"),
        (replace(RECALL, min_right_rows=0), sized(10**7, 500, 128), "exact",
         "the right side is too small for IVF lists"),
        (replace(PROBES, nprobes=10**6), sized(10_000, 1_000_000, 128), "exact",
         "the right side is too small for IVF lists"),
        (RECALL, sized(1_000, 50_000_000, 128, has_index=True), "index", "about"),
        (EXACT, sized(1_000, 50_000_000, 128, has_index=True), "exact", EVERY),
        (RECALL, sized(1_000, 50_000_000, 128), "ivf", "about"),
        (RECALL, sized(10**7, 1_000_000, 128, has_index=True), "ivf", "about"),
        *(
            (request, replace(size, has_index=has_index), strategy, why)
            for size in (sized(None, 10**6, 8), sized(10, None, 8), sized(1, 2**40, None))
            for request, has_index, strategy, why in (
                (EXACT, False, "exact", EVERY),
                (RECALL, False, "ivf", "sizes are not known before it runs"),
                (RECALL, True, "index", "the right side has an index of this metric"),
            )
        ),
        (WITHIN, sized(20_000, 20_000, 8), "exact", f"{EVERY}, and neighbours are within 0.3"),
        (replace(WITHIN, max_pairs=MOST_PAIRS), sized(20_000, 20_000, 8), "exact",
         f"{EVERY}, and the result has all within 0.3"),
        (self_join(SelfPairs.OTHERS), sized(20_000, 20_000, 8), "exact", SAME),
        (self_join(SelfPairs.ONCE, max_distance=2.0), sized(20_000, 20_000, 8), "exact",
         f"{SAME}, once, and neighbours are within 2"),
    ],
)  # fmt: skip
def test_the_cheapest_strategy_is_chosen_for_a_reason(
    request_: JoinRequest, size: JoinSize, strategy: str, why: str
) -> None:
    decision = choose(request_, size, cores=2)
    assert (decision.strategy.value, decision.why[: len(why)]) == (strategy, why)
    is_known = None not in (size.left_rows, size.right_rows, size.dimension)
    assert (decision.seconds is not None) == is_known


@pytest.mark.parametrize("request_", [RECALL, PROBES], ids=["recall", "nprobes"])
def test_lists_are_as_many_as_pay(request_: JoinRequest) -> None:
    decision = choose(request_, sized(10_000, 1_000_000, 128), 2)
    assert decision.lists is not None and 100 < decision.lists < 2000
    assert decision.pairs is not None and decision.pairs < 10_000 * 1_000_000 / 5
    assert "where comparing every pair takes" in decision.why


@given(SIZES, st.integers(1, 1000))
def test_exact_is_never_approximate(size: JoinSize, cores: int) -> None:
    assert choose(EXACT, size, cores).strategy in (Strategy.SPARK, Strategy.EXACT)


@given(SIZES, st.integers(1, 1000))
def test_a_recall_of_one_is_never_approximate(size: JoinSize, cores: int) -> None:
    decision = choose(replace(RECALL, recall=1.0), size, cores)
    assert decision.strategy in (Strategy.SPARK, Strategy.EXACT)


@given(SIZES, st.integers(1, 1000), st.sampled_from([EXACT, RECALL, PROBES]))
def test_lists_belong_to_partitions_and_an_index_to_the_right_side(
    size: JoinSize, cores: int, request: JoinRequest
) -> None:
    decision = choose(request, size, cores)
    assert decision.why
    if decision.lists is not None:
        assert decision.strategy is Strategy.IVF
        assert size.right_rows is not None and decision.lists * 64 <= size.right_rows
    if decision.strategy is Strategy.INDEX:
        assert size.has_index
    if None not in (size.left_rows, size.right_rows, size.dimension):
        assert decision.seconds is not None and decision.seconds > 0


@given(ROWS, ROWS, st.integers(1, 4096), st.integers(1, 64), st.sampled_from([EXACT, RECALL]))
def test_estimates_grow_with_either_side_and_shrink_with_cores(
    left: int, right: int, dimension: int, cores: int, request: JoinRequest
) -> None:
    request = replace(request, min_right_rows=0)
    seconds = choose(request, JoinSize(left, right, dimension), cores).seconds
    assert seconds is not None
    for more in (JoinSize(left + 1000, right, dimension), JoinSize(left, right, 2 * dimension)):
        longer = choose(request, more, cores).seconds
        assert longer is not None and longer >= seconds
    shorter = choose(request, JoinSize(left, right, dimension), cores + 1).seconds
    assert shorter is not None and shorter <= seconds


def test_more_lists_are_visited_when_there_are_more() -> None:
    assert [estimated_nprobes(lists) for lists in (1, 16, 400, 10_000)] == [2, 2, 6, 26]


def test_pairs_of_a_table_that_count_once_are_half_as_many() -> None:
    size = sized(20_000, 20_000, 64)
    once, twice = (
        choose(self_join(pairs), size, 2) for pairs in (SelfPairs.ONCE, SelfPairs.OTHERS)
    )
    assert (once.pairs, twice.pairs) == (200_000_000, 400_000_000)
    assert once.seconds is not None and twice.seconds is not None
    assert once.seconds < twice.seconds


def test_the_time_of_a_range_join_does_not_count_rows_that_are_not_known() -> None:
    request = replace(WITHIN, k=64, max_pairs=MOST_PAIRS)
    seconds = choose(request, sized(20_000, 20_000, 64), 2).seconds
    assert seconds is not None and seconds < 2.5


KEYS = JoinRequest(k=10, has_keys=True)
GROUPS = JoinGroups(1000, 100_000_000, 10_000, 10_000_000)


@given(SIZES)
def test_rows_with_equal_keys_are_counted_by_the_run(size: JoinSize) -> None:
    decision = choose(KEYS, size, 2)
    assert (decision.strategy, decision.pairs, decision.seconds) == (Strategy.EXACT, None, None)


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        (10_000, 10_000_000, 100_000_000),
        (20_000, 10_000_000, 200_000_000),
        (10, 10_000_000, 100_000),
        (0, 0, 0),
    ],
)
def test_pairs_of_equal_keys_are_estimated_from_those_of_the_last_run(
    left: int, right: int, pairs: int
) -> None:
    known = choose(KEYS, JoinSize(left, right, 128, groups=GROUPS), 2)
    assert known.pairs == pairs
    assert known.seconds is not None
    whole = choose(replace(KEYS, has_keys=False, min_right_rows=0), JoinSize(left, right, 128), 2)
    assert pairs == 0 or (whole.pairs or 0) > pairs


def test_the_time_of_a_join_by_keys_grows_with_its_pairs() -> None:
    sizes = (JoinSize(10_000, 10**7, 128, groups=replace(GROUPS, pairs=10**n)) for n in (8, 9, 10))
    seconds = [choose(KEYS, size, 2).seconds or 0.0 for size in sizes]
    assert 0 < seconds[0] < seconds[1] < seconds[2]


def test_groups_of_no_rows_tell_nothing() -> None:
    decision = choose(KEYS, JoinSize(10, 20, 8, groups=JoinGroups(0, 0, 0, 0)), 2)
    assert decision.pairs == 0


def test_the_time_of_a_join_by_keys_needs_the_length_of_vectors() -> None:
    decision = choose(KEYS, JoinSize(10_000, 10**7, None, groups=GROUPS), 2)
    assert (decision.pairs, decision.seconds) == (100_000_000, None)
