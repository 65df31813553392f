from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lancestat.spec.document import read_document
from lancestat.spec.schema import (
    KINDS,
    PROJECT_FILE,
    PROJECT_SCHEMA,
    SPECS_SCHEMA,
    editor_schema,
    editor_schemas,
    generated_files,
)

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = [
    *sorted((ROOT / "examples/project").rglob("*.yml")),
    *sorted((ROOT / "specs").rglob("*.yml")),
    *sorted((ROOT / "specs").rglob("*.yml.example")),
]
TEMPLATE = "{{ var('anything') }}"

MONITORS: list[Any] = [
    "volume_anomalies",
    {"freshness_anomalies": {"anomaly_sensitivity": 4, "training_period": "60d"}},
    {"column_anomalies": ["a"]},
    {"column_anomalies": {"columns": ["a"], "severity": "error"}},
    {"schema_changes": {"severity": "error"}},
    {"volume_anomalies": {}},
]
SPECS: dict[str, Any] = {
    "tables": [
        {
            "name": "a",
            "uri": "a.lance",
            "description": "d",
            "tags": ["t"],
            "owner": "o",
            "priority": 1,
            "columns": {"set": "s", "include": ["a"], "exclude": ["b"], "types": ["integer"]},
            "policy": {"description": "d", "allow.stale": True, "refresh": "always"},
            "publish": "none",
            "histogram": True,
            "groups": [["a", "b"]],
            "keys": [["a"]],
            "references": [{"columns": ["a"], "table": "b", "to": ["x"]}],
            "common_values": {"limit": 10, "columns": ["a"], "groups": [["a", "b"]], "show": False},
            "freshness": {"warn_after": "12h", "error_after": "24h"},
            "expect": [
                {"not_null": "a"},
                {"not_null": {"column": "b", "severity": "warn"}},
                {"unique": "a"},
                {"unique": ["a", "b"]},
                {"unique": {"columns": ["b"], "severity": "error"}},
                {"between": {"column": "a", "min": 0, "max": 9.5}},
                {"accepted_values": {"column": "c", "values": ["x", 1, True]}},
                {"row_count": {"min": 1}},
                {"max_null_share": {"column": "c", "share": "5%"}},
                {"distinct_between": {"column": "c", "max": 3}},
                {"references": {"columns": ["a"], "table": "orders", "to": ["b"]}},
            ],
            "monitors": MONITORS,
            "show_values": False,
        },
        {"name": "b", "uri": "b.lance", "columns": "all", "policy": "p"},
        {"name": "c", "uri": "c.lance", "columns": ["x", "y*"], "common_values": 20},
        {"name": "d", "table": "lake.s.d", "storage_options": {"aws_region": "r"}},
    ],
    "sources": [
        {
            "catalog": "lake",
            "include": ["sales.*"],
            "exclude": ["*_tmp"],
            "name": "{{ namespace }}_{{ table }}",
            "defaults": {"tags": ["t"], "policy": "p", "columns": "all", "publish": "none"},
        },
        {"uri": "warehouse"},
    ],
    "column_sets": [{"name": "s", "include": ["a"], "exclude": ["b"], "types": ["date"]}],
    "policies": [
        {
            "name": "p",
            "description": "d",
            "allow.stale": {"max_versions": 3, "max_age": "1d", "max_changed_rows": "5%"},
            "refresh": "when_stale",
        },
        {"name": "q", "allow.stale": {"max_changed_rows": 0.5}},
    ],
    "knn_joins": [
        {
            "name": "n",
            "left": {"table": "a", "vector": "v", "select": ["x"], "where": "x < 1"},
            "right": {"format": "f", "path": "p", "options": {"o": 1}, "vector": "v"},
            "k": 10,
            "on": ["a", {"left": "b", "right": "c"}],
            "max_distance": 0.3,
            "exclude_self": True,
            "pairs": "unordered",
            "metric": "cosine",
            "mode": "approx",
            "approx": {"recall": 0.5},
            "join": "left_outer",
            "min_right_rows": 5,
            "rank": True,
            "output": {"lance": "x"},
        },
        {
            "name": "m",
            "left": {"lance": "l", "vector": "v"},
            "right": {"sql": "select 1", "vector": "v"},
            "k": 1,
            "approx": {"nprobes": 3},
            "output": {"parquet": "x"},
        },
        {
            "name": "l",
            "left": {"parquet": "l", "vector": "v"},
            "right": {"table": "lake.s.r", "vector": "v"},
            "k": "all",
            "max_pairs": 5,
            "output": {"table": "lake.s.x", "keep": "7d"},
        },
    ],
    "duplicates": [
        {
            "name": "same",
            "description": "d",
            "tags": ["t"],
            "owner": "o",
            "priority": 1,
            "table": "a",
            "vector": "v",
            "where": "x < 1",
            "on": ["b"],
            "metric": "cosine",
            "max_distance": 0.02,
            "max_pairs": 5,
            "mode": "exact",
            "keep": {"order_by": ["u desc nulls last", "i"]},
            "select": ["i"],
            "output": {"lance": "x", "keep": 3},
            "pairs": {"lance": "y"},
        },
        {
            "name": "alike",
            "lance": "l",
            "vector": "v",
            "max_distance": 1,
            "output": {"lance": "x"},
        },
    ],
}
PROJECT: dict[str, Any] = {
    "name": "shop",
    "description": "d",
    "spec_paths": ["specs"],
    "vars": {"a": 1, "b": "x"},
    "default_target": "dev",
    "monitors": MONITORS,
    "hooks": {
        "on_run_start": [{"call": "m:f"}],
        "on_run_end": [{"webhook": "https://x.example", "secret": "s", "when": "always"}],
    },
    "targets": {
        "dev": {
            "spark": {
                "master": "local[*]",
                "remote": "sc://host:15002/;token=x",
                "conf": {"a": 1, "b": True, "c": "x"},
                "min_bytes": "16MB",
                "package": "lancestat.tar.gz",
                "connect_timeout": "90s",
            },
            "reader": "connector",
            "state": "s",
            "scratch": "t",
            "listen": "q",
            "budget": {"bytes": "100GB", "minutes": 30},
            "state_budget": "20GB",
            "storage_options": {"aws_region": "r"},
            "catalogs": {"lake": {"impl": "rest", "properties": {"uri": "u"}}},
        }
    },
}
WHOLE = [(PROJECT_SCHEMA, PROJECT), (SPECS_SCHEMA, SPECS)]


