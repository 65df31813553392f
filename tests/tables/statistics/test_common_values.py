"""Summaries of common values against counts of all values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.tables.statistics.common_values import CommonValues, merge_common_values
from lancestat.tables.statistics.kernel import Request, reduce_batches

INTEGERS = st.one_of(st.integers(0, 3), st.integers(0, 12), st.integers())


def summary_of(
    batches: Sequence[Sequence[object]], capacity: int, type: pa.DataType
) -> CommonValues:
    schema = pa.schema([pa.field("v", type)])
    made = (pa.record_batch([pa.array(batch, type)], schema=schema) for batch in batches)
    request = Request(("v",), common_values=capacity)
    common = reduce_batches(made, schema, {"v": request})["v"].common
    assert common is not None
    return common


def check(summary: CommonValues, values: Sequence[object]) -> None:
    """The bounds hold for every value, and those of what is not listed are tight enough."""
    truth = Counter(values)
    assert len(summary.listed) <= summary.capacity
    for value, count in truth.items():
        lower, upper = summary.bounds_of((value,))  # type: ignore[arg-type]
        assert lower <= count <= upper
    assert {one.values[0] for one in summary.listed} <= truth.keys()
    assert summary.unlisted <= 2 * len(values) / summary.capacity
    assert not summary.is_exact or {one.values[0]: one.lower for one in summary.listed} == truth


@given(st.lists(st.lists(INTEGERS, max_size=60), max_size=8), st.randoms(use_true_random=False))
def test_bounds_hold_in_any_order_of_merges(batches: list[list[int]], order: random.Random) -> None:
    batches = [[value % 2**63 for value in batch] for batch in batches]
    every = [value for batch in batches for value in batch]
    check(summary_of(batches, 4, pa.int64()), every)
    parts = [summary_of([batch], 4, pa.int64()) for batch in batches]
    while len(parts) > 1:
        order.shuffle(parts)
        some = order.randint(2, len(parts))
        parts = [merge_common_values(parts[:some]), *parts[some:]]
    for summary in parts:
        check(summary, every)
        assert CommonValues.decode(summary.encode()) == summary


@pytest.mark.parametrize("distinct", [3, 200, 3_000, 10**6])
@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.1])
def test_bounds_hold_for_skewed_values_of_many_batches(distinct: int, exponent: float) -> None:
    generator = np.random.default_rng(distinct)
    weights = np.arange(1, distinct + 1) ** -exponent
    values = generator.choice(distinct, 200_000, p=weights / weights.sum())
    summary = summary_of(np.array_split(values, 5), 256, pa.int64())
    check(summary, values.tolist())
    assert summary.is_exact == (len(set(values.tolist())) <= summary.capacity)
    often = {(value,) for value, count in Counter(values.tolist()).items() if count >= 2_000}
    assert often <= {one.values for one in summary.listed}


# Integers that are far from each other are counted by their hashes.
@pytest.mark.parametrize("distance", [1, 10**12])
def test_values_that_are_listed_from_the_start_have_exact_counts(distance: int) -> None:
    batches = [[0] * 1_000 + list(range(start, start + 2_000)) for start in (1, 5_000, 9_000)]
    values = [[value * distance for value in batch] for batch in batches]
    summary = summary_of(values, 128, pa.int64())
    assert summary.bounds_of((0,)) == (3_000, 3_000)
    assert summary.unlisted


@pytest.mark.parametrize("distance", [1, 10**12])
def test_bounds_hold_while_values_come_and_go(distance: int) -> None:
    drawn = random.Random(distance)
    batches = [
        [
            value * distance
            for value in range(start, start + 200)
            for _ in range(drawn.randint(1, 9))
        ]
        for start in (0, 150, 300, 450, 0, 150, 600, 0)
    ]
    summary = summary_of(batches, 128, pa.int64())
    check(summary, [value for batch in batches for value in batch])


def test_texts_of_some_length_are_counted_as_left_out() -> None:
    values = [b"a" * 256] * 3 + [b"b" * 257] * 5 + [b"c"]
    summary = summary_of([values], 128, pa.binary())
    assert [(one.values, one.lower) for one in summary.listed] == [((b"a" * 256,), 3), ((b"c",), 1)]
    assert summary.unlisted == 5


def test_all_nan_are_one_value_and_so_are_zeros() -> None:
    values = [float("nan"), -float("nan"), 0.0, -0.0]
    summary = summary_of([values, values], 128, pa.float64())
    assert sorted(one.lower for one in summary.listed) == [4, 4]
    assert summary.bounds_of((-0.0,)) == (4, 4)
    assert summary.bounds_of((float("nan"),)) == (4, 4)


def test_the_least_capacity_is_kept() -> None:
    wide, narrow = summary_of([range(300)], 512, pa.int64()), summary_of([[1]], 128, pa.int64())
    merged = merge_common_values([wide, narrow])
    assert (merged.capacity, len(merged.listed), merged.unlisted) == (128, 128, 1)
    assert merged.bounds_of((1,)) == (2, 2)


@given(st.data())
def test_what_is_cut_is_refused(data: st.DataObject) -> None:
    stored = summary_of([[1, 2, 2, 3]], 128, pa.int64()).encode()
    with pytest.raises(ValueError, match="common values"):
        CommonValues.decode(stored[: data.draw(st.integers(0, len(stored) - 1))])
