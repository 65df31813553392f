from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lancestat.errors import InvalidProject, UsageError
from lancestat.redact import Audience
from lancestat.spec.graph import dependencies
from lancestat.spec.load import load_project
from lancestat.spec.model import (
    ColumnSelection,
    CommonValues,
    Freshness,
    KnnJoin,
    NodeKind,
    Policy,
    Publish,
    Reference,
    Refresh,
    StaleBounds,
    Table,
)
from lancestat.spec.redaction import redacted_nodes
from tests.spec.conftest import PROJECT, REFERENCE_FOLDER, Load, reference_project, write

KNN = """\
knn_joins:
  - name: j
    left: {table: q, vector: v, select: [a]}
    right: {sql: "select * from {{ ref('p') }}", vector: w}
    k: 3
    output: {lance: out.lance}
tables:
  - {name: p, uri: p.lance}
  - {name: q, uri: q.lance}
"""


def table(load: Load, text: str) -> Table:
    (node,) = load("tables:\n  - " + text).nodes
    assert isinstance(node, Table)
    return node


def policy(load: Load, text: str) -> Policy:
    return table(load, f"{{name: t, uri: u, policy: {text}}}").policy


def columns(load: Load, text: str, sets: str = "") -> ColumnSelection:
    spec = load(f"tables:\n  - {{name: t, uri: u, columns: {text}}}\n{sets}")
    return spec.tables[0].columns


def test_a_table_by_default_has_all_columns_and_accepts_nothing_stale(
    load: Load, tmp_path: Path
) -> None:
    loaded = table(load, "{name: t, uri: wh/t.lance}")
    assert loaded.uri == str(tmp_path.resolve() / "wh/t.lance")
    assert loaded.columns == ColumnSelection()
    assert loaded.policy == Policy(None, None, False, Refresh.ALWAYS)
    assert loaded.publish is Publish.MANIFEST
    assert not loaded.histogram
    assert table(load, "{name: t, uri: wh/t.lance, histogram: true}").histogram
    assert loaded.kind is NodeKind.TABLE
    assert str(loaded.location) == "specs/shop.yml:2:12"


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("s3://b/t.lance", "s3://b/t.lance"),
        ("file:///x/t", "file:///x/t"),
        ("/abs/t.lance", "/abs/t.lance"),
        ("./a/../t.lance", "ROOT/t.lance"),
        ("{{ var('warehouse') }}/t", "ROOT/warehouse/t"),
        ("~/t", "HOME/t"),
    ],
)
def test_paths_start_at_the_project(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, resolved: str
) -> None:
    monkeypatch.setenv("HOME", "HOME")
    expected = resolved.replace("ROOT", str(tmp_path.resolve()))
    if written.startswith("~"):
        expected = str(tmp_path.resolve() / "HOME/t")
    assert table(load, f'{{name: t, uri: "{written}"}}').uri == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{allow.stale: true}", True),
        ("{allow.stale: {max_versions: 0}}", StaleBounds(max_versions=0)),
        ("{allow.stale: {max_age: 90s}}", StaleBounds(max_age=timedelta(seconds=90))),
        ("{allow.stale: {max_age: 30m}}", StaleBounds(max_age=timedelta(minutes=30))),
        ("{allow.stale: {max_age: 24h}}", StaleBounds(max_age=timedelta(hours=24))),
        ("{allow.stale: {max_age: 7d}}", StaleBounds(max_age=timedelta(days=7))),
        ("{allow.stale: {max_changed_rows: 5%}}", StaleBounds(max_changed_rows=0.05)),
        ("{allow.stale: {max_changed_rows: 0.25}}", StaleBounds(max_changed_rows=0.25)),
        ("{allow.stale: {max_changed_rows: 100.0%}}", StaleBounds(max_changed_rows=1.0)),
        (
            "{allow.stale: {max_versions: 20, max_age: 24h, max_changed_rows: 5%}}",
            StaleBounds(20, timedelta(days=1), 0.05),
        ),
    ],
)
def test_policies_may_be_inline(load: Load, text: str, expected: object) -> None:
    assert policy(load, text).allow_stale == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{warn_after: 12h}", Freshness(warn_after=timedelta(hours=12))),
        ("{error_after: 2d}", Freshness(error_after=timedelta(days=2))),
        ("{warn_after: 90m, error_after: 90m}", Freshness(*[timedelta(minutes=90)] * 2)),
    ],
)
def test_rows_may_have_to_be_fresh(load: Load, text: str, expected: Freshness) -> None:
    assert table(load, f"{{name: t, uri: u, freshness: {text}}}").freshness == expected
    assert table(load, "{name: t, uri: u}").freshness is None


