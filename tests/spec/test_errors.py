"""Every way to write a project wrongly has its one clear error, as the golden files show it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.build import option_objection, query_objection
from lancestat.spec.load import load_project
from lancestat.spec.schema import PROJECT_SCHEMA, SPECS_SCHEMA, schema
from tests.conftest import Golden
from tests.spec.conftest import Errors, Load
from tests.spec.test_editor import PROJECT, SPECS

SPEC_FAULTS = {
    "unknown_keys": """\
table: []
tables:
  - {name: orders, uri: a, colums: all}
  - {name: parts, uri: b, policy: {alow.stale: true}, publsh: none}
  - {uri: c, zzz: 1}
knn_joins:
  - {name: j, left: {vetcor: v}, right: {table: orders, vector: v}, k: 1, output: {lnce: x}}
""",
    "missing_keys": """\
tables:
  - name: a
  - uri: b
  - {}
column_sets: [{name: s}]
knn_joins: [{name: j}]
""",
    "wrong_types": """\
tables:
  - name: 5
    uri: [a]
    description: 1
    tags: nightly
    owner:
    columns: 3
    policy: [a]
    publish: true
    histogram: 1
  - just text
  - [a]
policies: {lazy: {allow.stale: true}}
column_sets:
""",
    "wrong_values": """\
tables:
  - name: a b
    uri: ""
    tags: ["x y", a, a]
    columns: al
    publish: manifst
  - {name: b, uri: b, columns: []}
  - {name: c, uri: c, columns: {}}
  - {name: d, uri: d, columns: {types: [integr], include: [5]}, histogram: maybe}
  - {name: "e\\n", uri: "s3://\\x01"}
""",
    "bounds": """\
policies:
  - {name: a, allow.stale: yes}
  - {name: b, allow.stale: {}}
  - {name: c, allow.stale: {max_age: 24}}
  - {name: d, allow.stale: {max_age: 1w}}
  - {name: e, allow.stale: {max_age: 999999999d}}
  - {name: f, allow.stale: {max_changed_rows: 5}}
  - {name: g, allow.stale: {max_changed_rows: 101%}}
  - {name: h, allow.stale: {max_changed_rows: five}}
  - {name: i, allow.stale: {max_versions: -1}}
  - {name: j, allow.stale: {max_versions: 1.5}}
  - {name: k, allow.stale: {max_versions: "20"}}
  - {name: l, refresh: when-stale}
  - {name: m, allow.stale: 'true'}
""",
    "relations": """\
tables:
  - {name: t, uri: t}
  - {name: a, uri: a, groups: [[x]], keys: [[]], references: [{columns: [x], table: t, too: [x]}]}
  - {name: b, uri: b, groups: [[x, x], [x, y], [z, 1]], keys: x, references: {columns: [x]}}
  - {name: c, uri: c, groups: [[x, y], [y, x]], keys: [[x], [y], [x]]}
  - name: d
    uri: d
    references:
      - {columns: [x, y], table: t, to: [k]}
      - {columns: [x], table: tt, to: [k]}
      - {columns: [x], table: j, to: [k]}
      - {columns: [x, z], table: t, to: [k, l]}
      - {columns: [z, x], table: t, to: [l, k]}
      - {columns: [z, x], table: t, to: [k, l]}
  - {name: e, uri: e, common_values: 0}
  - {name: f, uri: f, common_values: {}}
  - {name: g, uri: g, common_values: {limit: 1001, columns: [x, x], shown: false}}
  - {name: h, uri: h, common_values: all}
  - {name: k, uri: k, keys: [[a, b]], common_values: {groups: [[b, a], [a, c]]}}
  - {name: l, uri: l, groups: [[a, b]], common_values: {groups: [[a]]}}
  - {name: i, uri: i, common_values: true}
knn_joins:
  - {name: j, k: 1, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: o}}
""",
    "too_many_groups": """\
tables:
  - name: t
    uri: t
    keys: [[k, l], [c0, c1], [m]]
    groups:
