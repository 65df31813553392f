from __future__ import annotations

import pytest

from lancestat.errors import UsageError
from lancestat.joins.search.work import output_names


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
