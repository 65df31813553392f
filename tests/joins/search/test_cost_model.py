from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.record import JoinGroups
from lancestat.joins.search.cost_model import (
    Decision,
    JoinSize,
    Strategy,
    choose,
    estimated_nprobes,
)
from lancestat.joins.search.work import JoinRequest, SelfPairs
from lancestat.spec.knn_join import MOST_PAIRS

EXACT = JoinRequest(k=10)
RECALL = JoinRequest(k=10, recall=0.95)
PROBES = JoinRequest(k=10, nprobes=16)

ROWS = st.integers(0, 10**9)
SIZES = st.builds(
    JoinSize, st.none() | ROWS, st.none() | ROWS, st.none() | st.integers(1, 4096), st.booleans()
)


def decide(request: JoinRequest, left: int, right: int, dim: int, index: bool = False) -> Decision:
    return choose(request, JoinSize(left, right, dim, index), cores=2)


def test_few_right_rows_are_left_to_spark() -> None:
    decision = decide(EXACT, 100, 9_999, 128)
    assert decision.strategy is Strategy.SPARK
    assert decision.why == "fewer than 10,000 right rows"
    assert decision.pairs == 999_900
    assert choose(RECALL, JoinSize(None, 9_999, None), 2).strategy is Strategy.SPARK


@pytest.mark.parametrize("left", [10, None])
def test_without_nearest_by_join_few_right_rows_are_compared_and_the_reason_says_so(
    left: int | None,
) -> None:
    size = JoinSize(left, 9_999, 8, has_nearest_by_join=False)
    decision = choose(EXACT, size, 2)
    assert decision.strategy is Strategy.EXACT
    assert "nearestByJoin cannot be used" in decision.why


def test_the_gate_is_set_by_the_request() -> None:
    assert decide(EXACT, 100, 10_000, 128).strategy is Strategy.EXACT
    assert decide(replace(EXACT, min_right_rows=0), 100, 1, 128).strategy is Strategy.EXACT
    larger = replace(EXACT, min_right_rows=20_000)
    assert decide(larger, 10, 19_999, 128).strategy is Strategy.SPARK


def test_few_right_rows_with_many_pairs_are_not_left_to_spark() -> None:
    decision = decide(EXACT, 1_000_000, 9_999, 128)
    assert decision.strategy is Strategy.EXACT
    assert decision.why.startswith(
        "few right rows, but 9,999,000,000 pairs, which take Spark about"
    )


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


def test_many_pairs_are_compared_in_lists() -> None:
    for request in (RECALL, PROBES):
        decision = decide(request, 10_000, 1_000_000, 128)
        assert decision.strategy is Strategy.IVF
        assert decision.lists is not None and 100 < decision.lists < 2000
        assert decision.pairs is not None and decision.pairs < 10_000 * 1_000_000 / 5
        assert "where comparing every pair takes" in decision.why


def test_lists_are_not_built_when_they_save_nothing() -> None:
    cheap = decide(RECALL, 100, 100_000, 128)
    assert cheap.strategy is Strategy.EXACT
    assert "comparing every pair takes about" in cheap.why
    assert decide(RECALL, 10**6, 10_000, 8).strategy is Strategy.EXACT
    short = decide(replace(RECALL, min_right_rows=0), 10**7, 500, 128)
    assert short.why == "the right side is too small for IVF lists"
    wide = decide(replace(PROBES, nprobes=10**6), 10_000, 1_000_000, 128)
    assert wide.strategy is Strategy.EXACT


def test_an_index_is_used_where_it_is_the_cheapest() -> None:
    decision = decide(RECALL, 1_000, 50_000_000, 128, index=True)
    assert decision.strategy is Strategy.INDEX
    assert decide(EXACT, 1_000, 50_000_000, 128, index=True).strategy is Strategy.EXACT
    assert decide(RECALL, 1_000, 50_000_000, 128).strategy is not Strategy.INDEX
    assert decide(RECALL, 10**7, 1_000_000, 128, index=True).strategy is Strategy.IVF


@pytest.mark.parametrize(
    "size", [JoinSize(None, 10**6, 8), JoinSize(10, None, 8), JoinSize(1, 2**40, None)]
)
def test_unknown_sizes_are_assumed_to_be_large(size: JoinSize) -> None:
    assert choose(EXACT, size, 2).strategy is Strategy.EXACT
    assert choose(RECALL, size, 2).strategy is Strategy.IVF
    assert choose(RECALL, replace(size, has_index=True), 2).strategy is Strategy.INDEX
    assert choose(EXACT, size, 2).seconds is None


def test_more_lists_are_visited_when_there_are_more() -> None:
    assert [estimated_nprobes(lists) for lists in (1, 16, 400, 10_000)] == [2, 2, 6, 26]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"max_distance": 0.3}, "every pair is to be compared, and neighbours are within 0.3"),
        (
            {"max_distance": 0.3, "max_pairs": MOST_PAIRS},
            "every pair is to be compared, and the result has all within 0.3",
        ),
        ({"self_pairs": SelfPairs.OTHERS}, "every pair of rows of the table is to be compared"),
        (
            {"self_pairs": SelfPairs.ONCE, "max_distance": 2.0},
            "every pair of rows of the table is to be compared, once, and neighbours are within 2",
        ),
    ],
)
def test_the_reason_names_what_limits_the_result(changes: dict[str, Any], why: str) -> None:
    assert decide(replace(EXACT, **changes), 20_000, 20_000, 8).why == why


def test_pairs_of_a_table_that_count_once_are_half_as_many() -> None:
    once, twice = (
        decide(
            replace(EXACT, self_pairs=SelfPairs.ONCE if is_once else SelfPairs.OTHERS),
            20_000,
            20_000,
            64,
        )
        for is_once in (True, False)
    )
    assert (once.pairs, twice.pairs) == (200_000_000, 400_000_000)
    assert once.seconds is not None and twice.seconds is not None
    assert once.seconds < twice.seconds


def test_the_time_of_a_range_join_does_not_count_rows_that_are_not_known() -> None:
    request = replace(EXACT, k=64, max_distance=0.3, max_pairs=MOST_PAIRS)
    seconds = decide(request, 20_000, 20_000, 64).seconds
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