"""
    + "".join(f"      - [c{number}, c{number + 1}]\n" for number in range(32)),
    "freshness": """\
tables:
  - {name: a, uri: a, freshness: {}}
  - {name: b, uri: b, freshness: 12h}
  - {name: c, uri: c, freshness: {warn_after: 24}}
  - {name: d, uri: d, freshness: {warn_after: 1w, error_afer: 2d}}
  - {name: e, uri: e, freshness: {warn_after: 12h, error_after: 11h}}
  - {name: f, uri: f, freshness: {error_after: 999999999d}}
  - {name: g, uri: g, freshness: {warn_after: 90m, error_after: 5400s}}
""",
    "knn_joins": """\
tables: [{name: t, uri: t}]
knn_joins:
  - {name: a, left: {vector: v}, right: {table: t, sql: s, vector: v}, k: 0, output: {}}
  - {name: b, left: {format: csv, vector: v}, right: {path: p, vector: v}, k: ten,
     output: {lance: a, parquet: b}}
  - {name: c, left: {table: t, vector: v, options: {}}, right: {table: t, vector: v}, k: 100001,
     output: {lance: x}, metric: cosin, mode: aprox, join: left}
  - {name: d, left: {table: t, vector: v}, right: {table: t, vector: v}, k: 1,
     output: {lance: y}, approx: {nprobes: 1}}
  - {name: e, left: {table: t, vector: v}, right: {table: t, vector: v}, k: 1,
     output: {lance: z}, mode: approx}
  - {name: f, left: {table: t, vector: v}, right: {table: t, vector: v}, k: 1,
     output: {lance: w}, mode: approx, approx: {nprobes: 1, recall: 0}, min_right_rows: -1}
  - {name: g, k: 1, left: {format: csv, path: p, options: {password: [s3cr3t]}, vector: v,
     select: [a, a]}, right: {table: t, vector: ""}, output: {lance: u}}
  - {name: h, k: 1, left: {table: t, vector: v, where: 1}, output: {lance: s},
     right: {table: t, vector: v}}
  - {name: i, k: 1, left: {table: t, vector: v}, output: {lance: r},
     right: {parquet: p, vector: v, where: "a < 1"}}
  - {name: j, k: 1, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: q},
     max_distance: -0.5}
  - {name: l, k: 1, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: n},
     max_distance: near, metric: dot}
  - {name: m, k: 1, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: m},
     on: [a, {left: b}, {left: c, right: d, middle: e}]}
  - {name: n, k: 1, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: l},
     on: tenant}
  - {name: o, k: all, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: k}}
  - {name: p, k: all, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: j},
     max_distance: 1, on: [a]}
  - {name: q, k: 3, left: {table: t, vector: v}, right: {table: t, vector: v}, output: {lance: i},
     max_pairs: 1}
  - {name: r, k: 3, left: {table: t, vector: v}, right: {table: t, vector: v},
     output: {parquet: f, keep: 3}}
  - {name: s, k: 3, left: {table: t, vector: v}, right: {table: t, vector: v},
     output: {lance: h, keep: 0}}
  - {name: u, k: 3, left: {table: t, vector: v}, right: {table: t, vector: v},
     output: {lance: g, keep: 1w}}
""",
    "unknown_references": """\
tables:
  - {name: orders, uri: a, policy: tolrant, columns: {set: join_key}}
  - {name: parts, uri: b, policy: zzz}
policies: [{name: tolerant}]
column_sets: [{name: join_keys, include: [a]}]
knn_joins:
  - name: j
    left: {table: Orders, vector: v}
    right: {sql: "select * from {{ ref('part') }} join {{ ref('PARTS') }}", vector: v}
    k: 1
    output: {lance: o}
""",
    "statements": """\
