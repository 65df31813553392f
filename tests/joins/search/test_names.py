from __future__ import annotations

import pytest

from lancestat.errors import UsageError
from lancestat.joins.search.request import output_names


def test_columns_come_in_the_order_in_which_they_were_selected() -> None:
    names = output_names(["b", "a"], ["d", "c"], with_rank=False)
    assert names.all == ("b", "a", "d", "c", "_distance")


def test_rank_comes_last_and_only_when_asked_for() -> None:
    assert output_names(["a"], [], with_rank=True).all == ("a", "_distance", "_rank")


def test_a_right_column_that_the_left_has_too_gets_a_suffix() -> None:
    names = output_names(["id", "name"], ["ID", "size", "name"], with_rank=False)
    assert names.left == ("id", "name")
    assert names.right == ("ID_right", "size", "name_right")


@pytest.mark.parametrize(
    ("left", "right"),
    [(["id", "id_right"], ["id"]), (["id", "ID_Right"], ["id"]), (["id"], ["id", "id_right"])],
)
def test_a_suffixed_name_that_is_taken_is_an_error(left: list[str], right: list[str]) -> None:
    with pytest.raises(UsageError, match="'id' would be called 'id_right'") as caught:
        output_names(left, right, with_rank=False)
    assert caught.value.code == "LS452"


@pytest.mark.parametrize("name", ["_distance", "_rank", "_Rank"])
def test_names_of_added_columns_cannot_be_selected(name: str) -> None:
    for sides in ([name], []), ([], [name]):
        with pytest.raises(UsageError, match=f"selects '{name}'") as caught:
            output_names(*sides, with_rank=True)
        assert caught.value.code == "LS451"


def test_a_column_may_be_named_rank_in_a_join_without_ranks() -> None:
    assert output_names(["_rank"], [], with_rank=False).all == ("_rank", "_distance")


@pytest.mark.parametrize("twice", ["a", "A"])
def test_a_side_selects_each_column_once(twice: str) -> None:
    for sides in (["a", twice], []), ([], ["a", twice]):
        with pytest.raises(UsageError, match="cannot tell apart") as caught:
            output_names(*sides, with_rank=False)
        assert caught.value.code == "LS450"
