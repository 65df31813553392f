"""What a kept index has of a right side, when it has to be trained again, and its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.joins.scratch.kept_indexes import (
    Coverage,
    IndexedFragment,
    IndexRecord,
    Quality,
    index_key,
    owner_prefix,
)
from lancestat.joins.search.cost_model import KeptIndex
from lancestat.joins.search.ivf import OFFSET_BITS, LiveRows, imbalance
from lancestat.joins.search.work import RightContent, RightFragment

RECORD = IndexRecord(
    dimension=4,
    lists=10,
    sources=tuple(IndexedFragment(name, 100) for name in "abc"),
    first_sources=3,
    trained=Quality(300, 30.0, 1.5),
    now=Quality(300, 30.0, 1.5),
    first_pieces=1,
    pieces=1,
)


def content(**rows: int) -> RightContent:
    """Fragments of those contents with so many live rows of 100."""
    fragments = (
        RightFragment(number, name, 100, count) for number, (name, count) in enumerate(rows.items())
    )
    return RightContent("key", tuple(fragments))


def test_unchanged_content_is_covered() -> None:
    assert RECORD.cover(content(a=100, b=100, c=100)) == Coverage((0, 1, 2), (), 300, 0, 0, 0)


def test_new_and_gone_fragments_and_deleted_rows_are_told_apart() -> None:
    covered = RECORD.cover(content(c=90, d=7, a=100))
    assert covered == Coverage((2, -1, 0), (1,), 190, 0, 7, 110)
    assert RECORD.kept(replace(covered, deleted_rows=0)) == KeptIndex(10, 190, 7)


def test_rows_that_came_back_or_are_distrusted_are_put_in_again() -> None:
    record = replace(RECORD, sources=(IndexedFragment("a", 60), *RECORD.sources[1:]))
    assert record.cover(content(a=61, b=100)).missing == (0,)
    assert record.cover(content(a=60, b=100)).missing == ()
    assert record.cover(content(a=60, b=100), frozenset({0})).missing == (0,)


def test_a_fragment_that_was_put_in_twice_is_in_the_later_slot() -> None:
    record = replace(RECORD, sources=(*RECORD.sources, IndexedFragment("a", 100)))
    assert record.cover(content(a=80, b=100, c=100)) == Coverage((-1, 1, 2, 0), (), 280, 80, 0, 120)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"sources": (*RECORD.sources, IndexedFragment("d", 100))}, None),
        ({"first_sources": 1}, "67 % of its rows came after it was trained"),
        (
            {"sources": (*RECORD.sources, IndexedFragment("x", 200))},
            "40 % of the rows in its lists",
        ),
        ({"now": Quality(310, 31.4, 1.5)}, None),
        ({"now": Quality(310, 32.0, 1.5)}, "added rows are 2.0 times as far"),
        ({"now": Quality(309, 60.0, 1.5)}, None),
        ({"now": Quality(300, 30.0, 3.1)}, "its lists are 2.1 times as unequal as they were"),
        ({"pieces": 65}, None),
        ({"pieces": 66}, "it is in 66 pieces"),
    ],
)
def test_drift_is_told_with_its_number(changes: dict[str, object], why: str | None) -> None:
    record = replace(RECORD, **changes)  # type: ignore[arg-type]
    rows = {"a": 100, "b": 100, "c": 100}
    if any(laid.content == "d" for laid in record.sources):
        rows["d"] = 100
    reason = record.drift(record.cover(content(**rows)))
    assert (reason is None) if why is None else (reason or "").startswith(why)


def test_keys_differ_in_all_that_a_layout_depends_on() -> None:
    arguments = ("state", "table", "emb", "l2", None)
    keys = {index_key(*arguments)}
    for number, other in enumerate(("state2", "table2", "emb2", "cosine", "x = 1")):
        changed = [*arguments]
        changed[number] = other
        keys.add(index_key(*changed))  # type: ignore[arg-type]
    assert len(keys) == 6
    assert sum(key.startswith(owner_prefix("state")) for key in keys) == 5


@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=6, unique=True),
    st.dictionaries(st.integers(0, 5), st.frozensets(st.integers(0, 9))),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))),
)
def test_live_rows_are_those_whose_fragment_is_there_and_that_are_not_deleted(
    fragments: list[int], deleted: dict[int, frozenset[int]], rows: list[tuple[int, int]]
) -> None:
    rows = [(slot % len(fragments), offset) for slot, offset in rows]
    offsets = {number: np.array(sorted(gone), np.uint32) for number, gone in deleted.items()}
    live = LiveRows.of(fragments, offsets)
    places = np.array([slot << OFFSET_BITS | offset for slot, offset in rows], np.int64)
    assert live.keys(places).tolist() == [
        -1
        if fragments[slot] < 0 or offset in deleted.get(fragments[slot], ())
        else fragments[slot] << OFFSET_BITS | offset
        for slot, offset in rows
    ]


def test_equal_lists_have_no_imbalance() -> None:
    assert imbalance(np.array([5, 5, 5])) == 1.0
    assert imbalance(np.array([15, 0, 0])) == pytest.approx(3.0)
    assert imbalance(np.array([0, 0])) == 1.0
