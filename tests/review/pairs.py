"""Pairs of small projects: one for each risk, and for each change that is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lancestat.nodes import NODE_TYPES
from lancestat.review import diff
from lancestat.review.values import Risk

review = partial(diff.review, types=NODE_TYPES)

Files = str | Mapping[str, str]

ORDERS = {"o_key": "bigint", "o_price": "double", "o_text": "string", "o_vector": "vector"}
PARTS = {"p_key": "bigint", "p_name": "string", "p_vector": "vector"}

# What there is to open. `gone` is not.
DATASETS = {
    "s3://lake/orders.lance": ORDERS,
    "s3://lake/orders_v2.lance": {**ORDERS, "o_new": "bigint"},
    "s3://lake/parts.lance": PARTS,
    "s3://lake/queries.lance": {"q_key": "bigint", "q_vector": "vector"},
}


@dataclass(frozen=True)
class Pair:
    """BASE and HEAD, and the risks of their differences."""

    base: Files
    head: Files
    risks: frozenset[Risk] = frozenset()


def _table(*lines: str, name: str = "orders", uri: str = "orders") -> str:
    more = "".join(f"    {line}\n" for line in lines)
    return f"tables:\n  - name: {name}\n    uri: \"{{{{ var('lake') }}}}/{uri}.lance\"\n{more}"


def _join(*lines: str, k: int = 5, output: str = "like", name: str = "like") -> str:
    more = "".join(f"    {line}\n" for line in lines)
    return (
        f"knn_joins:\n  - name: {name}\n"
        "    left: {lance: s3://lake/queries.lance, vector: q_vector, select: [q_key]}\n"
        "    right: {lance: s3://lake/parts.lance, vector: p_vector, select: [p_key]}\n"
        f"    k: {k}\n    output: {{lance: s3://lake/{output}.lance}}\n{more}"
    )


def _query(*conditions: str) -> str:
    where = "\n        ".join(conditions)
    return f"""\