def errors(schema: dict[str, Any], value: object) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def scalars(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every scalar."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from scalars(inside, (*path, key))
    elif isinstance(value, list):
        for index, inside in enumerate(value):
            yield from scalars(inside, (*path, index))
    else:
        yield path


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_valid(kind: str) -> None:
    Draft202012Validator.check_schema(editor_schema(kind))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_are_accepted_with_their_templates(path: Path) -> None:
    name = PROJECT_SCHEMA if path.name == PROJECT_FILE else SPECS_SCHEMA
    value = read_document(path.read_bytes(), path.name).value
    assert errors(editor_schemas()[name], value) == []


@pytest.mark.parametrize(("name", "value"), WHOLE, ids=["project", "specs"])
def test_a_template_can_stand_for_every_scalar(name: str, value: dict[str, Any]) -> None:
    schema = editor_schemas()[name]
    assert errors(schema, value) == []
    paths = list(scalars(value))
    assert len(paths) > 10
    refused = {path: errors(schema, replaced(value, path, TEMPLATE)) for path in paths}
    assert {path: path_errors for path, path_errors in refused.items() if path_errors} == {}


@pytest.mark.parametrize(("name", "value"), WHOLE, ids=["project", "specs"])
def test_the_tested_values_have_every_key(name: str, value: dict[str, Any]) -> None:
    """Or the test before this one would pass over new ones."""

    def keys(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            for key, inside in part.items():
                yield key
                yield from keys(inside)
        if isinstance(part, list):
            for inside in part:
                yield from keys(inside)

    def declared(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            # A key may have that name, too.
            if "type" in part:
                yield from part.get("properties", ())
            for inside in part.values():
                yield from declared(inside)

    assert set(declared(editor_schemas()[name])) <= set(keys(value))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("tables", 0, "publish"), "manifst"),
        (("tables", 0, "histogram"), "yes"),
        (("tables", 0, "groups", 0), ["a"]),
        (("tables", 0, "keys", 0), []),
        (("tables", 0, "references", 0, "to"), "x"),
        (("tables", 0, "common_values", "limit"), 0),
        (("tables", 2, "common_values"), 1001),
        (("tables", 0, "name"), "a b"),
        (("tables", 0, "columns"), "some"),
        (("tables", 0, "columns", "types", 0), "int"),
        (("policies", 0, "allow.stale", "max_versions"), "3"),
        (("policies", 0, "allow.stale", "max_versions"), -1),
        (("policies", 0, "allow.stale", "max_age"), "24hours"),
        (("policies", 0, "allow.stale", "max_changed_rows"), "5"),
        (("knn_joins", 0, "k"), 0),
        (("knn_joins", 0, "k"), "ten"),
        (("knn_joins", 2, "max_pairs"), "many"),
        (("knn_joins", 0, "metric"), "L2"),
        (("knn_joins", 0, "rank"), "true"),
        (("knn_joins", 0, "left", "where"), 1),
        (("knn_joins", 0, "max_distance"), "0.3"),
        (("knn_joins", 0, "on"), "a"),
        (("knn_joins", 0, "on"), []),
        (("knn_joins", 0, "exclude_self"), 1),
        (("knn_joins", 0, "pairs"), "once"),
        (("knn_joins", 0, "on", 1), {"left": "a"}),
        (("tables", 0), {"name": "a", "uri": "u", "colums": "all"}),
        (("tables", 0), {"name": "a"}),
        (("tables",), TEMPLATE),
        (("sources", 0, "include"), []),
        (("sources", 1), {"uri": "u", "catalog": "lake"}),
    ],
)
def test_wrong_values_are_still_flagged(path: tuple[Any, ...], wrong: object) -> None:
    assert errors(editor_schema("specs"), replaced(SPECS, path, wrong))


def test_a_file_with_one_section_can_be_checked() -> None:
    parts = {"table": "tables", "column_set": "column_sets", "policy": "policies"}
    parts |= {"knn_join": "knn_joins", "duplicates": "duplicates", "source": "sources"}
    assert {*parts, "project", "specs"} == set(KINDS)
    for kind, key in parts.items():
        for item in SPECS[key]:
            assert errors(editor_schema(kind), item) == []
        assert errors(editor_schema(kind), {**SPECS[key][0], "nonsense": 1})


TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("path", generated_files())
def test_generated_files_are_current(path: str) -> None:
    assert (TOP / path).read_text("utf-8") == generated_files()[path], "run 'make generate'"
