"""What partials prove and refute of expectations, against the rows themselves."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.spec.expectations import (
    AcceptedValues,
    Between,
    Check,
    DistinctBetween,
    Expectation,
    MaxNullShare,
    NotNull,
    References,
    RowCount,
    Severity,
    Unique,
)
from lancestat.spec.model import Reference
from lancestat.tables.expectations import CheckVerdict, Known, judge
from lancestat.tables.relations import Containment
from lancestat.tables.statistics.column_type import ColumnType, column_type
from lancestat.tables.statistics.kernel import Request, reduce_batches
from lancestat.tables.statistics.partial import merge

PROVED, REFUTED, UNKNOWN = CheckVerdict.PROVED, CheckVerdict.REFUTED, CheckVerdict.UNKNOWN


@dataclass
class Rows:
    """Fragments of a table with one column `v`, of which the first `known` are known.

    `common` is how many common values are kept, and `is_key` whether repetition is looked for.
    """

    fragments: Sequence[Sequence[Any]]
    type: pa.DataType
    known_fragments: int | None = None
    common: int = 0
    is_key: bool = False
    shows_values: bool = True
    shows_common: bool = True
    proven_keys: Collection[frozenset[str]] = ()
    references: Mapping[str, Containment] = field(default_factory=dict)

    @property
    def values(self) -> list[Any]:
        return [value for fragment in self.fragments for value in fragment]

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def types(self) -> Mapping[str, ColumnType]:
        type = column_type(self.type)
        return {} if type is None else {"v": type}

    @property
    def column_names(self) -> Collection[str]:
        return ["v", "points"]

    def known(self, columns: Sequence[str]) -> Known | None:
        some = self.fragments[: self.known_fragments]
        if not some or columns[0] != "v":
            return None
        schema = pa.schema([("v", self.type)])
        request = Request(("v",), False, self.common, self.is_key, keeps_hashes=True)
        partials = []
        for fragment in some:
            batch = pa.record_batch([pa.array(fragment, self.type)], schema)
            partials.append(reduce_batches([batch], schema, {"v": request})["v"])
        return Known(merge(partials), len(some) == len(self.fragments))

    def contained(self, reference: Reference) -> Containment:
        return self.references[reference.table]


def verdict(check: Check, rows: Rows) -> CheckVerdict:
    return judge(Expectation(check=check), rows).verdict


def detail(check: Check, rows: Rows) -> str:
    return judge(Expectation(check=check), rows).detail


def truth(check: Check, rows: Rows) -> bool:
    """Whether an expectation holds, of all rows one by one."""
    some = [value for value in rows.values if value is not None]
    match check:
        case NotNull():
            return len(some) == rows.rows
        case MaxNullShare(share=most):
            return rows.rows - len(some) <= Decimal(str(most)) * rows.rows
        case Between(min=low, max=high):
            return all((low is None or v >= low) and (high is None or v <= high) for v in some)
        case AcceptedValues(values=values):
            return all(value in values for value in some)
        case DistinctBetween(min=low, max=high):
            number = len({"nan" if v != v else v for v in some})
            return (low is None or number >= low) and (high is None or number <= high)
        case Unique():
            return len({"nan" if v != v else v for v in some}) == len(some)
        case RowCount(min=low, max=high):
            return (low is None or rows.rows >= low) and (high is None or rows.rows <= high)
    raise AssertionError(check)


INTEGERS = st.integers(-4, 4)
TEXTS = st.text("ab", max_size=3)
FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, math.nan, math.inf])
KINDS = [(pa.int32(), INTEGERS), (pa.string(), TEXTS), (pa.float64(), FLOATS)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, st.SearchStrategy[Any]]:
    type, values = draw(st.sampled_from(KINDS))
    column = st.lists(st.none() | values, max_size=6)
    fragments = draw(st.lists(column, max_size=3))
    known = draw(st.none() | st.integers(0, len(fragments)))
    rows = Rows(fragments, type, known, draw(st.sampled_from([0, 128])), draw(st.booleans()))
    return rows, values


@st.composite
def checks(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Check:
    plain = values.filter(lambda value: value == value and value not in (math.inf, -math.inf))
    # What is declared has one of them.
    low = draw(st.none() | plain)
    high = draw(plain if low is None else st.none() | plain)
    fewest, most = draw(st.none() | st.integers(0, 6)), draw(st.none() | st.integers(0, 6))
    made: Sequence[Check] = [
        NotNull(column="v"),
        Unique(columns=("v",)),
        Between(column="v", min=low, max=high),
        AcceptedValues(column="v", values=tuple(draw(st.lists(plain, min_size=1, max_size=9)))),
        MaxNullShare(column="v", share=draw(st.sampled_from([0.0, 0.05, 0.3, 0.5, 1.0]))),
        DistinctBetween(column="v", min=fewest, max=most),
        RowCount(min=fewest, max=most),
    ]
    return draw(st.sampled_from(made))


@given(st.data())
def test_what_is_proved_holds_and_what_is_refuted_does_not(data: st.DataObject) -> None:
    rows, values = data.draw(tables())
    check = data.draw(checks(values))
    found = judge(Expectation(check=check), rows)
    if found.verdict is not UNKNOWN:
        assert (found.verdict is PROVED) is truth(check, rows), found.detail


@given(st.data())
def test_statistics_of_all_rows_decide_but_for_values(data: st.DataObject) -> None:
    rows, values = data.draw(tables())
    check = data.draw(checks(values))
    rows.known_fragments, rows.common, rows.is_key = None, 128, True
    # All of so few values are listed.
    assert verdict(check, rows) is not UNKNOWN


def ints(*fragments: Sequence[int | None], **more: Any) -> Rows:
    return Rows(fragments, pa.int64(), **more)


def test_a_sketch_proves_nothing_of_distinct_values() -> None:
    spread = ints(range(0, 4000, 2))
    assert verdict(Unique(columns=("v",)), spread) is UNKNOWN
    assert verdict(DistinctBetween(column="v", min=2000), spread) is UNKNOWN
    assert "by a sketch" in detail(Unique(columns=("v",)), spread)
    assert verdict(Unique(columns=("v",)), ints(range(0, 4000, 2), is_key=True)) is PROVED
    # More rows than whole numbers between the bounds cannot all differ.
    assert verdict(Unique(columns=("v",)), ints([1, 2, 2, 3])) is REFUTED
    assert verdict(DistinctBetween(column="v", max=2001), ints(range(2000))) is PROVED


def test_rows_that_are_known_refute_also_where_others_are_not() -> None:
    some = {"known_fragments": 1}
    for check in (
        NotNull(column="v"),
        Between(column="v", min=0),
        MaxNullShare(column="v", share=0.2),
        AcceptedValues(column="v", values=(1, 2)),
        DistinctBetween(column="v", max=1),
    ):
        assert verdict(check, ints([None, -5, 7], [1], **some)) is REFUTED, check
        assert verdict(check, ints([1], [1, 2], **some)) is UNKNOWN, check
    repeated = ints([3, 3], [1], **some, is_key=True)
    assert verdict(Unique(columns=("v",)), repeated) is REFUTED
    found = judge(Expectation(check=NotNull(column="v")), ints([1, 2, 3], [4], **some))
    assert found.detail == "only 75 % of the rows are known as they are"
    nothing = ints([1], known_fragments=0)
    assert detail(NotNull(column="v"), nothing) == "nothing is known of the rows as they are"


def test_enough_known_rows_without_nulls_prove_a_share() -> None:
    rows = ints([1, 2, 3], [None], known_fragments=1)
    assert verdict(MaxNullShare(column="v", share=0.25), rows) is PROVED
    assert verdict(MaxNullShare(column="v", share=0.2), rows) is UNKNOWN


@pytest.mark.parametrize(
    ("type", "values", "low", "high"),
    [
        (pa.date32(), [datetime.date(1995, 3, 1)], "1995-03-01", "1995-03-01"),
        (
            pa.timestamp("us"),
            [datetime.datetime(1995, 3, 1, 12)],
            "1995-03-01",
            "1995-03-01T12:00:01",
        ),
        (pa.timestamp("ms", "UTC"), [datetime.datetime(1995, 3, 1)], "1995-03-01T00:00:00Z", None),
        (pa.decimal128(9, 2), [Decimal("1.10")], 1.1, 1.1),
        (pa.float32(), [0.1], 0.1, 0.1),
        (pa.int16(), [3], 2.5, 3.5),
        (pa.string(), ["b"], "b", "bb"),
    ],
)
def test_values_compare_as_their_type_does(
    type: pa.DataType, values: list[Any], low: Any, high: Any
) -> None:
    rows = Rows([values], type)
    assert verdict(Between(column="v", min=low, max=high), rows) is PROVED
    if high is not None:
        assert verdict(Between(column="v", min=high), rows) is (PROVED if low == high else REFUTED)


@pytest.mark.parametrize(
    ("check", "type", "words"),
    [
        (NotNull(column="w"), pa.int64(), "the table has no column 'w'"),
        (Between(column="v", min="b"), pa.int64(), "'b' is no value"),
        (Between(column="v", min=True), pa.int64(), "'true' is no value"),
        (AcceptedValues(column="v", values=(1,)), pa.string(), "'1' is no value"),
        (Between(column="v", min="1995-02-30"), pa.date32(), "calendar"),
        (Between(column="v", min=1e300), pa.float32(), "beyond"),
        (Between(column="points", min=1), pa.int64(), "cannot be compared"),
    ],
)
def test_what_no_rows_can_fulfil_is_refuted_and_says_why(
    check: Check, type: pa.DataType, words: str
) -> None:
    rows = Rows([[]], type)
    found = judge(Expectation(check=check), rows)
    assert (found.verdict, words in found.detail) == (REFUTED, True), found.detail


def test_values_are_written_as_yaml_has_them() -> None:
    check = AcceptedValues(column="v", values=(True, 1, "a"))
    assert str(Expectation(check=check)) == "v is one of true, 1, a"


def test_long_texts_are_decided_by_what_is_known_of_them() -> None:
    long = "x" * 300
    rows = Rows([[long]], pa.string())
    # The bounds are shortened: that of the least is a prefix, and none of the values.
    assert verdict(Between(column="v", min=long), rows) is UNKNOWN
    assert verdict(AcceptedValues(column="v", values=(long,)), rows) is UNKNOWN
    assert verdict(Between(column="v", min="x", max="y"), rows) is PROVED
    assert verdict(Between(column="v", min="y"), rows) is UNKNOWN


def test_values_of_texts_are_shown_to_whom_may_see_them() -> None:
    check = AcceptedValues(column="v", values=("a",))
    assert detail(check, Rows([["secret"]], pa.string())) == "'secret' is a value"
    hidden = Rows([["secret"]], pa.string(), shows_values=False)
    assert detail(check, hidden) == "one that is not shown is a value"
    assert "secret" not in detail(Between(column="v", min="a"), hidden)


def test_common_values_that_are_not_to_be_shown_are_named_nowhere() -> None:
    for type, values in ((pa.string(), ["a", "m", "z"]), (pa.int64(), [1, 5, 9])):
        check = AcceptedValues(column="v", values=(values[0], values[2]))
        assert str(values[1]) in detail(check, Rows([values * 3], type, common=10))
        hidden = Rows([values * 3], type, common=10, shows_common=False)
        assert detail(check, hidden) == "one that is not shown is a value"


def test_declared_keys_and_references_decide() -> None:
    rows = ints(range(0, 4000, 2), proven_keys=[frozenset({"v"})])
    assert verdict(Unique(columns=("v", "points")), rows) is PROVED
    for contained, expected in ((True, PROVED), (False, REFUTED), (None, UNKNOWN)):
        rows = ints([1], references={"other": Containment(contained, "why")})
        check = References(columns=("v",), table="other", to=("k",), severity=Severity.WARN)
        found = judge(Expectation(check=check), rows)
        assert (found.verdict, found.detail, found.is_failed) == (expected, "why", False)


def test_no_rows_are_as_expected_unless_there_are_to_be_values() -> None:
    empty = ints(known_fragments=0)
    assert verdict(NotNull(column="v"), empty) is PROVED
    assert verdict(Unique(columns=("v",)), empty) is PROVED
    assert verdict(DistinctBetween(column="v", max=3), empty) is PROVED
    assert verdict(DistinctBetween(column="v", min=1), empty) is REFUTED
    assert verdict(RowCount(min=1), empty) is REFUTED