RELATIONS = """\
tables:
  - name: t
    uri: u
    groups: [[a, b], [c, b, a]]
    keys: [[k], [b, a]]
    references:
      - {columns: [a], table: t, to: [k]}
      - {columns: [c, d], table: t, to: [a, b]}
    common_values: {columns: [a, "{{ env_var('COLUMN') }}"]}
"""


def test_columns_may_be_declared_together(load: Load) -> None:
    [declared] = load(RELATIONS, environment={"COLUMN": "b"}).tables
    assert declared.groups == (("a", "b"), ("c", "b", "a"))
    assert declared.keys == (("k",), ("b", "a"))
    assert declared.references[1] == Reference(("c", "d"), "t", ("a", "b"))
    assert declared.common_values == CommonValues(100, ("a", "b"), show=True)
    assert declared.joint_groups == (("a", "b"), ("c", "b", "a"), ("c", "d"))
    assert str(declared.at("references.1.to.0")) == "specs/shop.yml:8:42"
    for columns, is_covered in (("a", True), ("ab", True), ("ac", False), ("k", False)):
        assert declared.common_values.covers(columns) is is_covered
    plain = table(load, "{name: t, uri: u, common_values: 20}")
    assert plain.common_values == CommonValues(20)
    assert plain.common_values.covers(["anything"])
    assert (plain.groups, plain.keys, plain.references) == ((), (), ())


def test_a_table_of_some_columns_keeps_what_is_declared_of_them(load: Load) -> None:
    [declared] = load(RELATIONS, environment={"COLUMN": "b"}).tables
    some = declared.of_columns(("a", "b"))
    assert [pattern.text for pattern in some.columns.rules[0].include] == ["a", "b"]
    assert (some.groups, some.keys) == ((("a", "b"),), (("b", "a"),))
    assert some.references == declared.references[:1]
    assert some.common_values == declared.common_values
    assert declared.of_columns(("k",)).common_values is None


def test_names_of_columns_from_the_environment_are_not_public(load: Load) -> None:
    spec = load(
        RELATIONS.replace("[a, b]", "[a, \"{{ env_var('COLUMN') }}\"]", 1),
        environment={"COLUMN": "hidden"},
    )
    [shown] = redacted_nodes(spec, spec.nodes, Audience.PUBLIC)
    assert shown.groups[0] == ("a", "{{ env_var('COLUMN') }}")
    assert shown.common_values.columns == ("a", "{{ env_var('COLUMN') }}")
    assert shown.references == spec.tables[0].references
    assert "hidden" not in str(list(redacted_nodes(spec, spec.nodes, Audience.PUBLIC)))


def test_no_table_reads_those_that_it_refers_to(load: Load) -> None:
    spec = load(
        "tables:\n"
        "  - {name: a, uri: a, references: [{columns: [x], table: b, to: [k]}]}\n"
        "  - {name: b, uri: b, references: [{columns: [x], table: a, to: [k]}]}\n"
    )
    assert dependencies(spec) == {"a": (), "b": ()}


def test_policies_may_be_declared_in_another_file(load: Load) -> None:
    spec = load(
        {
            "specs/a.yml": "tables: [{name: t, uri: u, policy: lazy}]",
            "specs/sub/b.yaml": """
                policies:
                  - {name: lazy, allow.stale: true, refresh: when_stale, description: Slow.}
                """,
        }
    )
    assert spec.tables[0].policy == Policy("lazy", "Slow.", True, Refresh.WHEN_STALE)
    assert spec.policies == {"lazy": spec.tables[0].policy}


SET = "column_sets: [{name: s, include: ['*_id', c], exclude: [x_id], types: [integer, date]}]"


def rules(selection: ColumnSelection) -> list[tuple[list[str], list[str], list[str] | None]]:
    return [
        (
            [pattern.text for pattern in rule.include],
            [pattern.text for pattern in rule.exclude],
            None if rule.types is None else sorted(rule.types),
        )
        for rule in selection.rules
    ]


