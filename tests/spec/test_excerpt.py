"""Errors show the line that they are about and a caret, but no line that may hold a secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lancestat.errors import InvalidProject
from lancestat.spec.load import load_project
from lancestat.spec.redaction import hidden_lines
from tests.spec.conftest import Load

SECRET = "hunter2hunter"
PROJECT = "name: shop\ntargets:\n  dev:\n    state: s\n"


def refused(folder: Path, project: str = PROJECT, **specs: str) -> str:
    (folder / "specs").mkdir(exist_ok=True)
    (folder / "lancestat_project.yml").write_text(project)
    for name, text in specs.items():
        (folder / "specs" / f"{name}.yml").write_bytes(text.encode())
    with pytest.raises(InvalidProject) as caught:
        load_project(folder, environment={})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "caret"),
    [
        ("tabels: []", "1 | tabels: []", "  | ^"),
        ("tables:\r\n  - {name: a, uri: b, zzz: 1}\r\n", "2 |   - {name: a, uri: b, zzz: 1}", 22),
        (
            "tables: [{name: 日本, uri: b, zzz: 1}]",
            "1 | tables: [{name: 日本, uri: b, zzz: 1}]",
            30,
        ),
        ("\ufefftabels: []", "1 | tabels: []", "  | ^"),
        ("# \u202e\ntables: [{name: a, uri: b, zzz: '\u202e'}]", "\\u202e", 27),
    ],
)
def test_a_caret_is_below_the_place(text: str, line: str, caret: str | int, tmp_path: Path) -> None:
    lines = refused(tmp_path, shop=text).splitlines()
    assert lines[1].startswith("      ")
    assert line in lines[1]
    expected = caret if isinstance(caret, str) else f"  | {' ' * caret}^"
    assert lines[2] == f"      {expected}"


@pytest.mark.parametrize("column", [1, 60, 500, 990])
def test_a_long_line_is_cut_around_the_place(column: int, tmp_path: Path) -> None:
    text = "{" + "a" * column + ": 1, " + "b" * (1000 - column) + ": 2}"
    _, first, caret, *_ = refused(tmp_path, shop=text).splitlines()
    assert len(first) <= 6 + 4 + 88 + 6
    assert first[caret.index("^")] == "a"


def test_excerpts_survive_pickling(load: Load) -> None:
    with pytest.raises(InvalidProject) as caught:
        load("tabels: []")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "1 | tabels: []" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "    storage_options: {aws_secret: %s, a: [1]}\n",
        "    storage_options: {x: %s, a: [1]}\n",
        "    storage-options: {x: %s}\n",
        "    storage_optoins: {x: %s}\n",
        "    storage_options:\n      x: %s\n      y: [1]\n",
        "    storage_options: {\nx: %s,\ny: [1]}\n",
        '    storage_options: {\n  x: "a\nb: %s", y: [1]}\n',
        "    storage_options:\n      x: [\n%s]\n",
        "    spark: {conf: {spark.x: [%s]}}\n",
        "    spark:\n      conf:\n        spark.x:\n          - %s\n",
        "    spark: {remote: 'sc://h/;x=%s', y: 1}\n",
        "    catalogs:\n      lake:\n        impl: rest\n        properties:\n          x: [%s]\n",
        "    keys: %s\n",
        "    pasword: %s\n",
        "    passwrod: [%s]\n",
        "    api_key: |\n      %s\n    y: 1\n",
        "    zzz: https://me:%s@host/x\n",
        "    zzz: https://host/x?sig=%s\n",
        "    storage_options: {x: '%s\n    y: 2\n",
        "    storage_options: {x: %s: b}\n",
        "    storage_options:\n      x: %s\n     y: 2\n",
        '    storage_options:\n      x: "%s" z\n',
        "    storage_options:\n      - %s\n     - y\n",
        "    storage_options:\n\t  x: %s\n",
        "    storage_options:\n      a: b\n\t  x: %s\n",
        "    storage_options:\n   x: %s\n",
        "    storage_options:\n   x: y\n   z: %s: a\n",
        "    storage_options:\n      x: y\n   z: %s\n",
        "    spark:\n     conf:\n      - a\n   z: %s\n",
    ],
)
def test_lines_that_may_hold_secrets_are_not_shown(text: str, tmp_path: Path) -> None:
    message = refused(tmp_path, PROJECT + text.replace("%s", SECRET))
    assert SECRET not in message


def test_a_value_of_the_environment_in_a_file_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text(PROJECT)
    (tmp_path / "specs/a.yml").write_text(f"tables: [{{name: a, uri: {SECRET}, zzz: 1}}]")
    with pytest.raises(InvalidProject) as caught:
        load_project(tmp_path, environment={"DB_PASSWORD": SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tables: [{name: a, uri: b, keys: [[id]], zzz: 1}]", 1),
        ("tables:\n  - name: a\n    uri: b\n    keys:\n      - [id]\n      - 7\n", 6),
    ],
)
def test_lines_with_keys_of_tables_are_shown(text: str, line: int, tmp_path: Path) -> None:
    assert f"{line} | {text.splitlines()[line - 1]}" in refused(tmp_path, shop=text)


def test_lines_after_a_secret_are_shown_again() -> None:
    lines = ["storage_options:", "  a: b", "", "state: s", "x: {conf: {", "y: z", "}}", "z: 1"]
    assert list(hidden_lines(lines)) == [0, 1, 2, 4, 5, 6]


def test_errors_that_do_not_hide_each_other_are_reported_together(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        a="tables:\n  - name: a\n    name: b\n    uri: !env X\n    tags: 1\n    polcy: x\n"
        "    policy: none_such\n",
        b="tables: [\n",
        c="tables:\n  - name: c\n    uri: c\n    colums: all\n    policy: none_such\n",
    )
    found = [line.split("  ")[0] for line in message.splitlines() if line.startswith("LS")]
    assert found == [
        "LS104 specs/a.yml:3:5",
        "LS102 specs/a.yml:4:10",
        "LS105 specs/a.yml:5:11",
        "LS103 specs/a.yml:6:5",
        "LS102 specs/b.yml:1:9",
        "LS103 specs/c.yml:4:5",
        "LS110 specs/c.yml:5:13",
    ]


def test_spec_files_are_read_though_the_project_file_is_not_yaml(tmp_path: Path) -> None:
    message = refused(tmp_path, "name: [\n", a="tables: {\n", b="tables: []\n")
    found = [line.split("  ")[0] for line in message.splitlines() if line.startswith("LS")]
    assert found == ["LS102 lancestat_project.yml:1:7", "LS102 specs/a.yml:1:9"]
