"""A digest depends only on the definition of a node."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancestat.errors import Location
from lancestat.spec.load import load_project
from lancestat.spec.model import (
    ColumnPattern,
    ColumnRule,
    ColumnSelection,
    CommonValues,
    Duplicates,
    Freshness,
    KnnJoin,
    KnnSide,
    Node,
    Policy,
    Publish,
    Reference,
    Refresh,
    StaleBounds,
    Table,
    node_digest,
)
from tests.conftest import Golden
from tests.spec.conftest import PROJECT, Load, write

PLACE = Location("a.yml", 1, 1)
TABLE = Table("t", "/wh/t.lance", PLACE)
SIDE = KnnSide("v", ("a", "b"), table="q", refs=("q",))
OUTPUT: Any = {"output_format": "lance", "output_uri": "/wh/o", "location": PLACE}
SAME = Duplicates("s", vector="v", max_distance=0.1, table="q", output_uri="/wh/o", location=PLACE)
JOIN = KnnJoin("j", SIDE, replace(SIDE, table="p", refs=("p",)), 10, **OUTPUT)


@pytest.mark.parametrize(
    "same",
    [
        replace(TABLE, name="other"),
        replace(TABLE, location=Location("b.yml", 9, 9)),
        replace(TABLE, description="d", tags=("x",), owner="o", priority=1),
        replace(TABLE, freshness=Freshness(timedelta(1))),
        # Nothing is kept for a reference of one column.
        replace(TABLE, references=(Reference(("a",), "t", ("b",)),)),
        replace(TABLE, policy=Policy("strict", "None.", False, Refresh.ALWAYS)),
    ],
)
def test_names_uris_and_descriptions_do_not_affect_the_digest(same: Node) -> None:
    assert node_digest(same) == node_digest(TABLE)


def test_orders_that_mean_nothing_do_not_affect_the_digest() -> None:
    declared = replace(
        TABLE,
        groups=(("a", "b"), ("b", "c", "d")),
        keys=(("a", "e"), ("f",)),
        references=(Reference(("a", "b"), "t", ("c", "d")), Reference(("c", "b"), "t", ("c", "d"))),
        common_values=CommonValues(columns=("a", "b"), show=True),
    )
    other = replace(
        declared,
        groups=(("c", "b", "d"), ("b", "a")),
        keys=(("f",), ("e", "a")),
        references=(Reference(("b", "c"), "u", ("d", "c")), Reference(("b", "a"), "t", ("d", "c"))),
        common_values=CommonValues(columns=("b", "a"), show=False),
    )
    assert node_digest(other) == node_digest(declared)


def pattern(*texts: str) -> tuple[ColumnPattern, ...]:
    return tuple(ColumnPattern(text) for text in texts)


TABLES = [
    TABLE,
    replace(TABLE, uri="/wh/u.lance"),
    replace(TABLE, publish=Publish.NONE),
    replace(TABLE, histogram=True),
    replace(TABLE, groups=(("a", "b"),)),
    replace(TABLE, groups=(("a", "b"), ("a", "c"))),
    replace(TABLE, keys=(("a", "b"),)),
    replace(TABLE, keys=(("a",),)),
    replace(TABLE, references=(Reference(("a", "b"), "t", ("c", "d")),)),
    replace(TABLE, common_values=CommonValues()),
    replace(TABLE, common_values=CommonValues(limit=50)),
    replace(TABLE, common_values=CommonValues(columns=("a",))),
    replace(TABLE, columns=ColumnSelection(True, (), pattern("a"))),
    replace(TABLE, columns=ColumnSelection(False, (ColumnRule(pattern("a")),))),
    replace(TABLE, columns=ColumnSelection(False, (ColumnRule(pattern("a", "b")),))),
    replace(TABLE, columns=ColumnSelection(False, (ColumnRule(pattern("a"), pattern("b")),))),
    replace(
        TABLE,
        columns=ColumnSelection(False, (ColumnRule(pattern("a"), (), frozenset(["integer"])),)),
    ),
    replace(TABLE, policy=Policy(allow_stale=True)),
    replace(TABLE, policy=Policy(refresh=Refresh.WHEN_STALE)),
    replace(TABLE, policy=Policy(allow_stale=StaleBounds(max_versions=1))),
    replace(TABLE, policy=Policy(allow_stale=StaleBounds(max_age=timedelta(1)))),
    replace(TABLE, policy=Policy(allow_stale=StaleBounds(max_changed_rows=1.0))),
]
OTHER_SIDES = [
    replace(SIDE, vector="w"),
    replace(SIDE, select=("b", "a")),
    replace(SIDE, select=()),
    replace(SIDE, select=None),
    replace(SIDE, table="r"),
    replace(SIDE, where="a < 1"),
    replace(SIDE, where="a < 2"),
    replace(SIDE, table=None, sql="select 1"),
    replace(SIDE, table=None, format="csv", uri="/x", options={"a": "1"}),
    replace(SIDE, table=None, format="csv", uri="/x", options={"a": "2"}),
    replace(SIDE, table=None, format="lance", uri="/x"),
]
JOINS = [
    JOIN,
    *(replace(JOIN, left=side) for side in OTHER_SIDES),
    *(replace(JOIN, right=side) for side in OTHER_SIDES),
    replace(JOIN, k=11),
    replace(JOIN, k="all"),
    replace(JOIN, max_pairs=5),
    replace(JOIN, output_format="parquet"),
    replace(JOIN, output_uri="/wh/o2"),
    replace(JOIN, metric="dot"),
    replace(JOIN, mode="approx", nprobes=5),
    replace(JOIN, mode="approx", recall=0.5),
    replace(JOIN, join="left_outer"),
    replace(JOIN, min_right_rows=1),
    replace(JOIN, rank=True),
    replace(JOIN, max_distance=0.3),
    replace(JOIN, exclude_self=True),
    replace(JOIN, pairs="unordered"),
    replace(JOIN, on=(("a", "a"),)),
    replace(JOIN, on=(("a", "b"),)),
]
DUPLICATES = [
    SAME,
    replace(SAME, table=None, uri="/x"),
    replace(SAME, table="r"),
    replace(SAME, vector="w"),
    replace(SAME, max_distance=0.2),
    replace(SAME, where="a < 1"),
    replace(SAME, on=("a",)),
    replace(SAME, metric="dot"),
    replace(SAME, mode="approx", recall=0.5),
    replace(SAME, mode="approx", nprobes=5),
    replace(SAME, max_pairs=5),
    replace(SAME, order_by=("a",)),
    replace(SAME, order_by=("a desc",)),
    replace(SAME, select=("a",)),
    replace(SAME, select=()),
    replace(SAME, output_uri="/wh/o2"),
    replace(SAME, pairs_uri="/wh/p"),
]


def test_every_change_of_the_definition_changes_the_digest() -> None:
    nodes: list[Node] = [*TABLES, *JOINS, *DUPLICATES]
    assert len({node_digest(node) for node in nodes}) == len(nodes)


def test_every_field_of_the_model_is_tested() -> None:
    remarks = {
        "name",
        "location",
        "description",
        "tags",
        "owner",
        "priority",
        "freshness",
        "expect",
        "monitors",
        "show_values",
    }
    remarks |= {
        "places",
        "storage_options",
        "declared",
        "source",
        "on_location",
        "self_location",
        "stands_for",
        "keep",
    }
    for varied, kinds in ((TABLES, Table), (JOINS, KnnJoin), (DUPLICATES, Duplicates)):
        for field in fields(kinds):
            values = {repr(getattr(node, field.name)) for node in varied}
            assert (len(values) > 1) is (field.name not in remarks), field.name


VARIANTS = """\
column_sets:
  - {name: keys, include: ["*_id", k], exclude: ["x*"], types: [date, integer]}