@pytest.mark.parametrize(
    ("text", "is_all", "expected"),
    [
        ("all", True, []),
        ("[a, 'b*']", False, [(["a", "b*"], [], None)]),
        ("{exclude: [a]}", True, []),
        ("{types: [integer]}", False, [(["*"], [], ["integer"])]),
        ("{include: [a], types: [integer]}", False, [(["a"], [], ["integer"])]),
        ("{set: s}", False, [(["*_id", "c"], ["x_id"], ["date", "integer"])]),
        (
            "{set: s, include: [a], types: [integer, string]}",
            False,
            [(["*_id", "c"], ["x_id"], ["integer"]), (["a"], [], ["integer", "string"])],
        ),
    ],
)
def test_columns_are_a_union_of_rules(
    load: Load, text: str, is_all: bool, expected: list[object]
) -> None:
    selection = columns(load, text, SET)
    assert selection.all is is_all
    assert rules(selection) == expected


def test_a_knn_join_is_loaded_with_all_keys(load: Load, tmp_path: Path) -> None:
    root = tmp_path.resolve()
    spec = load(
        """
        tables: [{name: q, uri: q.lance}]
        knn_joins:
          - name: j
            description: Near.
            tags: [v]
            owner: me
            left: {table: q, vector: v, select: [a, b]}
            right: {format: csv, path: d/x.csv, options: {header: true, sep: 1.10}, vector: w}
            k: "{{ var('k') }}"
            metric: cosine
            mode: approx
            approx: {recall: 0.95}
            join: left_outer
            min_right_rows: 5
            rank: true
            output: {parquet: s3://b/out}
        """
    )
    join = spec.node("j")
    assert isinstance(join, KnnJoin)
    assert (join.left.table, join.left.refs, join.left.select) == ("q", ("q",), ("a", "b"))
    assert (join.right.format, join.right.uri) == ("csv", str(root / "d/x.csv"))
    assert join.right.options == {"header": "true", "sep": "1.10"}
    assert (join.k, join.metric, join.mode, join.recall, join.nprobes) == (
        10, "cosine", "approx", 0.95, None,
    )  # fmt: skip
    assert (join.join, join.min_right_rows, join.rank) == ("left_outer", 5, True)
    assert join.right.select is None
    assert (join.output_format, join.output_uri) == ("parquet", "s3://b/out")
    assert (join.description, join.tags, join.owner) == ("Near.", ("v",), "me")


def test_dependencies_follow_tables_sql_and_outputs(load: Load) -> None:
    spec = load(
        KNN
        + """\
  - {name: result, uri: out.lance}
  - {name: alone, uri: alone.lance}
"""
    )
    assert dependencies(spec) == {"j": ("q", "p"), "p": (), "q": (), "result": ("j",), "alone": ()}


def test_nodes_are_in_the_order_of_files_and_places(load: Load) -> None:
    spec = load(
        {
            "specs/b.yml": "tables: [{name: z, uri: z}, {name: a, uri: a}]",
            "specs/a/x.yaml": "tables: [{name: m, uri: m}]",
            "specs/.hidden/x.yml": "tables: [{name: hidden, uri: m}]",
            "specs/.x.yml": "not a spec",
            "specs/notes.txt": "not a spec",
        }
    )
    assert [node.name for node in spec.nodes] == ["m", "z", "a"]


def test_targets_are_chosen_by_argument_then_default(load: Load, tmp_path: Path) -> None:
    project = """\
name: shop
default_target: dev
targets:
  dev: {}
  prod:
    spark: {master: "yarn", conf: {a: true, b: 2, c: 1.10, d: x, e: "{{ target.name }}"}}
    state: s3://b/state
    scratch: scratch
    storage_options: {aws_secret_access_key: "{{ env_var('SECRET') }}", allow_http: false}
"""
    dev = load(project=project).target
    root = tmp_path.resolve()
    assert (dev.name, dev.state, dev.scratch) == ("dev", str(root / ".lancestat/state"), None)
    assert (dev.spark_master, dev.spark_conf, dev.storage_options) == (None, {}, {})
    prod = load(project=project, target="prod", environment={"SECRET": "s3cr3t"}).target
    assert (prod.name, prod.state, prod.scratch) == ("prod", "s3://b/state", str(root / "scratch"))
    assert prod.spark_master == "yarn"
    assert prod.spark_conf == {"a": "true", "b": "2", "c": "1.10", "d": "x", "e": "prod"}
    assert prod.storage_options == {"aws_secret_access_key": "s3cr3t", "allow_http": "false"}
    assert "s3cr3t" not in repr(prod)


