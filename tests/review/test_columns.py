from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import Location
from lancestat.review.values import ColumnsChange, Mask
from lancestat.spec.model import ColumnPattern, ColumnRule, ColumnSelection, Table
from lancestat.tables.review import compare_columns
from tests.review.conftest import snapshot

PLACE = Location("specs/shop.yml", 1, 1)
# Every name that a pattern below spells out is there, so that all selections resolve.
SCHEMA = snapshot(
    "s3://lake/t",
    {
        "a": "bigint",
        "b": "string",
        "a_key": "bigint",
        "b_key": "string",
        "x_a": "double",
        "date": "string",
        "plain": "vector",
    },
)


def table(*rules: ColumnRule, exclude: Sequence[str] = ()) -> Table:
    selection = ColumnSelection(not rules, rules, _patterns(exclude))
    return Table("t", "s3://lake/t", PLACE, columns=selection)


def rule(
    include: Sequence[str], exclude: Sequence[str] = (), types: Sequence[str] | None = None
) -> ColumnRule:
    kinds = None if types is None else frozenset(types)
    return ColumnRule(_patterns(include), _patterns(exclude), kinds)


def _patterns(texts: Sequence[str]) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text) for text in texts)


ALL = table()


@pytest.mark.parametrize(
    ("old", "new", "gained", "lost"),
    [
        (ALL, ALL, (), ()),
        (None, ALL, ("*",), ()),
        (ALL, None, (), ("*",)),
        (ALL, table(exclude=["b"]), (), ("b",)),
        (ALL, table(rule(["a_*"])), (), ("*",)),
        (table(rule(["a", "b"])), table(rule(["a", "x_*"])), ("x_*",), ("b",)),
        (table(rule(["a_key"])), table(rule(["*_key"])), ("*_key",), ()),
        (table(rule(["*_key"], types=["integer"])), table(rule(["*_key"])), ("*_key",), ()),
        (table(rule(["a", "b"])), table(rule(["a", "b"], ["b_*"])), (), ()),
        (table(rule(["*_key"], ["a_*"])), table(rule(["*_key"])), ("a_*",), ()),
        (table(rule(["a"]), rule(["b"])), table(rule(["b", "a"])), (), ()),
    ],
)
def test_patterns_are_compared_where_there_is_no_schema(
    old: Table | None, new: Table | None, gained: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    comparison = compare_columns(old, new, None, Mask())
    assert comparison.change == ColumnsChange(gained, lost, False)
    assert (comparison.may_gain, comparison.may_lose) == (bool(gained), bool(lost))


def test_a_schema_gives_names_in_its_order() -> None:
    comparison = compare_columns(
        table(rule(["x_a", "b", "a"])), table(rule(["*_key", "a"])), SCHEMA, Mask()
    )
    assert comparison.change == ColumnsChange(("a_key", "b_key"), ("b", "x_a"), True)


PATTERNS = st.lists(
    st.sampled_from(["*", "a", "b", "a_key", "*_key", "x_*", "d?te", "[ab]*"]), max_size=3
)
RULES = st.builds(
    rule,
    PATTERNS.filter(bool),
    PATTERNS,
    st.none() | st.lists(st.sampled_from(["integer", "string", "float"]), min_size=1),
)
TABLES = st.builds(
    lambda rules, exclude: table(*rules, exclude=exclude), st.lists(RULES, max_size=2), PATTERNS
)


@given(TABLES, TABLES)
def test_comparing_patterns_is_conservative(old: Table, new: Table) -> None:
    """Patterns may only be too careful."""
    careful = compare_columns(old, new, None, Mask())
    exact = compare_columns(old, new, SCHEMA, Mask())
    assert exact.change.are_names
    assert careful.may_gain or not exact.may_gain
    assert careful.may_lose or not exact.may_lose


@given(TABLES)
def test_an_unchanged_selection_gains_and_loses_nothing(declared: Table) -> None:
    for schema in (None, SCHEMA):
        comparison = compare_columns(declared, declared, schema, Mask())
        assert (comparison.change.gained, comparison.change.lost) == ((), ())
