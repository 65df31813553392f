"""Every violation of the schemas becomes an error, and nothing else does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import SpecError
from lancestat.spec.document import KeyPath, read_document
from lancestat.spec.names import Rendering
from lancestat.spec.schema import PROJECT_SCHEMA, SPECS_SCHEMA, schema
from lancestat.spec.schema_check import check, format_checker
from tests.spec.conftest import reference_project
from tests.spec.test_editor import PROJECT, SPECS

SCHEMAS = (PROJECT_SCHEMA, SPECS_SCHEMA)

VALIDATORS = {
    name: jsonschema.Draft202012Validator(schema(name), format_checker=format_checker())
    for name in SCHEMAS
}

VALID: list[tuple[str, Any]] = [
    (
        PROJECT_SCHEMA if name == "lancestat_project.yml" else SPECS_SCHEMA,
        read_document(text.encode(), name).value,
    )
    for name, text in reference_project().items()
]
VALID += [(PROJECT_SCHEMA, PROJECT), (SPECS_SCHEMA, SPECS)]

WORDS = st.sampled_from(
    ["", "x", "a b", "all", "none", "5%", "101%", "24h", "1w", "l2", "exact", "date", "when_stale"]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from([-1, 0, 1, 2, 10.0, 0.5, 1.5, 100000, 100001]), WORDS
)
KEYS = st.sampled_from(
    ["name", "uri", "k", "table", "format", "path", "options", "nprobes", "zzz", "", "set", "types"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def judge(name: str, value: Any) -> list[tuple[KeyPath, SpecError]]:
    document = read_document(b"{}", "f.yml").with_value(value)
    return [(path, error) for path, error in check(name, document, Rendering()) if error]


def assert_judged_alike(name: str, value: Any) -> None:
    """Each error of the validator has a sentence at its place or below, and no other exists."""
    expected = {tuple(error.absolute_path) for error in VALIDATORS[name].iter_errors(value)}
    judged = judge(name, value)
    for path in expected:
        assert any(at[: len(path)] == path for at, _ in judged), path
    for at, error in judged:
        assert any(path == at[: len(path)] for path in expected), at
        assert "\n" not in error.message
    assert len({(at, error.message) for at, error in judged}) == len(judged)


@pytest.mark.parametrize(("name", "value"), VALID)
def test_the_valid_documents_are_valid(name: str, value: Any) -> None:
    assert judge(name, value) == []
    assert VALIDATORS[name].is_valid(value)


@settings(deadline=None)
@given(st.data())
def test_any_change_of_a_valid_document_is_judged_as_its_schema_says(data: st.DataObject) -> None:
    name, valid = data.draw(st.sampled_from(VALID))
    value = copy.deepcopy(valid)
    for _ in range(data.draw(st.integers(1, 3))):
        change(value, data.draw)
    assert_judged_alike(name, value)


@settings(deadline=None)
@given(st.sampled_from(SCHEMAS), VALUES)
def test_any_value_is_judged_as_its_schema_says(name: str, value: Any) -> None:
    assert_judged_alike(name, value)


def change(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """Replace, remove, rename or add something at a random depth."""
    while True:
        steps = list(value) if isinstance(value, dict) else list(range(len(value)))
        inner = [step for step in steps if isinstance(value[step], dict | list) and value[step]]
        if not inner or not draw(st.integers(0, 3)):
            break
        value = value[draw(st.sampled_from(inner))]
    action = draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "add" or not steps:
        if isinstance(value, dict):
            value[draw(KEYS)] = draw(VALUES)
        else:
            value.append(draw(VALUES))
        return
    step = draw(st.sampled_from(steps))
    if action == "replace":
        value[step] = draw(VALUES)
    else:
        del value[step]


def test_a_value_has_one_error_however_many_keywords_it_breaks() -> None:
    value = {"tables": [{"name": "", "uri": "x", "tags": [[], []], "publish": 3}]}
    assert [path[2:] for path, _ in judge(SPECS_SCHEMA, value)] == [
        ("name",), ("tags", 0), ("tags", 1), ("publish",),
    ]  # fmt: skip


@pytest.mark.parametrize("output", [None, "lance", [], 5])
def test_a_choice_that_is_not_a_mapping_has_one_error_of_its_type(output: Any) -> None:
    sides = {"left": {"lance": "x", "vector": "v"}, "right": {"lance": "x", "vector": "v"}}
    value = {"knn_joins": [{"name": "j", **sides, "k": 1, "output": output}]}
    ((path, error),) = judge(SPECS_SCHEMA, value)
    assert path == ("knn_joins", 0, "output")
    assert "must be a mapping with 'lance', 'parquet' or 'table'" in error.message
