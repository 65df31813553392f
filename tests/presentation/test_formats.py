"""The formats of each command, and tables that keep to the width of a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from lancestat.cli.debug import Check, checks_answer
from lancestat.cli.main import cli
from lancestat.presentation.terminal import cell_width, paint, table, unpainted
from lancestat.presentation.text import FORMAT
from lancestat.presentation.views import FORMATS, Page, QueryView
from lancestat.query.sql.query import ResultColumn, Shape
from lancestat.redact import Audience, KnownValue, Redactor

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
    builtin = "text", "json", "markdown", "csv", "prometheus", "datahub", "openmetadata"
    assert "--output [text|json|yaml]" in ran("list", "--help").stdout
    assert "--output [text|json|markdown]" in ran("plan", "--help").stdout
    every = "|".join((*builtin, "yaml"))
    assert f"--output [{every}]" in " ".join(ran("--help").stdout.split())
    assert completed("list", "--output") == ["text", "json", "yaml"]
    assert completed("plan", "--output") == ["text", "json", "markdown"]
    assert completed("--output") == [*builtin, "yaml"]


@pytest.mark.usefixtures("yaml_format")
def test_a_command_that_cannot_print_a_new_format_lists_its_formats() -> None:
    result = ran("plan", "--output", "yaml")
    assert result.exit_code == 2
    assert "'plan' prints text, json or markdown, not yaml." in result.stderr
    unknown = ran("list", "--output", "xml")
    assert unknown.exit_code == 2
    assert "'xml' is not one of 'text', 'json', 'yaml'." in unknown.stderr


LONG = "a finding of several words that is longer than most terminals are wide, and then some more"


@pytest.mark.parametrize("limit", [40, 60, 80])
def test_cells_take_several_lines_where_a_row_is_too_wide(limit: int) -> None:
    rows = [["ok", "Python", "3.11"], ["no", "Spark", paint(LONG, "error")], ["", "", LONG]]
    lines = [unpainted(line) for line in table(rows, page=Page(limit=limit))]
    assert max(map(cell_width, lines)) <= limit
    words = " ".join(" ".join(line.split()) for line in lines)
    assert words == f"ok Python 3.11 no Spark {LONG} {LONG}"
    assert table(rows, page=Page()) == table(rows)


def test_a_cell_that_spans_columns_has_their_room() -> None:
    lines = table([["a", "b", "c"], ["d", LONG]], page=Page(limit=50))
    assert max(map(len, lines)) <= 50
    assert lines[1].startswith(f"d  {LONG[:40]}")


def test_wide_characters_and_long_words_are_broken() -> None:
    for text in ("日本" * 40, "x" * 200):
        lines = table([["name", text]], page=Page(limit=40))
        assert max(map(cell_width, lines)) <= 40
        assert "".join(lines).replace("name", "").replace(" ", "") == text


def test_a_secret_is_redacted_before_its_cell_is_broken() -> None:
    secret = "s3cr3t-" * 12
    known = KnownValue(secret, "***", is_secret=True, is_whole=True)
    page = Page(limit=40, redactor=Redactor([known]), audience=Audience.PERSON)
    lines = table([["a", f"the value is {secret}"]], page=page)
    assert "s3cr3t" not in "".join(lines)


def test_cells_that_would_be_commands_for_readers_of_logs_keep_to_their_columns() -> None:
    rows = [["::warning", "1"], ["x", "##[error]"], ["", "::y"], ["x", "::y"]]
    lines = table([[*row, "end"] for row in rows])
    assert lines == [
        "\\x3a:warning  1             end",
        "x             #\\x23[error]  end",
        "              \\x3a:y        end",
        "x             ::y           end",
    ]


def test_a_secret_that_would_be_a_command_is_redacted_in_a_cell() -> None:
    known = KnownValue("::s3cr3t", "***", is_secret=True, is_whole=True)
    page = Page(redactor=Redactor([known]), audience=Audience.PERSON)
    assert table([["::s3cr3t", "b"]], page=page) == ["***  b"]


def test_checks_keep_to_the_limit() -> None:
    view = checks_answer([Check("Spark", False, LONG, LONG)])
    assert max(len(unpainted(line)) for line in FORMAT.render(view, Page(limit=50))) <= 50


@pytest.mark.parametrize("limit", [40, 79, 200])
def test_columns_in_the_middle_of_a_wide_result_are_left_out(limit: int) -> None:
    columns = tuple(ResultColumn(f"c{number}", "int", Shape("int")) for number in range(30))
    view = QueryView(columns, iter([]), iter([[f"v{number}" for number in range(30)]]))
    lines = list(FORMAT.render(view, Page(limit=limit)))
    assert max(map(cell_width, lines)) <= limit
    assert lines[1].split()[0] == "v0"
    assert lines[1].split()[-1] == "v29"
    assert view.is_shortened
    assert "..." in lines[1]
    view = QueryView(columns, iter([]), iter([[f"v{number}" for number in range(30)]]))
    assert "..." not in list(FORMAT.render(view, Page(verbose=True, limit=limit)))[1]
