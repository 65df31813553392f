"""Division of fragments into groups, and of groups into blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lancestat.lake.fingerprint import ColumnGroup
from lancestat.state.partials import (
    block_digest,
    contents,
    count_blocks,
    group_digest,
    group_fragments,
    slices,
)

IDS = st.sets(st.integers(0, 5000), max_size=60)


def test_up_to_the_limit_every_fragment_is_a_group() -> None:
    assert group_fragments([7, 3, 9000], [], 3) == ((3,), (7,), (9000,))
    assert group_fragments([], [], 3) == ()


def test_above_it_groups_are_aligned_ranges_of_ids() -> None:
    assert group_fragments(range(10), [], 3) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
    assert len(group_fragments(range(100_000), [], 512)) == 391


def test_fragments_of_which_only_the_sum_is_known_share_a_group() -> None:
    assert group_fragments(range(5), [(1, 2), (2, 4)], 9) == ((0,), (1, 2, 4), (3,))
    assert group_fragments(range(8), [(1, 2)], 4) == ((0, 1, 2, 3), (4, 5), (6, 7))
    assert group_fragments(range(6), [(4, 5), (0, 1), (1, 4)], 6) == ((0, 1, 4, 5), (2,), (3,))


@given(IDS, st.lists(st.sets(st.integers(0, 5000), min_size=2, max_size=4)), st.integers(1, 40))
def test_every_fragment_is_in_one_group(ids: set[int], joint: list[set[int]], most: int) -> None:
    joint = [members & ids for members in joint if len(members & ids) > 1]
    groups = group_fragments(ids, joint, most)
    assert sorted(fragment for group in groups for fragment in group) == sorted(ids)
    assert all(list(group) == sorted(group) for group in groups)
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert len(groups) <= most
    assert all(any(members <= set(group) for group in groups) for members in joint)


@given(IDS, st.integers(1, 40))
def test_an_append_touches_the_last_group_until_groups_widen(ids: set[int], most: int) -> None:
    before = group_fragments(ids, [], most)
    after = group_fragments({*ids, max(ids, default=0) + 1}, [], most)
    if len(before) < most:
        assert set(before[:-1]) <= set(after)


@given(IDS)
def test_blocks_hold_all_groups_in_order(ids: set[int]) -> None:
    groups = group_fragments(ids, [], 30)
    counts = count_blocks(groups)
    assert sum(counts) == len(groups)
    assert all(counts)
    assert [group for place in slices(counts) for group in groups[place]] == list(groups)


def test_a_full_table_has_sixteen_blocks_of_an_append_the_last_changes() -> None:
    groups = group_fragments(range(512), [], 512)
    assert count_blocks(groups) == (32,) * 16
    assert count_blocks(groups[:-1]) == (*(32,) * 15, 31)
    skewed = group_fragments([0, *range(100_000, 100_511)], [], 512)
    assert max(count_blocks(skewed)) == 64


def test_fields_with_the_same_fingerprints_are_one_class() -> None:
    both, a, b = frozenset("ab"), frozenset("a"), frozenset("b")
    together = [ColumnGroup(0, b"0", both), ColumnGroup(1, b"1", both)]
    assert contents(together) == {both: {0: b"0", 1: b"1"}}
    apart = [ColumnGroup(0, b"0", both), ColumnGroup(1, b"1", a), ColumnGroup(1, b"2", b)]
    assert contents(apart) == {a: {0: b"0", 1: b"1"}, b: {0: b"0", 1: b"2"}}


def test_digests_are_of_content_in_order() -> None:
    content = {0: b"x" * 16, 1: b"y" * 16, 2: b"x" * 16}
    assert group_digest((0, 1), content) == group_digest((2, 1), content)
    assert group_digest((0, 1), content) != group_digest((1, 0), content)
    assert group_digest((0, 3), content) is None
    assert block_digest([b"a" * 16, b"b" * 16]) != block_digest([b"b" * 16, b"a" * 16])
