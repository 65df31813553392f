"""The formats of each command, and that one module and one line add another."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from lancestat.cli.main import cli
from lancestat.presentation.views import FORMATS

SPECS = "tables: [{name: orders, uri: orders.lance}, {name: part, uri: part.lance}]\n"


@pytest.fixture
def yaml_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "yaml", "tests.presentation.yaml_format")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    header = "name: shop\ndefault_target: dev\ntargets: {dev: {state: state}}\n"
    (tmp_path / "lancestat_project.yml").write_text(header)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "shop.yml").write_text(SPECS)
    return tmp_path


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="lancestat", env={"COLUMNS": "80"})


def completed(*arguments: str) -> list[str]:
    completion = ShellComplete(cli, {}, "lancestat", "_LANCESTAT_COMPLETE")
    return [item.value for item in completion.get_completions(list(arguments), "")]


@pytest.mark.usefixtures("yaml_format")
def test_a_command_prints_a_new_format(project: Path) -> None:
    result = ran("--project-dir", str(project), "list", "--output", "yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert yaml.safe_load(result.stdout) == [
        {"name": "orders", "kind": "table"},
        {"name": "part", "kind": "table"},
    ]


@pytest.mark.usefixtures("yaml_format")
def test_a_new_format_is_offered_where_it_can_be_printed() -> None:
    assert "--output [text|json|yaml]" in ran("list", "--help").stdout
    assert "--output [text|json|markdown]" in ran("plan", "--help").stdout
    assert "--output [text|json|markdown|csv|yaml]" in ran("--help").stdout
    assert completed("list", "--output") == ["text", "json", "yaml"]
    assert completed("plan", "--output") == ["text", "json", "markdown"]
    assert completed("--output") == ["text", "json", "markdown", "csv", "yaml"]


@pytest.mark.usefixtures("yaml_format")
def test_a_command_that_cannot_print_a_new_format_lists_its_formats() -> None:
    result = ran("plan", "--output", "yaml")
    assert result.exit_code == 2
    assert "'plan' prints text, json or markdown, not yaml." in result.stderr
    unknown = ran("list", "--output", "xml")
    assert unknown.exit_code == 2
    assert "'xml' is not one of 'text', 'json', 'yaml'." in unknown.stderr