def test_an_unknown_target_is_wrong_usage(load: Load) -> None:
    with pytest.raises(UsageError) as caught:
        load(project="name: x\ntargets: {dev: {}, prod: {}}", target="prd")
    assert "unknown target 'prd'; valid targets: dev, prod" in str(caught.value)
    assert caught.value.hint == "did you mean 'prod'?"


def test_a_variable_that_nothing_names_is_a_warning(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    tables = """
        tables:
          - {name: a, uri: "{{ var('warehouse') }}/a", owner: "{{ var('team', 'us') }}"}
        """
    load({"specs/a.yml": tables}, vars={"warehouse": "x", "k": 1, "team": "them"})
    assert caplog.messages == []
    load({"specs/a.yml": tables}, vars={"wharehouse": "SECRET-VALUE", "other": 2})
    why = "is neither declared under 'vars' nor used by a template"
    assert caplog.messages == [
        f"variable 'other' {why}",
        f"variable 'wharehouse' {why}; did you mean 'warehouse'?",
    ]


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ({}, "/data/a/a/x"),
        ({"target": "b"}, "/data/b/b/x"),
        ({"environment": {"TARGET": "b"}}, "/data/b/b/x"),
        ({"vars": {"w": "s3://b", "new": 5}}, "s3://b/a/5"),
    ],
)
def test_the_caller_wins_over_the_environment_and_the_file(
    load: Load, given: dict[str, Any], uri: str
) -> None:
    project = """\
name: x
vars: {w: "/data/{{ target.name }}"}
default_target: "{{ env_var('TARGET', 'a') }}"
targets: {a: {}, b: {}}
"""
    text = "tables: [{name: t, uri: \"{{ var('w') }}/{{ target.name }}/{{ var('new', 'x') }}\"}]"
    assert load(text, project=project, **given).tables[0].uri == uri


def test_the_process_environment_is_read_by_default(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("tables: [{name: t, uri: /x}]")
    write(tmp_path, {"specs/shop.yml": "tables: [{name: t, uri: \"{{ env_var('PLACE') }}\"}]"})
    monkeypatch.setenv("PLACE", "/from/env")
    assert load_project(tmp_path).tables[0].uri == "/from/env"


def test_the_annotated_examples_make_a_valid_project_with_every_kind_of_node(
    tmp_path: Path,
) -> None:
    write(tmp_path, reference_project())
    spec = load_project(tmp_path)
    kinds = {node.kind for node in spec.nodes}
    assert kinds == set(NodeKind)
    assert spec.policies.keys() == {"tolerant", "lazy"}
    assert [source.catalog for source in spec.sources] == ["lake"]
    for path in REFERENCE_FOLDER.glob("*.yml"):
        line = path.read_text().splitlines()[0]
        schema = line.removeprefix("# yaml-language-server: $schema=")
        assert path.parent.joinpath(schema).is_file()


SIZES = {"16MB": 16_000_000, "16 MB": 16_000_000, "'500 kB'": 500_000, "2GB": 2_000_000_000, "7": 7}


@pytest.mark.parametrize("written", [*SIZES, "16  MB", "' 16MB'", "16 MiB", "MB", "16 mb"])
def test_a_size_may_have_one_space_before_its_unit(load: Load, written: str) -> None:
    project = PROJECT.replace("dev: {}", f"dev: {{spark: {{min_bytes: {written}}}}}")
    if written in SIZES:
        assert load("", project=project).target.spark_min_bytes == SIZES[written]
        return
    with pytest.raises(InvalidProject, match="a size such as 500kB, 16 MB or 2GB"):
        load("", project=project)


@pytest.mark.parametrize(("written", "keep"), [("3", 3), ("7d", timedelta(days=7))])
def test_a_result_keeps_versions_by_number_or_age(written: str, keep: object, load: Load) -> None:
    side = "{table: t, vector: v}"
    spec = load(
        f"tables: [{{name: t, uri: t}}]\nknn_joins: [{{name: j, left: {side}, right: {side}, k: 1, "
        f"output: {{lance: o, keep: {written}}}}}]"
    )
    assert [join.keep for join in spec.joins] == [keep]
