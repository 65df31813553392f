"""Near-duplicates in the YAML: values, defaults, and one located error for each fault."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.duplicates import Order
from lancestat.spec.graph import node_dependencies
from lancestat.spec.model import Duplicates
from tests.spec.conftest import Load

WHOLE = """\
tables:
  - {name: products, uri: products.lance}
  - {name: pairs, uri: pairs.lance}
duplicates:
  - name: same
    table: products
    vector: emb
    where: price > 0
    on: [tenant, shop]
    metric: cosine
    max_distance: 0.02
    max_pairs: 7
    keep: {order_by: [updated desc nulls first, id]}
    select: [id]
    output: {lance: same.lance, keep: 7d}
    pairs: {lance: pairs.lance}
  - {name: alike, lance: x.lance, vector: v, max_distance: 1, output: {lance: wh/alike.lance}}
"""


def test_values_and_defaults(load: Load) -> None:
    spec = load(WHOLE)
    same, alike = spec.duplicates
    assert (same.table, same.uri, same.refs) == ("products", None, ("products",))
    assert (same.vector, same.where, same.on) == ("emb", "price > 0", ("tenant", "shop"))
    assert (same.metric, same.max_distance, same.max_pairs) == ("cosine", 0.02, 7)
    assert (same.select, same.keep) == (("id",), timedelta(days=7))
    assert [Order.parse(text) for text in same.order_by] == [
        Order("updated", is_descending=True, nulls_first=True),
        Order("id"),
    ]
    assert same.at("keep.order_by.1").line == 13
    assert (alike.metric, alike.mode, alike.on, alike.select) == ("l2", "exact", (), None)
    root = str(spec.root)
    assert alike.pairs_place == f"{root}/wh/.alike.lance.pairs"
    assert same.pairs_place == f"{root}/pairs.lance"


def test_the_join_that_finds_pairs_is_one_of_the_table_with_itself(load: Load) -> None:
    same, alike = load(WHOLE).duplicates
    join = same.pairs_join("id")
    assert join.left == join.right
    assert (join.k, join.pairs, join.max_distance) == ("all", "unordered", 0.02)
    assert join.on == (("tenant", "tenant"), ("shop", "shop"))
    assert join.left.select == ("id",)
    assert join.output_uri == same.pairs_place
    assert alike.pairs_join().left.format == "lance"


def test_tables_over_the_result_and_over_the_pairs_read_the_node(load: Load) -> None:
    reads = node_dependencies(load(WHOLE).nodes)
    assert reads == {"products": (), "pairs": ("same",), "same": ("products",), "alike": ()}


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("a", Order("a")),
        ("a asc", Order("a")),
        ("a  DESC", Order("a", is_descending=True)),
        ("a nulls first", Order("a", nulls_first=True)),
        ("a b desc NULLS LAST ", Order("a b", is_descending=True)),
        ("desc", Order("desc")),
        ("a downwards", Order("a downwards")),
    ],
)
def test_an_order_is_a_column_a_direction_and_where_nulls_come(text: str, order: Order) -> None:
    assert Order.parse(text) == order


NODE = "{name: s, lance: t.lance, vector: v, max_distance: 0.1, output: {lance: o}%s}"
FAULTS = {
    "no_distance": ("{name: s, lance: t, vector: v, output: {lance: o}}", "max_distance"),
    "no_table": ("{name: s, vector: v, max_distance: 1, output: {lance: o}}", "table"),
    "two_tables": (NODE % ", table: t", "table"),
    "no_output": ("{name: s, lance: t, vector: v, max_distance: 1}", "output"),
    "output_without_a_place": (
        "{name: s, lance: t, vector: v, max_distance: 1, output: {keep: 3}}",
        "lance",
    ),
    "negative": (NODE.replace("0.1", "-1") % "", "must be 0 or more"),
    "approx_by_nothing": (NODE % ", mode: approx", "needs 'approx'"),
    "exact_by_lists": (NODE % ", approx: {nprobes: 3}", "needs 'mode: approx'"),
    "approx_by_two": (
        NODE % ", mode: approx, approx: {nprobes: 3, recall: 0.9}",
        "'recall'",
    ),
    "one_place": (NODE % ", pairs: {lance: o/}", "the same place"),
    "no_order": (NODE % ", keep: {order_by: []}", "order_by"),
    "no_keep": (NODE % ", keep: {}", "keep"),
    "unknown_key": (NODE % ", k: all", "unknown key 'k'"),
    "unknown_table": ("{name: s, table: t, vector: v, max_distance: 1, output: {lance: o}}", "'t'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_one_located_error(name: str, load: Load) -> None:
    item, words = FAULTS[name]
    with pytest.raises(InvalidProject) as refused:
        load(f"duplicates:\n  - {item}\n")
    [error] = refused.value.errors
    assert error.location is not None and error.location.line == 2
    assert words in error.message


def test_an_output_of_other_keys_has_no_location(load: Load) -> None:
    item = "{name: s, lance: t, vector: v, max_distance: 1, output: {uri: o}}"
    with pytest.raises(InvalidProject) as refused:
        load(f"duplicates:\n  - {item}\n")
    assert [error.message for error in refused.value.errors] == [
        "missing key 'lance' in 'output' of duplicates node 's'",
        "unknown key 'uri' in 'output' of duplicates node 's'",
    ]


@pytest.mark.parametrize("place", ["o", "p", "/o"])
def test_no_other_node_writes_to_its_places(place: str, load: Load) -> None:
    node = NODE % ", pairs: {lance: p}"
    other = (
        "{name: j, left: {lance: l, vector: v}, right: {lance: l, vector: v}, k: 1, "
        f"output: {{lance: {place}}}}}"
    )
    text = f"duplicates:\n  - {node}\nknn_joins:\n  - {other}\n"
    if place == "/o":
        assert isinstance(load(text).nodes[0], Duplicates)
        return
    with pytest.raises(InvalidProject, match="write the same output"):
        load(text)


@pytest.mark.parametrize(
    ("more", "other", "words"),
    [
        ("pairs: {lance: o/p}", None, "'output' and 'pairs' of duplicates node 's' lie inside"),
        ("pairs: {lance: p}", "p/x", "the output of knn join 'j' lies inside the output of dup"),
        ("keep: {order_by: [id]}", ".o.pairs/x", "lies inside the output of duplicates node 's'"),
        ("pairs: {lance: x/p}", "x", "of duplicates node 's' lies inside the output of knn join"),
    ],
)
def test_places_do_not_lie_inside_one_another(
    more: str, other: str | None, words: str, load: Load
) -> None:
    text = f"duplicates:\n  - {NODE % f', {more}'}\n"
    if other is not None:
        side = "{lance: l, vector: v}"
        output = f"output: {{lance: {other}}}"
        text += f"knn_joins:\n  - {{name: j, left: {side}, right: {side}, k: 1, {output}}}\n"
    with pytest.raises(InvalidProject) as refused:
        load(text)
    [error] = refused.value.errors
    assert (error.code, words in error.message) == ("LS112", True), error