policies:
  - {name: lazy, description: d, allow.stale: {max_versions: 3, max_age: 36h}, refresh: when_stale}
tables:
  - {name: plain, uri: "s3://lake/plain"}
  - {name: remarks, uri: "s3://lake/r", description: d, tags: [b, a], owner: o, priority: 2}
  - {name: listed, uri: "s3://lake/l", columns: [b, "a*", b]}
  - {name: set, uri: "s3://lake/s", columns: {set: keys}}
  - {name: narrowed, uri: "s3://lake/n", columns: {set: keys, types: [date]}}
  - {name: union, uri: "s3://lake/u", columns: {set: keys, include: [y, x], exclude: [z]}}
  - {name: typed, uri: "s3://lake/t", columns: {types: [string, integer]}}
  - {name: except, uri: "s3://lake/e", columns: {exclude: ["z*"]}}
  - {name: named, uri: "s3://lake/p", policy: lazy}
  - {name: any, uri: "s3://lake/a", policy: {allow.stale: true}}
  - {name: share, uri: "s3://lake/h", policy: {allow.stale: {max_changed_rows: 5%}}}
  - {name: waits, uri: "s3://lake/w", policy: {refresh: when_stale}}
  - {name: own, uri: "s3://lake/o", publish: none}
  - {name: bars, uri: "s3://lake/b", histogram: true}
  - {name: young, uri: "s3://lake/y", freshness: {warn_after: 1m, error_after: 2d}}
