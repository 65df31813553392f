"""References between two tables: proven, refuted or unknown, as the rows say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.query.fragments import FragmentStatistics
from lancestat.query.references import ReferenceSide, containment
from lancestat.spec.model import Reference
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.partial import ColumnPartial


class Rows(FragmentStatistics):
    """What a run would know of some rows."""

    def __init__(self, rows: pa.Table, capacity: int) -> None:
        self.rows, self._capacity = rows, capacity

    def partial(self, column: str) -> ColumnPartial:
        return self._reduced((column,))

    def group_partial(self, columns: frozenset[str]) -> ColumnPartial:
        return self._reduced(tuple(self.tuple_order(columns)))

    def tuple_order(self, columns: Any) -> list[str]:
        return sorted(columns, key=self.rows.schema.names.index)

    def _reduced(self, columns: tuple[str, ...]) -> ColumnPartial:
        request = Request(columns, common_values=self._capacity, is_key=True)
        return reduce_batches(self.rows.to_batches(), self.rows.schema, {"k": request})["k"]


def side(rows: Mapping[str, Sequence[Any]] | pa.Table, capacity: int = 0) -> ReferenceSide:
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
    types = {field.name: column_type(field.type) for field in table.schema}
    return ReferenceSide(Rows(table, capacity), types)  # type: ignore[arg-type]


ONE = Reference(columns=("a",), table="other", to=("k",))
TWO = Reference(columns=("a", "b"), table="other", to=("k", "l"))


@pytest.mark.parametrize(
    ("ours", "theirs", "capacity", "expected", "reason"),
    [
        ([2, None, 3], [1, 2, 3, 4], 0, True, "has every value of the range, each once"),
        ([2, 3], [1, 2, 4], 0, None, "nothing proves or refutes it"),
        ([2, 3], [1, 2, 3, 3, 5], 0, None, "nothing proves or refutes it"),
        ([0, 3], [1, 2, 3], 0, False, "outside the range"),
        ([3, 4], [1, 2, 3], 0, False, "outside the range"),
        ([2, 3], [1, 2, 4], 128, False, "1 value is not in 'other'"),
        (
            [1.5, math.nan, -0.0],
            [1.5, math.nan, 2.5, 0.0],
            128,
            True,
            "all 3 values are in 'other'",
        ),
        ([1.5, math.nan], [1.5, 2.5], 128, False, "1 value is not in 'other'"),
        ([2, 4], [1, 2, 4], 128, True, "all 2 values are in 'other'"),
        ([1, 2, 4], [1, 5], 0, False, "3 values are more than 2 rows"),
        ([None], [], 0, True, "no row refers to anything"),
        ([1], [], 0, False, "outside the range"),
        ([b"b"], [b"a", b"c"], 0, None, "nothing proves"),
        ([b"d" * 300], [b"a", b"c"], 0, None, "nothing proves"),
        ([b"d"], [b"a", b"c" * 300], 0, False, "outside the range"),
        ([1.5], [1.0, float("nan")], 0, None, "nothing proves"),
        ([1.5], [1, 2], 128, None, "types of the columns differ"),
    ],
)
def test_one_column(
    ours: list[Any], theirs: list[Any], capacity: int, expected: bool | None, reason: str
) -> None:
    type = pa.array([*ours, *theirs][:1] or [1]).type if ours != [None] else pa.int64()
    kind = type if theirs == [] else None
    left, right = pa.array(ours, type), pa.array(theirs, kind)
    known = containment(
        ONE,
        side(pa.table({"a": left}), capacity),
        side(pa.table({"k": right}), capacity),
    )
    assert known.contained is expected
    assert reason in known.reason


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", None])), max_size=5),
    st.lists(st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 3)), max_size=8),
    st.sampled_from([0, 128]),
)
def test_what_is_said_of_two_columns_is_true(
    ours: list[tuple[int, str | None]], theirs: list[tuple[str, int]], capacity: int
) -> None:
    """The other table has its columns in another order."""
    left = pa.Table.from_pylist(
        [{"a": a, "b": b} for a, b in ours], pa.schema([("a", "int64"), ("b", "string")])
    )
    right = pa.Table.from_pylist(
        [{"l": text, "k": number} for text, number in theirs],
        pa.schema([("l", "string"), ("k", "int64")]),
    )
    known = containment(TWO, side(left, capacity), side(right, capacity))
    truth = {row for row in ours if None not in row} <= {(k, text) for text, k in theirs}
    assert known.contained in (truth, None)
    assert not capacity or known.contained is truth


def test_a_value_is_never_named() -> None:
    known = containment(ONE, side({"a": ["secret-x"]}, 128), side({"k": ["a", "z"]}, 128))
    assert known == Containment(False, "1 value is not in 'other'")
