"""Groups of equal keys, against comparisons of single rows in Python."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import KeysDiffer, UsageError
from lancestat.joins.search.groups import (
    GroupCell,
    Groups,
    compared_key_types,
    distinct_keys,
    group_cells,
    key_table,
    key_type,
)
from lancestat.joins.search.work import output_names
from tests.examples import examples

Key = tuple[Any, ...]
VALUES = st.one_of(st.none(), st.integers(0, 3))
NAMES = st.one_of(st.none(), st.sampled_from(["", "a", "b", "A"]))
ROWS = st.lists(st.tuples(VALUES, NAMES), max_size=30)


def keys(rows: Sequence[Key], types: Sequence[pa.DataType]) -> pa.Table:
    columns = [
        pa.chunked_array([pa.array([row[at] for row in rows], type)])
        for at, type in enumerate(types)
    ]
    return key_table(columns, types)


@settings(max_examples=examples(150))
@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(ROWS, min_size=1, max_size=3))
def test_rows_are_in_one_group_where_their_keys_are_equal(
    left: list[list[Key]], right: list[list[Key]]
) -> None:
    types = (pa.int64(), pa.large_string())
    on_left, on_right = ([keys(part, types) for part in side] for side in (left, right))
    groups = Groups.common(
        [distinct_keys(part) for part in on_left], [distinct_keys(part) for part in on_right]
    )
    all_left, all_right = ([key for part in side for key in part] for side in (left, right))
    shared = {key for key in all_left if key in all_right and None not in key}
    assert len(groups) == len(shared)
    numbered: dict[int, Key] = {}
    for rows, tables in ((all_left, on_left), (all_right, on_right)):
        numbers = [int(n) for table in tables for n in groups.assign(table)]
        for key, number in zip(rows, numbers, strict=True):
            assert (number >= 0) == (key in shared)
            if number >= 0:
                assert numbered.setdefault(number, key) == key
    assert sorted(numbered) == list(range(len(shared)))


EPOCH = datetime.datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("left", "right", "values"),
    [
        (pa.int8(), pa.int64(), [1, -1]),
        (pa.uint32(), pa.int16(), [1, 7]),
        (pa.uint64(), pa.int64(), [1, 2]),
        (pa.string(), pa.large_string(), ["a", ""]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b"]),
        (pa.binary(), pa.binary(2), [b"ab", b"cd"]),
        (pa.bool_(), pa.bool_(), [True, False]),
        (pa.date32(), pa.date64(), [EPOCH.date(), datetime.date(1969, 1, 1)]),
        (pa.timestamp("s"), pa.timestamp("us"), [EPOCH]),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Tokyo"), [
            EPOCH.replace(tzinfo=datetime.timezone.utc)]),
        (pa.decimal128(9, 2), pa.decimal128(38, 10), [Decimal("1.50"), Decimal("-3")]),
    ],
)  # fmt: skip
def test_keys_of_one_kind_are_compared(
    left: pa.DataType, right: pa.DataType, values: list[Any]
) -> None:
    types = compared_key_types(["a"], ["b"], [left], [right])
    tables = [key_table([pa.chunked_array([pa.array([*values, None], t)])], types)
              for t in (left, right)]  # fmt: skip
    groups = Groups.common(*([distinct_keys(table)] for table in tables))
    assert len(groups) == len(values)
    first, second = (groups.assign(table).tolist() for table in tables)
    assert first == second and first[-1] == -1 and -1 not in first[:-1]


def test_a_large_unsigned_key_equals_no_negative_one() -> None:
    types = compared_key_types(["a"], ["b"], [pa.uint64()], [pa.int64()])
    left = key_table([pa.chunked_array([pa.array([2**64 - 1, 5], pa.uint64())])], types)
    right = key_table([pa.chunked_array([pa.array([-1, 5], pa.int64())])], types)
    assert len(Groups.common([distinct_keys(left)], [distinct_keys(right)])) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.string()),
        (pa.float32(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.decimal128(9, 2), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.date32(), pa.timestamp("us")),
        (pa.list_(pa.int32()), pa.list_(pa.int32())),
        (pa.bool_(), pa.int8()),
    ],
)
def test_keys_of_different_kinds_are_refused(left: pa.DataType, right: pa.DataType) -> None:
    assert key_type(left, right) is None
    with pytest.raises(KeysDiffer) as caught:
        compared_key_types(["a"], ["b"], [left], [right])
    assert f"the left key 'a' is of type {left}, the right key 'b' of type {right}" in str(
        caught.value
    )


SIZES = st.lists(
    st.tuples(st.integers(0, 5000), st.sampled_from([0, 1, 50, 100_000])), min_size=1, max_size=40
)


@settings(max_examples=examples(150))
@given(SIZES, st.sampled_from([1, 2, 16]), st.sampled_from([700, 100_000]))
def test_cells_hold_every_left_row_of_a_group_once(
    sizes: list[tuple[int, int]], cores: int, largest: int
) -> None:
    left, right = (np.array(side, np.int64) for side in zip(*sizes, strict=True))
    seen = {group: np.zeros(rows, np.int64) for group, rows in enumerate(left.tolist())}
    for cell in group_cells(left, right, dimension=64, largest=largest, cores=cores):
        if cell.rows is not None:
            assert len(cell.rows) <= largest
            [group] = cell.groups
            seen[group][cell.rows.start : cell.rows.stop] += 1
            continue
        matched = [group for group in cell.groups if left[group] and right[group]]
        assert sum(int(left[group]) for group in matched) <= largest
        for group in cell.groups:
            seen[group] += 1
    for group, rows in seen.items():
        if left[group] and right[group]:
            assert (rows == 1).all()


def test_a_huge_group_is_split_and_small_ones_go_together() -> None:
    left = np.array([100] * 500 + [300_000] + [100] * 500, np.int64)
    right = np.array([100] * 500 + [30_000] + [100] * 500, np.int64)
    cells = list(group_cells(left, right, dimension=128, largest=100_000, cores=8))
    pieces = [cell for cell in cells if cell.rows is not None]
    assert {cell.groups for cell in pieces} == {range(500, 501)}
    assert len(pieces) >= 8
    assert all(isinstance(cell, GroupCell) for cell in cells)
    assert 2 <= len(cells) - len(pieces) < 200


@pytest.mark.parametrize(
    ("left", "right", "with_rank", "names"),
    [
        (["b", "a"], ["d", "c"], False, ("b", "a", "d", "c", "_distance")),
        (["a"], [], True, ("a", "_distance", "_rank")),
        (["_rank"], [], False, ("_rank", "_distance")),
        (
            ["id", "name"],
            ["ID", "size", "name"],
            False,
            ("id", "name", "ID_right", "size", "name_right", "_distance"),
        ),
    ],
)
def test_columns_of_a_result_have_names(
    left: list[str], right: list[str], with_rank: bool, names: tuple[str, ...]
) -> None:
    assert output_names(left, right, with_rank=with_rank).all == names


@pytest.mark.parametrize(
    ("left", "right", "code", "message"),
    [
        (["id", "id_right"], ["id"], "LS452", "'id' would be called 'id_right'"),
        (["id", "ID_Right"], ["id"], "LS452", "'id' would be called 'id_right'"),
        (["id"], ["id", "id_right"], "LS452", "'id' would be called 'id_right'"),
        *(
            (*sides, "LS451", f"selects '{name}'")
            for name in ("_distance", "_rank", "_Rank")
            for sides in (([name], []), ([], [name]))
        ),
        *(
            (*sides, "LS450", "cannot tell apart")
            for twice in ("a", "A")
            for sides in ((["a", twice], []), ([], ["a", twice]))
        ),
    ],
)
def test_names_that_spark_cannot_tell_apart_are_refused(
    left: list[str], right: list[str], code: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        output_names(left, right, with_rank=True)
    assert caught.value.code == code