knn_joins:
  - name: j
    left:
      vector: v
      sql: |
        -- not a query
        insert overwrite directory '/victim' using parquet select 1
    right: {sql: "select * from {{ ref('t') }}; drop table t", vector: v}
    k: 1
    output: {lance: o}
  - name: k
    left: {table: t, vector: v}
    right:
      format: jdbc
      path: p
      options: {sessionInitStatement: drop table t, query: delete from t, dbtable: t}
      vector: v
    k: 1
    output: {lance: q}
tables: [{name: t, uri: t}]
""",
    "duplicate_names": """\
tables:
  - {name: orders, uri: a}
  - {name: Orders, uri: b}
  - {name: orders, uri: c}
policies: [{name: p}, {name: p}]
column_sets: [{name: p, include: [a]}, {name: p, include: [b]}]
knn_joins:
  - {name: orders, left: {lance: x, vector: v}, right: {lance: y, vector: v}, k: 1,
     output: {lance: z}}
""",
    "duplicate_keys": """\
tables:
  - name: a
    uri: a
    name: b
tables: []
""",
    "uris": """\
tables:
  - {name: a, uri: "s3://\\x01"}
  - {name: b, uri: " "}
  - {name: c, uri: ~no-such-user/x}
knn_joins:
  - {name: j, left: {lance: "a\\nb", vector: v}, right: {format: csv, path: " ", vector: v}, k: 1,
     output: {parquet: "\\t"}}
""",
    "cycles": """\
knn_joins:
  - {name: a, left: {table: b, vector: v}, right: {lance: x, vector: v}, k: 1, output: {lance: a}}
  - {name: b, left: {sql: "select * from {{ ref('c') }}", vector: v}, right: {lance: x, vector: v},
     k: 1, output: {lance: b}}
  - {name: c, left: {table: a, vector: v}, right: {table: d, vector: v}, k: 1, output: {lance: c}}
  - {name: d, left: {table: d, vector: v}, right: {lance: x, vector: v}, k: 1, output: {lance: d}}
  - {name: e, left: {table: own, vector: v}, right: {lance: x, vector: v}, k: 1, output: {lance: e}}
tables: [{name: own, uri: e}]
""",
    "shared_outputs": """\
tables:
  - {name: a, uri: wh/t.lance}
  - {name: b, uri: ./wh/../wh/t.lance/}
  - {name: c, uri: wh/t.lance, publish: none}
knn_joins:
  - {name: j, left: {lance: x, vector: v}, right: {lance: x, vector: v}, k: 1, output: {lance: o}}
  - {name: k, left: {lance: x, vector: v}, right: {lance: x, vector: v}, k: 1, output: {lance: o}}
""",
    "nested_outputs": """\
tables:
  - {name: a, uri: wh/t.lance}
  - {name: b, uri: wh/t.lance/b}
  - {name: inner, uri: wh/o/parts/t.lance}
knn_joins:
  - {name: j, left: &b {table: b, vector: v}, right: *b, k: 1, output: {lance: wh/t.lance/o}}
  - {name: k, left: *b, right: *b, k: 1, output: {parquet: wh/o}}
  - {name: fine, left: *b, right: *b, k: 1, output: {parquet: wh/o2}}
""",
    "templates": """\
tables:
  - name: a
    uri: "{{ var('warehuse') }}/a"
    description: "{{ env_var('MISSING') }}"
    owner: "{{ owner }}"
    tags: ["{{ 'a' * 1000000000 }}"]
  - name: "{{ ref('a') }}"
    uri: "{{ target.nme }}"
  - name: b
    uri: "{% for i in range(100000) %}x{% endfor %}"
    columns: "{{ ['a'] }}"
  - name: "{{ var('k') }}"
    uri: "{{ var('flag') }}"
knn_joins:
  - {name: j, left: {table: "{{ nope }}", vector: v}, right: {table: t, vector: v},
     k: "{{ '10' }}", output: {lance: o}}
