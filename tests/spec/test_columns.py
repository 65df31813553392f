from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import Location, SpecError
from lancestat.spec.column_selection import AvailableColumn, ResolvedColumns
from lancestat.spec.model import ColumnPattern, ColumnRule, ColumnSelection

SCHEMA = (
    AvailableColumn("o_id", "integer"),
    AvailableColumn("o_key", "string"),
    AvailableColumn("price", "decimal"),
    AvailableColumn("day", "date"),
    AvailableColumn("emb", None, "arrays cannot be analyzed"),
    AvailableColumn("a.b", "integer"),
    AvailableColumn("", "integer"),
    AvailableColumn("odd[1]", "integer"),
)
PLACE = Location("specs/x.yml", 4, 9)


def patterns(*texts: str) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text, PLACE) for text in texts)


def rule(*include: str, exclude: tuple[str, ...] = (), types: set[str] | None = None) -> ColumnRule:
    return ColumnRule(
        patterns(*include), patterns(*exclude), None if types is None else frozenset(types)
    )


def resolve(*rules: ColumnRule, exclude: tuple[str, ...] = ()) -> ResolvedColumns:
    selection = ColumnSelection(not rules, rules, patterns(*exclude))
    return selection.resolve(SCHEMA, "orders")


def test_all_skips_unsupported_columns_with_a_reason() -> None:
    resolved = resolve()
    assert resolved.names == ("o_id", "o_key", "price", "day", "odd[1]")
    assert resolved.skipped == (
        ("emb", "arrays cannot be analyzed"),
        ("a.b", "a name with a dot cannot be stored"),
        ("", "a column without a name cannot be stored"),
    )
    assert resolved.notes == ()


@pytest.mark.parametrize(
    ("resolved", "names"),
    [
        (resolve(rule("price", "o_id")), ("o_id", "price")),
        (resolve(rule("o_*")), ("o_id", "o_key")),
        (resolve(rule("o_i?")), ("o_id",)),
        (resolve(rule("odd[1]")), ("odd[1]",)),
        (resolve(rule("o_*"), rule("day")), ("o_id", "o_key", "day")),
        (resolve(rule("o_*", exclude=("o_key",))), ("o_id",)),
        (resolve(rule("o_*", exclude=("not_here", "zzz*"))), ("o_id", "o_key")),
        (resolve(rule("*", types={"date", "decimal"})), ("price", "day")),
        (resolve(rule("o_id", "o_key", types={"string"})), ("o_key",)),
        (resolve(exclude=("o_*", "odd*", "emb", "*.b", "")), ("price", "day")),
        (resolve(rule("o_*"), exclude=("o_id",)), ("o_key",)),
        (resolve(rule("o_*", exclude=("o_id",)), rule("o_id")), ("o_id", "o_key")),
    ],
)
def test_rules_are_united_and_then_narrowed(
    resolved: ResolvedColumns, names: tuple[str, ...]
) -> None:
    assert resolved.names == names
    assert resolved.skipped == ()


def test_patterns_have_case_and_may_match_nothing() -> None:
    resolved = resolve(rule("O_*", "day"), exclude=("zzz*",))
    assert resolved.names == ("day",)
    assert resolved.warnings == ("pattern 'O_*' matches no column",)
    assert resolved.notes == ("pattern 'zzz*' matches no column",)


def test_shared_patterns_need_not_match_in_each_table() -> None:
    shared = replace(rule("O_*", "day"), is_shared=True)
    resolved = resolve(shared, rule("zzz*"))
    assert (resolved.names, resolved.warnings) == (("day",), ("pattern 'zzz*' matches no column",))
    selection = ColumnSelection(False, (rule("O_*", "day"),), patterns("zzz*"))
    of_source = selection.resolve(SCHEMA, "orders", is_shared=True)
    assert (of_source.names, of_source.warnings, of_source.notes) == (("day",), (), ())


def test_no_column_is_a_warning_only_where_one_could_have_statistics() -> None:
    selection = ColumnSelection(False, (replace(rule("zzz*"), is_shared=True),))
    nothing = "no column is left to analyze"
    assert selection.resolve(SCHEMA, "orders").warnings == (nothing,)
    vectors = ColumnSelection().resolve(SCHEMA[4:6], "orders")
    assert (vectors.warnings, vectors.notes) == ((), (nothing,))


def test_a_pattern_reports_the_skipped_columns() -> None:
    resolved = resolve(rule("e*", "*.b"))
    assert resolved.names == ()
    assert [name for name, _ in resolved.skipped] == ["emb", "a.b"]
    assert resolved.warnings == ("no column is left to analyze",)


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        (
            "o_kye",
            "LS114",
            "table 'orders' has no column 'o_kye'\n      hint: did you mean 'o_key'?",
        ),
        ("O_ID", "LS114", "table 'orders' has no column 'O_ID'"),
        ("zzz", "LS114", "its columns: o_id, o_key"),
        ("emb", "LS115", "column 'emb' of table 'orders' cannot have statistics: arrays cannot be"),
        ("a.b", "LS115", "cannot have statistics: a name with a dot cannot be stored"),
        ("", "LS115", "cannot have statistics: a column without a name cannot be stored"),
    ],
)
def test_a_name_must_be_a_column_that_can_have_statistics(
    name: str, code: str, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(rule(name))
    assert (caught.value.code, caught.value.location) == (code, PLACE)
    assert expected in str(caught.value)


def test_excluding_a_missing_name_is_an_error() -> None:
    with pytest.raises(SpecError, match="has no column 'pirce'"):
        resolve(exclude=("pirce",))
    assert resolve(exclude=("emb",)).skipped[0][0] == "a.b"


NAMES = ["o_id", "o_key", "price", "day"]
texts = st.sampled_from([*NAMES, "*", "o_*", "*y", "zz*"])


@given(
    st.lists(texts, min_size=1, max_size=4),
    st.lists(texts, max_size=2),
    st.permutations(SCHEMA[:4]),
)
def test_names_are_in_the_order_of_the_schema_and_never_excluded(
    include: list[str], exclude: list[str], available: list[AvailableColumn]
) -> None:
    selection = ColumnSelection(False, (rule(*include),), patterns(*exclude))
    names = selection.resolve(available, "t").names
    order = [column.name for column in available]
    assert list(names) == [name for name in order if name in names]
    assert not set(names) & set(exclude)
    assert set(include) & set(NAMES) <= set(names) | set(order) - set(
        ColumnSelection(True, (), patterns(*exclude)).resolve(available, "t").names
    )
