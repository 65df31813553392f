"""Loading any files returns a project or raises located errors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lancestat.errors import InvalidProject
from lancestat.spec.document import read_document
from lancestat.spec.load import load_project
from tests.examples import examples
from tests.spec.conftest import PROJECT, reference_project, write
from tests.spec.test_check import VALUES, change

TEMPLATES = reference_project()
SPECS = [name for name in TEMPLATES if name.startswith("specs/")]

fuzzed = settings(
    max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def load_or_refuse(root: Path, files: dict[str, str | bytes]) -> None:
    """Load, and check that a refusal names a place in one of the files for each error."""
    write(root, files)
    try:
        spec = load_project(root, environment={})
    except InvalidProject as invalid:
        assert invalid.errors
        for error in invalid.errors:
            assert error.location is not None, error
            assert error.location.file in {*files, "lancestat_project.yml"}
            assert error.location.line >= 1
            assert error.location.column >= 1
            assert error.message
            assert "\n" not in error.message
        return
    assert len({node.name.casefold() for node in spec.nodes}) == len(spec.nodes)


pieces = st.sampled_from(
    ["tables:", "- ", "name: ", "a", "uri: ", "{", "}", "[", "]", ",", ": ", "\n", "  ", "&a ",
     "*a", "<<: ", "!!str ", "!x ", "'", '"', "{{ var('k') }}", "{% if", "|", ">", "#", "---\n",
     "\t", "? ", "policies: ", "knn_joins: ", "columns: ", "5%", "~", "é", "\u2028", "%TAG "]
)  # fmt: skip


@fuzzed
@given(st.lists(pieces, max_size=25).map("".join))
@example("tables: [&a {name: a, uri: b, <<: *a}]")
@example("<<: &a {tables: []}")
@example("? |\n  tables\n: []")
def test_any_yaml_like_text_loads_or_has_errors(tmp_path: Path, text: str) -> None:
    load_or_refuse(tmp_path, {"lancestat_project.yml": PROJECT, "specs/a.yml": text})


@fuzzed
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8")))
def test_any_bytes_load_or_have_errors(tmp_path: Path, content: bytes) -> None:
    load_or_refuse(tmp_path, {"lancestat_project.yml": PROJECT, "specs/a.yml": content})
    load_or_refuse(tmp_path, {"lancestat_project.yml": content, "specs/a.yml": "tables: []"})


@fuzzed
@given(st.sampled_from(sorted(TEMPLATES)), st.data())
def test_a_valid_file_with_a_lost_or_repeated_part_loads_or_has_errors(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    text = TEMPLATES[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    replacement = data.draw(
        st.sampled_from(["", text[start:end] * 2, "\x7f", "{{", "&", "\t", ": "])
    )
    load_or_refuse(tmp_path, {**TEMPLATES, name: text[:start] + replacement + text[end:]})


@fuzzed
@given(st.sampled_from(sorted(TEMPLATES)), st.data())
def test_a_valid_file_with_changed_values_loads_or_has_errors(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    value: Any = copy.deepcopy(read_document(TEMPLATES[name].encode(), name).value)
    for _ in range(data.draw(st.integers(1, 3))):
        change(value, data.draw)
    load_or_refuse(tmp_path, {**TEMPLATES, name: yaml.safe_dump(value, allow_unicode=True)})


@fuzzed
@given(VALUES, VALUES)
def test_any_values_load_or_have_errors(tmp_path: Path, project: Any, spec: Any) -> None:
    load_or_refuse(
        tmp_path,
        {"lancestat_project.yml": yaml.safe_dump(project), "specs/a.yml": yaml.safe_dump(spec)},
    )
