"""The limit on the pairs of a join with `k: all`, which also holds for runs that join a part."""

from __future__ import annotations

import re

import lance
import pytest

from lancestat.joins.spark import updates
from tests.joins.joined import vectors
from tests.joins.local import LocalWorld

MOST = 300


@pytest.fixture
def within(local: LocalWorld) -> LocalWorld:
    """A join of equal vectors, whose result has a third of the pairs that it may have."""
    local.declare(k="all", max_distance=0.5, max_pairs=MOST, join="left_outer")
    return local


def pairs_of(world: LocalWorld) -> int:
    return sum(row["_distance"] is not None for row in world.rows())


def pairs_when_refused(world: LocalWorld) -> int:
    """Run the join, which fails; return how many pairs it says to have found."""
    [result] = world.run().nodes
    assert result.status == "error" and result.message is not None
    found = re.search("more than 300 pairs .*: ([0-9,]+) were found before", result.message)
    assert found is not None, result.message
    return int(found[1].replace(",", ""))


def test_an_update_stops_as_soon_as_it_has_found_too_many(
    within: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "SLICE_ROWS", 8)
    within.settle()
    before = within.rows()
    within.append("r", 100, 1000)
    within.append("l", 100, 1000)
    assert MOST < pairs_when_refused(within) < 8 * 1030
    assert within.scopes == ["changed"]
    assert within.rows() == before


def test_pairs_of_the_last_result_count_where_left_rows_are_joined_by_themselves(
    within: LocalWorld,
) -> None:
    lance.write_dataset(vectors(0, 60, name="v"), within.uri("l"), mode="overwrite")
    within.settle()
    before, found = within.rows(), pairs_of(within)
    assert MOST / 2 < found < MOST < len(before) + found
    within.append("l", 60, 60)
    assert MOST < pairs_when_refused(within) <= 2 * found + 60
    assert within.scopes == ["new_left"]
    assert within.rows() == before


def test_a_join_may_have_as_many_pairs_as_it_is_allowed(within: LocalWorld) -> None:
    """Left rows without a neighbour are no pairs."""
    within.settle()
    within.declare(max_pairs=pairs_of(within))
    within.settle()
    missing = vectors(3, 1, name="v")
    assert missing["v"].to_pylist() == [None]
    lance.write_dataset(missing, within.uri("l"), mode="append")
    within.converge()
    lance.dataset(within.uri("r")).delete("id = 2")
    within.converge()
    assert within.scopes == ["new_left", "changed"]
