"""Sources in the YAML, as far as no catalog is asked."""

from __future__ import annotations

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.catalog import TableName
from lancestat.spec.model import CommonValues, Publish, Source
from tests.discovery.conftest import Write


def source(write: Write, text: str) -> Source:
    [one] = write(f"sources:\n  - {text}\n").spec.sources
    return one


@pytest.mark.parametrize(
    ("patterns", "matching"),
    [
        ("", {"orders", "sales.orders", "sales.orders_tmp", "sales.eu.orders", "crm.customers"}),
        ('include: ["sales.*"]', {"sales.orders", "sales.orders_tmp", "sales.eu.orders"}),
        ('include: [crm.customers], exclude: ["*_tmp"]', {"crm.customers"}),
        ('exclude: ["*_tmp", "crm.*"]', {"orders", "sales.orders", "sales.eu.orders"}),
        ('include: ["sales.order?"]', {"sales.orders"}),
        ('include: ["sales.[o]*"]', set()),
        ('include: ["SALES.*"]', set()),
    ],
)
def test_patterns_are_of_whole_names(write: Write, patterns: str, matching: set[str]) -> None:
    declared = source(write, f"{{catalog: lake, {patterns}}}")
    names = ["orders", "sales.orders", "sales.orders_tmp", "sales.eu.orders", "crm.customers"]
    matched = {
        name for name in names if declared.matches(TableName("lake", tuple(name.split("."))))
    }
    assert matched == matching
    assert not declared.matches(TableName("other", ("sales", "orders")))


@pytest.mark.parametrize(
    ("name", "identifier", "node"),
    [
        (None, ("orders",), "orders"),
        (None, ("sales", "eu", "orders"), "sales_eu_orders"),
        ("{{ namespace }}_{{ table }}", ("sales", "orders"), "sales_orders"),
        ("{{ catalog }}-{{ table | lower }}", ("Orders",), "lake-orders"),
        ("{{ var('prefix') }}_{{ table | replace('.', '_') }}", ("a.b",), "x_a_b"),
    ],
)
def test_names_are_rendered_for_each_table(
    write: Write, name: str | None, identifier: tuple[str, ...], node: str
) -> None:
    keys = "" if name is None else f'\n    name: "{name}"'
    declared = write(
        f"sources:\n  - catalog: lake{keys}\n",
        "name: shop\nvars: {prefix: x}\ntargets: {dev: {catalogs: "
        "{lake: {impl: dir, properties: {root: lake}}}}}\n",
    ).spec.sources[0]
    assert declared.node_name(TableName("lake", identifier)) == node


def test_the_defaults_are_those_of_tables(write: Write) -> None:
    project = write(
        "policies: [{name: tolerant, allow.stale: true}]\n"
        "column_sets: [{name: ids, include: ['*_id']}]\n"
        "sources:\n"
        "  - catalog: lake\n"
        "    defaults: {tags: [nightly], policy: tolerant, columns: {set: ids}, publish: none,\n"
        "               owner: a, histogram: true, freshness: {warn_after: 1d},\n"
        "               common_values: {limit: 10, columns: [kind]}}\n"
    )
    node = project.spec.sources[0].node("orders", TableName("lake", ("orders",)))
    assert node.tags == ("nightly",) and node.owner == "a" and node.histogram
    assert node.policy.name == "tolerant" and node.policy.allow_stale is True
    assert node.publish is Publish.NONE and not node.columns.all
    assert node.freshness is not None and node.source == "lake"
    assert node.common_values == CommonValues(10, ("kind",))
    assert not list(node.named_columns), "not every table of a source has all that it names"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{catalog: laek}", "the target has no catalog 'laek'"),
        ("{include: ['*']}", "catalog"),
        ("{catalog: lake, uri: ./x}", "catalog"),
        ("{catalog: lake, include: ['sales..orders']}", "a pattern of table names"),
        ("{catalog: lake, include: []}", "must not be empty"),
        ("{catalog: lake, name: '{{ tabel }}'}", "'tabel' is undefined"),
        ("{catalog: lake, name: \"{{ env_var('HOME') }}_{{ table }}\"}", "environment"),
        ("{catalog: lake, defaults: {policy: nope}}", "unknown policy 'nope'"),
        ("{catalog: lake, defaults: {uri: x}}", "unknown key 'uri'"),
        ("{catalog: lake, inclde: ['*']}", "did you mean 'include'?"),
    ],
)
def test_wrong_sources_are_refused_offline(write: Write, text: str, said: str) -> None:
    with pytest.raises(InvalidProject) as refused:
        write(f"sources:\n  - {text}\n")
    assert said in str(refused.value)
    assert "specs/sources.yml:2:" in str(refused.value)
