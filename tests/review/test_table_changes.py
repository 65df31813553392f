"""What changes of columns and policies mean: careful, whatever is known of the table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import Location
from lancestat.review.values import ColumnsChange, Mask, Risk
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    Policy,
    Refresh,
    StaleBounds,
    Table,
)
from lancestat.tables import wire
from lancestat.tables.judgement import examine, under_policy
from lancestat.tables.review import compare_columns, staleness_risks
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


LOOSENED, TIGHTENED = Risk.STALENESS_LOOSENED, Risk.STALENESS_TIGHTENED


def policy(allowed: bool | StaleBounds, refresh: Refresh = Refresh.ALWAYS) -> Policy:
    return Policy(None, None, allowed, refresh)


@pytest.mark.parametrize(
    ("old", "new", "risks"),
    [
        (False, False, ()),
        (False, True, (LOOSENED,)),
        (True, False, (TIGHTENED,)),
        (False, StaleBounds(max_versions=0), (LOOSENED,)),
        (StaleBounds(max_versions=9), True, (LOOSENED,)),
        (True, StaleBounds(max_versions=9), (TIGHTENED,)),
        (StaleBounds(max_versions=9), StaleBounds(max_versions=10), (LOOSENED,)),
        (StaleBounds(max_versions=9), StaleBounds(9, timedelta(hours=1)), (TIGHTENED,)),
        (StaleBounds(max_changed_rows=0.1), StaleBounds(max_changed_rows=0.05), (TIGHTENED,)),
        (
            StaleBounds(9, timedelta(hours=1)),
            StaleBounds(10, timedelta(minutes=1)),
            (LOOSENED, TIGHTENED),
        ),
    ],
)
def test_bounds_lie_between_never_and_always(
    old: bool | StaleBounds, new: bool | StaleBounds, risks: tuple[Risk, ...]
) -> None:
    assert staleness_risks(policy(old), policy(new)) == risks


def test_waiting_with_a_refresh_loosens_where_anything_stale_is_accepted() -> None:
    always, waits = Refresh.ALWAYS, Refresh.WHEN_STALE
    assert staleness_risks(policy(True, always), policy(True, waits)) == (LOOSENED,)
    assert staleness_risks(policy(True, waits), policy(True, always)) == (TIGHTENED,)
    assert staleness_risks(policy(False, always), policy(False, waits)) == ()


NOW = datetime(2026, 5, 4, tzinfo=timezone.utc)
BOUNDS = st.builds(
    StaleBounds,
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 3).map(lambda hours: timedelta(hours=hours)),
    st.none() | st.sampled_from([0.0, 0.5, 1.0]),
)
ALLOWED = st.booleans() | BOUNDS
# Versions, hours and the share of rows that changed since.
DISTANCES = st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.7, 1.0]))


def accepts(allowed: bool | StaleBounds, distance: tuple[int, int, float]) -> bool:
    """Return whether the guard accepts statistics of that distance."""
    versions, hours, share = distance
    entries = {
        wire.VERSION: wire.FORMAT_VERSION,
        wire.COMPLETE: "true",
        wire.COMPUTED_AT_VERSION: "1",
        wire.COMPUTED_AT: "2026-05-04T00:00:00Z",
        wire.NUM_ROWS: "1",
        wire.SCHEMA_HASH: "h",
    }
    version, now = 1 + versions, NOW + timedelta(hours=hours)
    finding = examine(wire.decode_statistics(entries), version=version, schema_hash="h")
    return under_policy(finding, allowed, version=version, now=now, changed_rows=lambda: share).use


@given(ALLOWED, ALLOWED, DISTANCES)
def test_every_change_of_the_verdicts_of_the_guard_is_reported(
    old: bool | StaleBounds, new: bool | StaleBounds, distance: tuple[int, int, float]
) -> None:
    assert accepts(True, distance)
    before, after = accepts(old, distance), accepts(new, distance)
    risks = staleness_risks(policy(old), policy(new))
    assert LOOSENED in risks or not (after and not before)
    assert TIGHTENED in risks or not (before and not after)