""",
    "empty": "",
    "only_a_comment": "# nothing\n",
    "not_a_mapping": "- a\n- b\n",
    "empty_mapping": "{}\n",
    "tabs": "tables:\n\t- name: a\n",
    "two_documents": "tables: []\n---\ntables: []\n",
    "unquoted_template": "tables:\n  - name: a\n    uri: {{ var('warehouse') }}/a.lance\n",
    "python_tag": "tables: !!python/object/apply:os.system [ls]\n",
    "self_reference": "tables: &a [*a]\n",
}

PROJECT_FAULTS = {
    "project_empty": "",
    "project_unknown_keys": """\
name: x
target: dev
targets:
  dev: {sate: x, spark: {masterr: y}, storage-options: {aws_secret_access_key: s3cr3t}}
""",
    "project_missing_keys": "description: x\n",
    "project_wrong_types": """\
name: [x]
spec_paths: specs
vars: [a]
default_target: 1
targets: {dev: [], prod: {spark: local, state: 5, storage_options: s3cr3t}}
""",
    "project_wrong_values": """\
name: my shop
spec_paths: []
default_target: dev
targets:
  "my dev": {}
  dev:
    state: "~nobody-of-that-name/x"
    spark: {conf: {spark.x: [s3cr3t], spark.y: null}, master: ""}
    storage_options: {key: {a: s3cr3t}}
""",
    "project_master_and_remote": """\
name: x
targets: {dev: {spark: {master: yarn, remote: "sc://host:15002/;token=s3cr3t"}}}
""",
    "project_package_for_a_server": """\
name: x
targets: {dev: {spark: {remote: "sc://host", package: lancestat.tar.gz}}}
""",
    "project_remote_of_another_scheme": """\
name: x
targets: {dev: {spark: {remote: "https://host/;token=s3cr3t"}}}
""",
    "project_unknown_target": "name: x\ndefault_target: dve\ntargets: {dev: {}, prod: {}}\n",
    "project_no_target_chosen": "name: x\ntargets: {dev: {}, prod: {}}\n",
    "project_no_targets": "name: x\ntargets: {}\n",
    "project_missing_folders": "name: x\nspec_paths: [spec, ../nope]\ntargets: {dev: {}}\n",
    "project_templates": """\