knn_joins:
  - name: least
    left: {table: plain, vector: v}
    right: {table: set, vector: w}
    k: 5
    output: {lance: "s3://lake/j1"}
  - name: most
    description: d
    tags: [a]
    owner: o
    priority: 2
    left: {sql: "select v from {{ ref('plain') }}", vector: v, select: [b, a]}
    right: {format: csv, path: "s3://lake/csv", options: {sep: 1.10, header: true}, vector: w}
    k: 7
    metric: cosine
    mode: approx
    approx: {recall: 1}
    join: left_outer
    min_right_rows: 0
    rank: true
    output: {parquet: "s3://lake/j2"}
  - name: places
    left: {lance: "s3://lake/x", vector: v}
    right: {parquet: "s3://lake/y", vector: w, select: []}
    k: 1
    metric: dot
    mode: approx
    approx: {nprobes: 3}
    output: {lance: "s3://lake/j3"}
"""


def test_digests_are_those_of_earlier_releases(load: Load, golden: Golden) -> None:
    nodes = load(VARIANTS).nodes
    golden("spec/digests.txt", "".join(f"{node_digest(node)}  {node.name}\n" for node in nodes))


DECLARED: dict[str, Any] = {
    "policies": [
        {"name": "lazy", "allow.stale": {"max_versions": 20, "max_age": "24h"}, "refresh": "always"}
    ],
    "column_sets": [{"name": "s", "include": ["*_id", "k"], "exclude": ["x*"], "types": ["date"]}],
    "tables": [
        {"name": "a", "uri": "wh/a.lance", "policy": "lazy", "columns": {"set": "s"}},
        {
            "name": "b",
            "uri": "wh/b.lance",
            "policy": {"allow.stale": {"max_versions": 20, "max_age": "24h"}},
            "columns": {"include": ["p", "q"], "exclude": ["r"], "types": ["date", "float"]},
        },
    ],
    "knn_joins": [
        {
            "name": "j",
            "left": {"table": "a", "vector": "v", "select": ["x", "y"]},
            "right": {"format": "csv", "path": "p", "options": {"z": 1, "y": "2"}, "vector": "v"},
            "k": 5,
            "output": {"lance": "o"},
        }
    ],
}


class Written(yaml.SafeDumper):
    """Writes equal mappings and texts once and refers to them by alias."""


def rewritten(value: Any, generator: random.Random) -> Any:
    """The same meaning with keys, tables, patterns and types in another order."""
    if isinstance(value, dict):
        keys = list(value)
        generator.shuffle(keys)
        return {key: rewritten(value[key], generator) for key in keys}
    return [rewritten(item, generator) for item in value] if isinstance(value, list) else value


def inline(declared: dict[str, Any]) -> dict[str, Any]:
    """Policies and column sets written into the tables that name them."""
    tables = json.loads(json.dumps(declared["tables"]))
    policy = {k: v for k, v in declared["policies"][0].items() if k != "name"}
    for table in tables:
        if table["policy"] == "lazy":
            table["policy"] = policy
    return {**declared, "tables": tables, "policies": []}


STYLES: list[Callable[[Any], str]] = [
    lambda value: yaml.safe_dump(value, sort_keys=False),
    lambda value: yaml.safe_dump(value, sort_keys=True, default_flow_style=True),
    lambda value: yaml.safe_dump(value, default_style='"', sort_keys=False).replace(
        '!!int "', '!!int "'
    ),
    lambda value: json.dumps(value, indent=1),
    lambda value: "# comment\n\n" + yaml.safe_dump(value, indent=7, width=20),
]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.sampled_from(STYLES), st.booleans(), st.booleans())
def test_rewriting_the_yaml_keeps_every_digest(
    tmp_path: Path,
    generator: random.Random,
    style: Callable[[Any], str],
    use_inline: bool,
    use_aliases: bool,
) -> None:
    def digests(text: str) -> dict[str, str]:
        write(tmp_path, {"lancestat_project.yml": PROJECT, "specs/a.yml": text})
        return {node.name: node_digest(node) for node in load_project(tmp_path).nodes}

    expected = digests(yaml.safe_dump(DECLARED))
    declared = inline(DECLARED) if use_inline else DECLARED
    declared = rewritten(declared, generator)
    if use_aliases:
        bounds = declared["policies"][0]["allow.stale"] if declared["policies"] else None
        for table in declared["tables"]:
            if bounds and isinstance(table["policy"], dict):
                table["policy"]["allow.stale"] = bounds
    assert digests(style(declared)) == expected
