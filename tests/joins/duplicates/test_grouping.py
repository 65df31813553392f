"""Components of pairs, and ids of groups over random histories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lancestat.joins.duplicates.grouping import (
    Groups,
    Members,
    components,
    first_of_each,
    lasting_ids,
)

Pairs = list[tuple[int, int]]


def grouped(pairs: Pairs, spread: int = 1) -> list[list[int]]:
    left, right = np.array(pairs, np.int64).reshape(-1, 2).T * spread
    groups = components(left, right)
    assert (np.diff(groups.rows) > 0).all()
    members: dict[int, list[int]] = {}
    for row, label in zip(groups.rows.tolist(), groups.labels.tolist(), strict=True):
        members.setdefault(label, []).append(row // spread)
    assert list(members) == list(range(len(groups))), "they are numbered by their first rows"
    assert groups.sizes.tolist() == [len(members[label]) for label in members]
    return list(members.values())


def found(pairs: Pairs) -> list[list[int]]:
    """Return components by union-find, pair by pair."""
    parents: dict[int, int] = {}

    def root(row: int) -> int:
        parents.setdefault(row, row)
        while parents[row] != row:
            row = parents[row]
        return row

    for left, right in pairs:
        low, high = sorted((root(left), root(right)))
        parents[high] = low
    members: dict[int, list[int]] = {}
    for row in sorted(parents):
        members.setdefault(root(row), []).append(row)
    return list(members.values())


_PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda p: p[0] != p[1]))


@given(_PAIRS, st.sampled_from([1, 10**9]))
def test_components_are_those_of_union_find(pairs: Pairs, spread: int) -> None:
    assert grouped(pairs, spread) == found(pairs)


@pytest.mark.parametrize("count", [2, 1_000])
@pytest.mark.parametrize("shape", ["path", "star", "tail"])
def test_long_paths_and_stars_are_one_group(shape: str, count: int) -> None:
    rows = np.random.default_rng(count).permutation(count)
    if shape == "path":
        left, right = rows[:-1], rows[1:]
    else:
        centre = count if shape == "star" else -1
        left, right = np.full(count, centre) + 1, rows + 1 + (shape == "tail")
    assert len(components(left, right)) == 1


def test_the_first_of_a_group_is_that_by_ranks_and_then_by_place() -> None:
    labels = np.array([0, 1, 0, 1, 0])
    first, second = np.array([2, 1, 1, 1, 1]), np.array([0, 5, 3, 5, 2])
    assert first_of_each(labels, (first, second)).tolist() == [4, 1]
    assert first_of_each(labels, ()).tolist() == [0, 1]


# Hashes are any numbers, small and negative ones too.
_HASHES = {row: hash for hash, row in enumerate("abcdefghxy", -3)}


def members(groups: dict[int, str]) -> Members:
    """Return groups of rows that are named by letters, of which the first one is kept."""
    pairs = [(id, row, place == 0) for id, rows in groups.items() for place, row in enumerate(rows)]
    return Members(
        np.array([_HASHES[row] for _, row, _ in pairs], np.int64),
        np.array([id for id, *_ in pairs], np.int64),
        np.array([is_kept for *_, is_kept in pairs], np.bool_),
    )


def ids(before: dict[int, str], *now: str, highest: int = 0) -> tuple[list[int], int]:
    numbered = members(dict(enumerate(now)))
    given, most = lasting_ids(members(before), numbered, highest)
    return given.tolist(), most


def test_first_ids_start_at_one_and_follow_the_highest_one() -> None:
    assert ids({}, "ab", "cd") == ([1, 2], 2)
    assert ids({}, "ab", "cd", highest=7) == ([8, 9], 9)
    assert ids({}) == ([], 0)
    assert ids({4: "ab"}) == ([], 4)


def test_a_group_keeps_its_id_when_rows_come_and_go() -> None:
    assert ids({1: "ab", 2: "cd"}, "xcd", "b") == ([2, 1], 2)


def test_merged_groups_take_the_id_of_the_one_with_the_most_rows() -> None:
    assert ids({1: "ab", 2: "cde"}, "abcde") == ([2], 2)
    # Of equally many the smallest id.
    assert ids({3: "ab", 2: "cd"}, "abcd") == ([2], 3)
    # Rows that are not there any more do not count.
    assert ids({1: "ab", 2: "cde"}, "abcx") == ([1], 2)


def test_of_a_split_group_the_part_with_the_most_rows_keeps_the_id() -> None:
    assert ids({1: "abcde"}, "ab", "cde") == ([2, 1], 2)
    # Of equal parts the one with the row that was kept, and then the first one.
    assert ids({1: "cabd"}, "ab", "cd") == ([2, 1], 2)
    assert ids({1: "eabcd"}, "ab", "cd") == ([1, 2], 2)


def test_rows_that_are_the_same_count_as_often_as_both_groups_have_them() -> None:
    assert ids({1: "aaa", 2: "ab"}, "aaab") == ([1], 2)
    assert ids({1: "aaa", 2: "bb"}, "abb") == ([2], 2)


_GROUPS = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=4)


@given(st.lists(_GROUPS, max_size=6))
def test_ids_over_histories_are_distinct_and_never_used_again(
    history: list[list[list[str]]],
) -> None:
    before: dict[int, str] = {}
    highest, retired = 0, set[int]()
    for groups in history:
        now = ["".join(rows) for rows in groups]
        given, most = ids(before, *now, highest=highest)
        assert len(set(given)) == len(given)
        assert retired.isdisjoint(given)
        assert all(id in before or id > highest for id in given)
        assert most == max([highest, *given])
        for id, rows in zip(given, now, strict=True):
            if id in before:
                assert set(before[id]) & set(rows)
        unchanged = {rows for rows in now if now.count(rows) == 1} & set(before.values())
        if len(now) == 1 == len(before) and unchanged:
            assert given == list(before)
        retired |= before.keys() - set(given)
        before, highest = dict(zip(given, now, strict=True)), most


def test_ids_do_not_depend_on_the_order_of_rows() -> None:
    chosen = np.random.default_rng(5)
    before = members({1: "abc", 2: "def", 9: "gh"})
    now = members({0: "abd", 1: "gx", 2: "efy"})

    def shuffled(rows: Members, order: NDArray[np.int64]) -> Members:
        return Members(rows.hashes[order], rows.groups[order], rows.is_kept[order])

    for _ in range(20):
        some = (shuffled(m, chosen.permutation(len(m.hashes))) for m in (before, now))
        assert lasting_ids(*some, 9)[0].tolist() == [1, 9, 2]


def test_no_pairs_make_no_groups() -> None:
    none = np.empty(0, np.int64)
    groups = components(none, none)
    assert (len(groups), groups.sizes.tolist()) == (0, [])
    assert isinstance(groups, Groups)