name: "{{ target.name }}{{ var('y') }}"
vars: {a: "{{ var('b') }}", b: "{{ env_var('MISSING') }}"}
default_target: "{{ target.name }}"
targets: {dev: {state: "{{ env_var('MISSING') }}"}}
""",
    "project_template_for_a_mapping": "name: x\ntargets: {dev: {storage_options: '{{ nope }}'}}\n",
}


@pytest.mark.parametrize("name", SPEC_FAULTS)
def test_errors_of_a_spec_file_are_reported(name: str, errors: Errors, golden: Golden) -> None:
    golden(f"spec/{name}.txt", errors({"specs/shop.yml": SPEC_FAULTS[name]}))


@pytest.mark.parametrize("name", PROJECT_FAULTS)
def test_errors_of_the_project_file_are_reported(name: str, errors: Errors, golden: Golden) -> None:
    golden(f"spec/{name}.txt", errors(project=PROJECT_FAULTS[name]))


def test_errors_of_all_files_are_reported_together_in_order(errors: Errors, golden: Golden) -> None:
    files: dict[str, str | bytes] = {
        "specs/b.yml": "tables: [{name: a, uri: a, policy: nope}, {name: b}]",
        "specs/a.yml": "tables: [",
        "specs/c.yaml": b"tables: [{name: \xff}]",
        "specs/d.yml": "tables: [{name: d, uri: \"{{ var('nope') }}\", zzz: 1}, {name: A, uri: x}]",
    }
    project = "name: x\ntargets: {dev: {}}\nzzz: 1\n"
    golden("spec/several_files.txt", errors(files, project=project))


def test_a_broken_declaration_still_counts_as_declared(errors: Errors) -> None:
    text = """
    policies: [{name: p, allow.stale: maybe}]
    column_sets: [{name: s, include: a}]
    tables: [{name: t, uri: t, zzz: 1}, {name: u, uri: u, policy: p, columns: {set: s}}]
    knn_joins:
      - {name: j, left: {table: t, vector: v}, right: {table: u, vector: v}, k: 1,
         output: {lance: o}}
    """
    text_of_errors = errors(text)
    assert "unknown policy" not in text_of_errors
    assert "unknown column set" not in text_of_errors
    assert "unknown table" not in text_of_errors
    assert text_of_errors.count("\nLS") + 1 == 3


def test_an_unreadable_file_is_an_error(load: Load, errors: Errors, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/loop.yml").symlink_to("loop.yml")
    (tmp_path / "specs/folder.yml").mkdir()
    assert "LS101 specs/loop.yml:1:1  cannot read the file: " in errors()


SCHEMAS = json.dumps([schema(PROJECT_SCHEMA), schema(SPECS_SCHEMA)])
# Of the options of storage, which are keys too, the schemas have none.
SEVERAL_WORDS = sorted(
    key
    for key in set(re.findall(r'"(\w+_\w+)":', json.dumps([PROJECT, SPECS])))
    if f'"{key}": {{' in SCHEMAS
)


@pytest.mark.parametrize("key", SEVERAL_WORDS)
def test_the_error_of_a_key_with_hyphens_names_it_with_underscores(
    key: str, errors: Errors
) -> None:
    hyphenated = key.replace("_", "-")
    project, specs = (
        json.dumps(value).replace(f'"{key}":', f'"{hyphenated}":') for value in (PROJECT, SPECS)
    )
    found = errors({"specs/all.yml": specs}, project=project)
    assert f"unknown key '{hyphenated}' in " in found
    assert f"hint: did you mean '{key}'?" in found
    assert "missing key" not in found and "no target is chosen" not in found


@pytest.mark.parametrize(
    ("specs", "typo"),
    [
        ("tables: [{name: t, ury: u}]", "ury"),
        ("tables: [{nmae: t, uri: u}]", "nmae"),
        ("column_sets: [{name: s, includ: [a]}]", "includ"),
        (
            "knn_joins: [{name: j, left: {lance: l, vector: v}, right: {lance: r, vectr: v}, k: 1,"
            " output: {lance: o}}]",
            "vectr",
        ),
        (
            "knn_joins: [{name: j, left: {lance: l, vector: v}, right: {lance: r, vector: v}, k: 1,"
            " output: {lnce: o}}]",
            "lnce",
        ),
    ],
)
def test_a_misspelled_key_is_one_error(specs: str, typo: str, errors: Errors) -> None:
    heads = re.findall("^LS.*", errors(specs), re.MULTILINE)
    assert len(heads) == 1
    assert heads[0].startswith("LS103") and f"unknown key '{typo}'" in heads[0]


NO_QUERY = "is not a query, which begins with SELECT, WITH, FROM, VALUES or TABLE"
SEVERAL = "has more than one statement"


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "SELECT a FROM t;",
        "select ';' as a, \"x;\" as b, `c;d` from t ; ; -- and no more;",
        "/* a /* nested */ comment */ -- another\n ((select 1) union (select 2))",
        "with x as (select 1) select * from x",
        "from t select a",
        "values (1), (2)",
        "table t",
        "select 1 /* ; drop table t */",
        "select 'it\\'s; fine' as a",
        "\n\n  select\n1",
    ],
)
def test_a_query_is_left_to_spark(sql: str) -> None:
    assert query_objection(sql) is None


@pytest.mark.parametrize(
    ("sql", "objection"),
    [
        ("", "is empty"),
        (" -- nothing\n/* at all */ (", "is empty"),
        ("/* never ends select 1", "is empty"),
        ("insert overwrite directory '/victim' using parquet select 1", NO_QUERY),
        ("-- select\nCREATE TABLE t AS SELECT 1", NO_QUERY),
        ("/* /* */ select */ drop table t", NO_QUERY),
        ("set spark.sql.warehouse.dir = x", NO_QUERY),
        ("cache table t", NO_QUERY),
        ("add jar '/x.jar'", NO_QUERY),
        ("map a using 'sh' as b from t", NO_QUERY),
        ("execute immediate 'drop table t'", NO_QUERY),
        ("call system.drop('t')", NO_QUERY),
        ("begin drop table t; end", NO_QUERY),
        ("(((explain select 1)))", NO_QUERY),
        ("select 1; drop table t", SEVERAL),
        ("select 1;\n-- and\nselect 2", SEVERAL),
        ("select ';' ; 'x'", SEVERAL),
    ],
)
def test_statements_other_than_a_query_are_refused(sql: str, objection: str) -> None:
    assert query_objection(sql) == objection


@pytest.mark.parametrize(
    ("format", "key", "value", "objection"),
    [
        ("jdbc", "sessionInitStatement", "drop table t", "is a statement that the database runs"),
        ("JDBC", "PREPAREQUERY", "create table t (a int)", "is a statement that the database runs"),
        ("jdbc", "query", "delete from t", NO_QUERY),
        ("org.apache.spark.sql.jdbc", "query", "select 1; drop table t", SEVERAL),
        ("jdbc", "dbtable", "t; drop table t; --", SEVERAL),
        ("jdbc", "dbtable", "(select a from t) as q", None),
        ("jdbc", "query", "select a from t", None),
        ("jdbc", "url", "jdbc:postgresql://host/db", None),
        ("csv", "header", "true", None),
    ],
)
def test_options_that_a_database_executes_are_recognized(
    format: str, key: str, value: str, objection: str | None
) -> None:
    assert option_objection(format, key, value) == objection


MINIMAL = "name: shop\ntargets: {dev: {state: s}}\n"
ITEM = "tables:\n  - name: orders\n"

FAULTS: dict[str, str | bytes] = {
    # The syntax of block mappings and lists.
    "no_colon": f"{ITEM}    uri orders.lance\n    tags: []\n",
    "no_colon_at_the_end": f"{ITEM}    uri orders.lance\n",
    "no_space_after_colon": "tables:\n  - name:orders\n    uri: x\n",
    "no_space_after_dash": "tables:\n  -name: x\n    uri: y\n",
    "second_colon": f"{ITEM}    description: one: per order\n",
    "indented_deeper": f"{ITEM}      uri: x\n",
    "indented_less": f"{ITEM}   uri: x\n",
    "dash_indented_less": f"{ITEM}    uri: x\n - name: b\n",
    "dash_missing": f"{ITEM}    uri: x\n  name: b\n",
    "key_among_items": "- a\nb: c\n",
    "item_among_keys": "a: b\n- c\n",
    "key_missing": ": a\n",
    "list_behind_key": "tables: - name: x\n",
    "text_after_the_end": "tables: []\nmore\n",
    "list_as_key": "? [a]\n: b\n",
    "long_key": f"{'k' * 1100}: x\n",
    "tab": "tables:\n\t- name: x\n",
    "tab_within": f"{ITEM}\turi: y\n",
    "tab_before_key": f"{ITEM}    \turi: y\n",
    # Quotes and brackets.
    "open_quote": f'{ITEM}    uri: "x\n    tags: []\n',
    "open_single_quote": f"{ITEM}    uri: 'x\n",
    "open_quote_before_another": f'{ITEM}    uri: "x\n    owner: "me"\n',
    "apostrophe": f"{ITEM}    description: 'it's one'\n",
    "text_after_quote": f"{ITEM}    uri: 'x'y\n",
    "escape": f'{ITEM}    uri: "C:\\data"\n',
    "hexadecimal": f'{ITEM}    uri: "\\xZZ"\n',
    "open_list": "tables: [{name: a, uri: b}\npolicies: []\n",
    "open_mapping": "tables:\n  - {name: a, uri: b\n  - {name: c, uri: d}\n",
    "open_to_the_end": "tables: [",
    "comma_missing": "tables: [{name: a uri: b}]\n",
    "comma_missing_in_a_later_line": "tables: [\n  {name: a, uri: b}\n  {name: c, uri: d}]\n",
    "bracket_too_many": "tables: [{name: a, uri: b}]]\n",
    "brace_for_a_value": "tables: }\n",
    # Signs with a meaning.
    "at_sign": f"{ITEM}    owner: @me\n",
    "backtick": f"{ITEM}    uri: `x`\n",
    "percent": f"{ITEM}    uri: %x\n",
    "asterisk": f"{ITEM}    uri: x\n    columns: [*]\n",
    "asterisk_with_a_name": f"{ITEM}    uri: x\n    columns: [*_key]\n",
    "ampersand": f"{ITEM}    owner: & me\n",
    "exclamation_mark": f"{ITEM}    uri: !x!y\n",
    "template": f"{ITEM}    uri: {{{{ var('w') }}}}/x\n",
    "block_text": f"{ITEM}    description: |one\n",
    "directive": "%FOO\ntables: []\n",
    "version": "%YAML 3.0\n---\ntables: []\n",
    # Documents and encodings.
    "empty": "",
    "white_space": " \n\n",
    "comment": "# nothing yet\n",
    "null": "null\n",
    "text": "tables\n",
    "number": "5\n",
    "list": "- name: a\n  uri: b\n",
    "two_documents": "tables: []\n---\ntables: []\n",
    "after_the_end": "tables: []\n...\npolicies: []\n",
    "utf_16": "tables: []\n".encode("utf-16"),
    "latin_1": "# Gr\xfc\xdfe\ntables: []\n".encode("latin-1"),
    "nul": "tables: []\0\n",
    "escape_sequence": f"{ITEM}    uri: \x1b[31mx\n",
    "byte_order_mark_within": "tables: []\n\ufeffpolicies: []\n",
    "carriage_returns": "tables:\r\n  - name: a\r\n    uri b\r\n    tags: []\r\n",
    "only_carriage_returns": "tables:\r  - name: a\r    uri b\r    tags: []\r",
    "json_that_is_cut": '{"tables": [{"name": "a", "uri": "b"},',
    "conflict_of_git": "tables:\n<<<<<<< HEAD\n  - name: a\n=======\n  - name: b\n>>>>>>> x\n",
    # What can be read, and is wrong.
    "key_twice": f"{ITEM}    uri: x\n    name: y\n    zzz: 1\n",
    "merge_of_a_text": f"{ITEM}    <<: x\n",
    "merge_of_nothing": f"{ITEM}    <<: *base\n",
    "merge_with_a_typo": "x-base: &b {uri: u}\ntables:\n  - {<<: *b, name: a}\n",
    "alias_of_itself": "tables: &a [*a]\n",
    "nested": "tables: " + "[" * 100 + "]" * 100 + "\n",
    "many_aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n"
    + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
    ),
    "python": "tables: !!python/object/apply:os.system [ls]\n",
    "set": f"{ITEM}    uri: x\n    tags: !!set {{a, b}}\n",
    "not_a_number": f"{ITEM}    uri: x\n    groups: .nan\n",
    "empty_items": "tables:\n  -\n  - name: a\n    uri:\n",
    "types": "tables: {name: a, uri: b}\nknn_joins: 5\npolicies: [x, 1, null]\n",
    "yes": f"{ITEM}    uri: x\n    policy: {{allow.stale: yes}}\n",
    "date_and_number": "tables:\n  - {name: 2024-01-01, uri: 12, tags: [1, true]}\n",
}


def message(folder: Path, content: str | bytes) -> str:
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(MINIMAL)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "specs/shop.yml").write_bytes(data)
    try:
        load_project(folder, environment={})
    except InvalidProject as invalid:
        return str(invalid)
    return "accepted"


def test_each_fault_has_its_message(tmp_path: Path, golden: Golden) -> None:
    messages = {name: message(tmp_path / name, text) for name, text in FAULTS.items()}
    golden("spec/hostile.txt", "".join(f"{name}\n{text}\n\n" for name, text in messages.items()))
