from __future__ import annotations

from collections.abc import Mapping

import pytest

from lancestat.errors import UsageError
from lancestat.spec.graph import select, select_on_either
from lancestat.spec.model import ProjectSpec
from tests.spec.conftest import Load


@pytest.fixture
def spec(load: Load) -> ProjectSpec:
    return load(
        {
            "specs/core.yml": """
                tables:
                  - {name: orders, uri: a, tags: [nightly, core]}
                  - {name: order_lines, uri: b, tags: [nightly]}
                  - {name: parts, uri: c}
                """,
            "specs/ml/knn.yml": """
                tables:
                  - {name: queries, uri: d, tags: [core]}
                  - {name: result, uri: out}
                knn_joins:
                  - name: near
                    tags: [ml]
                    left: {table: queries, vector: v}
                    right: {sql: "select * from {{ ref('parts') }}", vector: v}
                    k: 1
                    output: {lance: out}
                """,
        }
    )


STATES = {"orders": "same", "order_lines": "modified", "parts": "new", "near": "modified"}


def names(
    spec: ProjectSpec,
    selector: str | list[str] | None = None,
    exclude: str | list[str] | None = None,
    states: Mapping[str, str] = STATES,
) -> str:
    nodes = select(spec, selector, exclude, states=lambda: states)
    return " ".join(node.name for node in nodes)


ALL = "orders order_lines parts queries result near"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, ALL),
        ([], ALL),
        ("*", ALL),
        ("orders", "orders"),
        ("order*", "orders order_lines"),
        ("o?ders", "orders"),
        ("parts orders", "orders parts"),
        (["parts", "orders"], "orders parts"),
        ("tag:nightly", "orders order_lines"),
        ("tag:nightly,tag:core", "orders"),
        ("tag:nightly,tag:core parts", "orders parts"),
        ("state:new,tag:nightly", ""),
        ("path:specs/core.yml", "orders order_lines parts"),
        ("path:./specs/ml", "queries result near"),
        ("path:specs/ml/", "queries result near"),
        ("path:specs/*.yml", ALL),
        ("path:specs/ml/*", "queries result near"),
        ("kind:knn_join", "near"),
        ("kind:table,path:specs/ml", "queries result"),
        ("state:new", "parts queries result"),
        ("state:modified", "order_lines near"),
        ("state:modified,kind:table", "order_lines"),
        ("+near", "parts queries near"),
        ("near+", "result near"),
        ("+near+", "parts queries result near"),
        ("+result", "parts queries result near"),
        ("parts+", "parts result near"),
        ("+tag:ml,tag:core", "queries"),
        ("orders+", "orders"),
    ],
)
def test_selectors_select_the_expected_nodes(
    spec: ProjectSpec, selector: str | list[str] | None, expected: str
) -> None:
    assert names(spec, selector) == expected


@pytest.mark.parametrize(
    ("selector", "exclude", "expected"),
    [
        (None, "near", "orders order_lines parts queries result"),
        ("tag:core", "orders", "queries"),
        (None, ["tag:core", "+near"], "order_lines result"),
        (None, "zzz*", ALL),
        (None, "tag:zzz", ALL),
        (None, "path:zzz", ALL),
        (None, [], ALL),
        ("parts", "state:new", ""),
        ("state:new", "parts queries result", ""),
    ],
)
def test_excluded_nodes_are_not_selected(
    spec: ProjectSpec, selector: str | None, exclude: str | list[str], expected: str
) -> None:
    assert names(spec, selector, exclude) == expected


@pytest.mark.parametrize(
    ("selector", "message", "hint"),
    [
        ("ordes", "LS402  selector 'ordes' matches nothing", "did you mean 'orders'?"),
        ("Orders", "LS402  selector 'Orders' matches nothing", "did you mean 'orders'?"),
        ("zzz", "matches nothing", "known: orders, order_lines, parts, queries, result, near"),
        ("zzz*", "selector 'zzz*' matches nothing", "known: "),
        ("tag:nihgtly", "matches nothing", "did you mean 'tag:nightly'?"),
        ("path:specs/cor.yml", "matches nothing", "did you mean 'path:specs/core.yml'?"),
        ("tag:ml,tag:core", "LS402  no node is in all of 'tag:ml' and 'tag:core'", "the union"),
        ("orders,parts", "no node is in all of", "a comma is an intersection"),
        ("orders tag:ml,tag:core", "no node is in all of 'tag:ml' and 'tag:core'", "by a space"),
        ("orders,tag:mll", "selector 'tag:mll' matches nothing", "did you mean 'tag:ml'?"),
        ("kind:tabel", "must name one of table, knn_join", "did you mean 'table'?"),
        ("state:same", "must name one of new, modified", ""),
        ("tga:x", "LS401  unknown selector 'tga:x'; methods are tag:,", "did you mean 'tag'?"),
        ("", "an empty selector", ""),
        ("  ", "an empty selector", ""),
        ("+", "has an empty part", ""),
        ("++", "has an empty part", ""),
        ("orders,", "has an empty part", "separate them by a space"),
        ("orders, parts", "selector 'orders,' has an empty part", "a comma is an intersection"),
        (",", "has an empty part", "a comma is an intersection"),
    ],
)
def test_wrong_selectors_are_errors(
    spec: ProjectSpec, selector: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        names(spec, selector)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("exclude", ["ordes", "kind:tabel", "tga:x", "", "a,"])
def test_wrong_exclusions_are_errors(spec: ProjectSpec, exclude: str) -> None:
    with pytest.raises(UsageError):
        names(spec, None, exclude)


def test_states_are_read_only_when_selectors_need_them(spec: ProjectSpec) -> None:
    def unwanted() -> Mapping[str, str]:
        raise AssertionError("the state was read")

    assert len(select(spec, "tag:core", "orders", states=unwanted)) == 1
    with pytest.raises(UsageError, match="'state:new' cannot be used here"):
        select(spec, "state:new")


@pytest.mark.parametrize(("selector", "exclude"), [("orders", "*"), (None, "*"), ("near", "near")])
def test_an_exclusion_that_leaves_nothing_is_an_error(
    spec: ProjectSpec, selector: str | None, exclude: str
) -> None:
    with pytest.raises(UsageError, match="everything that is selected is excluded"):
        names(spec, selector, exclude)


def test_a_kind_without_nodes_is_an_error(load: Load) -> None:
    spec = load("tables: [{name: t, uri: u}]")
    with pytest.raises(UsageError, match="'kind:knn_join' matches nothing") as caught:
        select(spec, "kind:knn_join")
    assert caught.value.hint == "known: kind:table"
    assert select(spec, None, "kind:knn_join") == spec.nodes


def test_a_change_is_selected_by_the_nodes_of_both_sides(load: Load) -> None:
    old = load("tables: [{name: kept, uri: a}, {name: gone, uri: b, tags: [core]}]")
    new = load("tables: [{name: kept, uri: a}, {name: added, uri: c}]")
    sides = [(old, dict), (new, dict)]
    assert select_on_either(sides, "gone added", None) == {"gone", "added"}
    assert select_on_either(sides, "tag:core", None) == {"gone"}
    assert select_on_either(sides, None, "gone") == {"kept", "added"}
    with pytest.raises(UsageError, match="'adde' matches nothing") as caught:
        select_on_either(sides, "adde", None)
    assert caught.value.hint == "did you mean 'added'?"
    with pytest.raises(UsageError, match="no node is in all of 'gone' and 'added'"):
        select_on_either(sides, "gone,added", None)