knn_joins:
  - name: like
    left: {{lance: s3://lake/queries.lance, vector: q_vector}}
    right:
      vector: p_vector
      sql: |-
        select p_key, p_vector
        from {{{{ ref('orders') }}}}
        where {where}
    k: 3
    output: {{lance: s3://lake/like.lance}}
"""


_LISTED = "columns: [o_key, o_price]"
_TOLERANT = """\
policies:
  - name: tolerant
    allow.stale: {max_versions: 20, max_age: 24h, max_changed_rows: 5%}
    refresh: when_stale
"""
_STRICT = _table("policy: {allow.stale: false}", _LISTED)

_GROUPS = "groups: [[o_price, o_text], [o_key, o_text]]"
_RELATIONS = (
    _GROUPS,
    "keys: [[o_key]]",
    "references: [{columns: [o_key], table: orders, to: [o_price]}]",
)

RISKY = {
    "staleness_loosened": Pair(
        _STRICT,
        _table("policy: tolerant", _LISTED) + _TOLERANT,
        frozenset({Risk.STALENESS_LOOSENED}),
    ),
    "staleness_tightened": Pair(
        _table("policy: {allow.stale: true}", _LISTED),
        _STRICT,
        frozenset({Risk.STALENESS_TIGHTENED}),
    ),
    "staleness_mixed": Pair(
        _table("policy: {allow.stale: {max_versions: 20}}", _LISTED),
        _table("policy: {allow.stale: {max_age: 1h}}", _LISTED),
        frozenset({Risk.STALENESS_LOOSENED, Risk.STALENESS_TIGHTENED}),
    ),
    "staleness_by_refresh": Pair(
        _table("policy: {allow.stale: true}", _LISTED),
        _table("policy: {allow.stale: true, refresh: when_stale}", _LISTED),
        frozenset({Risk.STALENESS_LOOSENED}),
    ),
    "coverage_lost": Pair(
        _table(), _table("columns: {exclude: [o_text]}"), frozenset({Risk.COVERAGE_LOST})
    ),
    "coverage_lost_unopened": Pair(
        _table(uri="gone"),
        _table("columns: {exclude: [o_text]}", uri="gone"),
        frozenset({Risk.COVERAGE_LOST}),
    ),
    "coverage_lost_histogram": Pair(
        _table("histogram: true"), _table(), frozenset({Risk.COVERAGE_LOST})
    ),
    "relations_lost": Pair(
        _table(*_RELATIONS, "common_values: {limit: 50, columns: [o_key, o_text]}"),
        _table("keys: [[o_text, o_price]]", "common_values: {limit: 20, show: false}"),
        frozenset({Risk.COVERAGE_LOST, Risk.COST_INCREASED}),
    ),
    "common_values_lost": Pair(
        _table("common_values: 50"), _table(), frozenset({Risk.COVERAGE_LOST})
    ),
    "common_values_shown": Pair(
        _table("common_values: {show: false}"),
        _table("common_values: 100"),
        frozenset({Risk.VALUES_SHOWN}),
    ),
    "common_values_of_more": Pair(
        _table("common_values: {limit: 50, columns: [o_key]}"),
        _table("common_values: {limit: 20, columns: [o_price, o_key]}"),
        frozenset({Risk.COVERAGE_LOST, Risk.VALUES_SHOWN}),
    ),
    "common_values_of_other_groups": Pair(
        _table(_GROUPS, "common_values: {columns: [o_key], groups: [[o_key, o_text]]}"),
        _table(_GROUPS, "common_values: {columns: [o_key], groups: [[o_text, o_price]]}"),
        frozenset({Risk.COVERAGE_LOST, Risk.VALUES_SHOWN}),
    ),
    "relations_unopened": Pair(
        _table(uri="gone"),
        _table("groups: [[o_key, o_text]]", uri="gone"),
        frozenset({Risk.COST_INCREASED}),
    ),
    "removed": Pair(
        {"specs/a.yml": _table(), "specs/b.yml": _join()},
        {"specs/a.yml": "tables: []"},
        frozenset({Risk.COVERAGE_LOST}),
    ),
    "values_shown": Pair(_table("show_values: false"), _table(), frozenset({Risk.VALUES_SHOWN})),
    "publish_changed": Pair(_table(), _table("publish: none"), frozenset({Risk.PUBLISH_CHANGED})),
    "published": Pair(_table("publish: none"), _table(), frozenset({Risk.PUBLISH_CHANGED})),
    "dataset_moved": Pair(
        _table(_LISTED),
        _table(_LISTED, uri="orders_v2"),
        frozenset({Risk.DATASET_MOVED, Risk.COST_INCREASED}),
    ),
    "output_moved": Pair(
        _join(), _join(output="alike"), frozenset({Risk.OUTPUT_MOVED, Risk.COST_INCREASED})
    ),
    "join_meaning_changed": Pair(
        _join(),
        _join("metric: cosine", k=7),
        frozenset({Risk.JOIN_MEANING_CHANGED, Risk.COST_INCREASED}),
    ),
    "query_changed": Pair(
        _table(_LISTED) + _query("p_size < 20"),
        _table(_LISTED) + _query("p_size < 30", "and p_name like '%`|<b>@team%'"),
        frozenset({Risk.JOIN_MEANING_CHANGED, Risk.COST_INCREASED}),
    ),
    "join_threshold": Pair(_join(), _join("min_right_rows: 500"), frozenset({Risk.COST_INCREASED})),
    "cost_increased": Pair(
        _table(_LISTED), _table("columns: [o_*]"), frozenset({Risk.COST_INCREASED})
    ),
    "cost_of_histograms": Pair(
        _table(_LISTED), _table(_LISTED, "histogram: true"), frozenset({Risk.COST_INCREASED})
    ),
    "cost_unknown": Pair(
        _table("columns: [a]", uri="gone"),
        _table("columns: [a, b_*]", uri="gone"),
        frozenset({Risk.COST_INCREASED}),
    ),
    "effect_unknown": Pair(
        "sources: [{uri: gone}]\n",
        "sources: [{uri: gone, exclude: ['*_tmp']}]\n",
        frozenset({Risk.EFFECT_UNKNOWN}),
    ),
    "added": Pair(
        {"specs/a.yml": "tables: []"},
        {
            "specs/a.yml": _table("owner: sales@example.com", "tags: [nightly]"),
            "specs/b.yml": _join("description: What is alike."),
        },
        frozenset({Risk.COST_INCREASED}),
    ),
}

HARMLESS = {
    "owner_and_description": Pair(
        _table("owner: sales@example.com", "description: One row per order."),
        _table("owner: data@example.com", "description: >-\n      Orders,\n      one row each."),
    ),
    "values_hidden": Pair(_table(), _table("show_values: false")),
    "relations_reordered": Pair(
        _table(*_RELATIONS),
        _table("groups: [[o_text, o_key], [o_text, o_price]]", *_RELATIONS[1:]),
    ),
    "freshness": Pair(_table(), _table("freshness: {warn_after: 12h, error_after: 24h}")),
    "monitors": Pair(
        _table("monitors: [schema_changes, {column_anomalies: [o_key]}]"),
        _table(
            "monitors: [{schema_changes: {severity: error}}, {column_anomalies: {columns: "
            "[o_key, o_text], training_period: 7d, anomaly_sensitivity: 4}}]"
        ),
    ),
    "renamed": Pair(
        {"specs/a.yml": _table(_LISTED), "specs/b.yml": _table(name="parts", uri="parts")},
        {
            "specs/a.yml": _table(_LISTED, name="sales"),
            "specs/b.yml": _table(name="parts", uri="parts"),
        },
    ),
    "query_read_by": Pair(
        {"specs/a.yml": _table("tags: [a]"), "specs/b.yml": _join("tags: [b, a]")},
        {"specs/a.yml": _table("tags: [b]"), "specs/b.yml": _join("tags: [a, b, c]")},
    ),
    "settings": Pair(
        {},
        {
            "lancestat_project.yml": "name: shop\nvars: {lake: 's3://lake'}\ntargets:\n"
            "  dev: {state: s3://lake/state, storage_options: {aws_secret_access_key: hunter2}}\n"
        },
    ),
    "column_that_is_not_there": Pair(
        _table("columns: [o_key]"), _table("columns: [o_key, o_wrong]")
    ),
}

_INLINE = _table(
    "columns: {include: [o_key, o_price], types: [integer, float], exclude: [o_x*]}",
    "policy:",
    "  allow.stale: {max_versions: 20, max_age: 24h, max_changed_rows: 5%}",
    "  refresh: when_stale",
)
_NAMED = """\
column_sets:
  - {name: keys, include: [o_price, o_key], types: [float, integer], exclude: ["o_x*"]}
"""

NONE = {
    "formatting": Pair(
        _table("columns: [o_key, o_price]", "tags: [a, b]"),
        "# Orders.\ntables: [{uri: s3://lake/orders.lance, tags: ['b', 'a'],\n"
        '  "name": "orders", columns: [\'o_price\', "o_key"]}] # the end\n',
    ),
    "moved": Pair(
        {"specs/a.yml": _table() + _join()},
        {"specs/deep/b.yaml": _join(), "specs/c.yml": "# moved\n" + _table()},
    ),
    "inlined": Pair(
        _table("columns: {set: keys}", "policy: tolerant") + _TOLERANT + _NAMED, _INLINE
    ),
    "renamed_policy": Pair(
        _table("policy: tolerant") + _TOLERANT,
        _table("policy: loose") + _TOLERANT.replace("name: tolerant", "name: loose"),
    ),
    "anchors": Pair(
        _INLINE,
        _INLINE.replace("[o_key, o_price]", "&both [o_key, o_price]")
        + "column_sets:\n  - {name: unused, include: *both}\n",
    ),
    "defaults": Pair(
        _table() + _join(),
        _table(
            "columns: all",
            "publish: manifest",
            "histogram: false",
            "policy: {allow.stale: false, refresh: always}",
        )
        + _join("metric: l2", "mode: exact", "join: inner", "rank: false", "min_right_rows: 10000"),
    ),
    "units": Pair(
        _table("policy: {allow.stale: {max_age: 24h, max_changed_rows: 5%}}"),
        _table("policy: {allow.stale: {max_age: 1d, max_changed_rows: 0.05}}"),
    ),
    "variable": Pair(_table(), _table().replace("{{ var('lake') }}", "s3://lake")),
    "all": Pair(_table("columns: all"), _table('columns: ["*"]')),
}
