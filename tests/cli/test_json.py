"""With `--output json` every command prints one JSON document, whatever becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lancestat.cli.main import COMMANDS
from tests.canaries import SECRET
from tests.cli.conftest import Lancestat

PROJECT = "name: shop\ntargets: {dev: {state: state}}\n"
TABLES = "tables:\n  - {name: orders, uri: gone.lance}\n"
INVALID = "tables:\n  - {name: orders, uri: gone.lance, colums: all}\n  - {name: part}\n"

# What is given to each command. The file `occupied` is there.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(COMMANDS, ()),
    "init": ("occupied",),
    "advise": ("occupied",),
    "diff": (".", "."),
    "show": ("orders",),
    "sql": ("select 1 from orders",),
    "comment": ("--body-file", "occupied"),
    "package": ("--out", "occupied"),
    "jar": ("--out", "occupied"),
    "completion": ("bash",),
}
# These do not read the project, or have no need of one that is valid.
WITHOUT_PROJECT = {"init", "package", "jar", "schema", "completion"}
SUCCEEDING = {"schema", "completion"}
# With a valid project it goes on: see tests/pipelines/test_watch.py.
ENDLESS = {"watch"}
# With a valid project these start Spark.
STARTS_SPARK = {"sql", "debug"}


def _document(result: Result) -> dict[str, Any]:
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    assert document["format_version"] == 1
    return document


def _assert_errors(result: Result, command: str | None) -> list[dict[str, Any]]:
    document = _document(result)
    assert list(document) == ["format_version", "command", "status", "errors"]
    assert (document["command"], document["status"]) == (command, "error")
    assert document["errors"]
    for error in document["errors"]:
        assert list(error) == ["code", "message", "location", "hint"]
        assert error["location"] is None or list(error["location"]) == ["file", "line", "column"]
        assert error["message"].split()[0] in " ".join(result.stderr.split())
    errors: list[dict[str, Any]] = document["errors"]
    return errors


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    (tmp_path / "occupied").write_text("mine")
    return tmp_path


def _write(folder: Path, specs: str) -> None:
    (folder / "specs").mkdir()
    (folder / "lancestat_project.yml").write_text(PROJECT)
    (folder / "specs" / "shop.yml").write_text(specs)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_invalid_project_is_a_document(command: str, folder: Path, lancestat: Lancestat) -> None:
    _write(folder, INVALID)
    result = lancestat(command, *ARGUMENTS[command], "--output", "json")
    if command in SUCCEEDING:
        assert _document(result)["command"] == command
        assert result.exit_code == 0
        return
    assert result.exit_code != 0
    if command == "debug":
        checks = {check["subject"]: check for check in _document(result)["checks"]}
        assert checks["project"]["finding"].startswith("specs/shop.yml:2:37  unknown key")
        return
    errors = _assert_errors(result, command)
    if command not in WITHOUT_PROJECT:
        assert [error["code"] for error in errors] == ["LS103", "LS107"]
        assert errors[0]["location"] == {"file": "specs/shop.yml", "line": 2, "column": 37}
        assert errors[0]["hint"] == "did you mean 'columns'?"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_project_is_a_document(command: str, folder: Path, lancestat: Lancestat) -> None:
    result = lancestat("--output", "json", command, *ARGUMENTS[command])
    if command in SUCCEEDING:
        assert _document(result)["command"] == command
    elif command == "debug":
        assert _document(result)["status"] == "error"
    else:
        errors = _assert_errors(result, command)
        assert command in WITHOUT_PROJECT or "lancestat_project.yml" in errors[0]["message"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.spark] if command in STARTS_SPARK else [])
        for command in COMMANDS
        if command not in WITHOUT_PROJECT | ENDLESS
    ],
)
def test_a_failing_node_is_one_document(command: str, folder: Path, lancestat: Lancestat) -> None:
    _write(folder, TABLES)
    if command == "retry":
        assert lancestat("run").exit_code == 1
    result = lancestat(command, *ARGUMENTS[command], "--output", "json")
    document = _document(result)
    does_not_run = ("advise", "check", "validate", "list", "diff", "docs", "gc", "runs")
    assert result.exit_code == (0 if command in does_not_run else 1)
    if command in ("show", "comment"):
        _assert_errors(result, command)
    elif command == "sql":
        assert [error["code"] for error in document["errors"]] == ["LS201"]
    else:
        assert document["command"] == command


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (("run", "--threads", "many", "--output", "json"), "run"),
        (("run", "--output=json", "--full-refesh"), "run"),
        (("--output", "json", "list", "--quiet", "--verbose"), "list"),
        (("--output", "json", "show"), "show"),
        (("--output", "json", "paln"), None),
        (("--traget", "dev", "plan", "--output", "json"), None),
    ],
)
def test_a_wrong_command_line_is_a_document(
    line: tuple[str, ...], command: str | None, lancestat: Lancestat
) -> None:
    result = lancestat(*line)
    assert result.exit_code == 2
    (error,) = _assert_errors(result, command)
    assert (error["code"], error["location"]) == ("LS407", None)


def test_the_environment_asks_for_a_document_too(lancestat: Lancestat) -> None:
    result = lancestat("run", "--threads", "many", LANCESTAT_OUTPUT="json")
    _assert_errors(result, "run")
    assert lancestat("run", "--threads", "many", "--", "--output", "json").stdout == ""
    script = lancestat("completion", "bash", LANCESTAT_OUTPUT="json").stdout
    assert "complete -o nosort" in script.splitlines()[-2]


def test_a_wrong_command_line_shows_no_secret_of_the_environment(lancestat: Lancestat) -> None:
    secret = SECRET["C_UNUSED_CREDENTIAL"]
    result = lancestat("show", "a", secret, "--output", "json", C_UNUSED_CREDENTIAL=secret)
    assert result.exit_code == 2
    _assert_errors(result, "show")
    assert secret not in result.output
