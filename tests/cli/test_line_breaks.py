"""No text of a project, a dataset or a library starts a line or gives an order to a terminal."""

from __future__ import annotations

import json
import logging
import subprocess
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import DatasetMissing
from tests.cli.conftest import FakeProject, Lancestat

ORDERS = ["::set-output name=a::b", "##[add-matcher]x", "section_start:0:x", "##vso[task]x"]
BREAKS = ["\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\r\n", "\n      "]
EVIL = "".join(f"{breaking}{order}" for breaking in BREAKS for order in ORDERS)
EVIL += "\x1b[31m\x1b]0;t\x07\x9b1m\u202e\u2066\u200b\x00"

PROJECT = """\
name: shop
vars: {{lake: lake}}
targets: {{dev: {{state: state, spark: {{conf: {{{evil}: x}}}}}}}}
"""
SPECS = """\
policies: [{{name: p, description: {evil}, allow.stale: true}}]
tables:
  - {{name: orders, uri: lake/orders.lance, description: {evil}, owner: {evil},
     columns: [{evil}], policy: p}}
  - {{name: all, uri: lake/all.lance, publish: none}}
  - {{name: gone, uri: {uri}, publish: none}}
knn_joins:
  - {{name: near, k: 3, description: {evil}, output: {{lance: near.lance}},
     left: {{sql: {sql}, vector: {evil}, select: [{evil}]}},
     right: {{format: {evil}, path: x, options: {{{evil}: x}}, vector: v}}}}
"""


def check(text: str) -> None:
    """Each line that is printed is one, of visible characters, and is no order."""
    for line in text.split("\n"):
        assert all(char.isprintable() or char == "\u200b" for char in line), repr(line)
        start = line.lstrip(" \u200b")
        assert not start.startswith("::"), line
        assert not line.startswith("section_"), line
        assert "##[" not in line and "##vso[" not in line, line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with such texts in every place that allows them, and a table with such a column."""
    quoted = json.dumps(EVIL)
    for name, text in (
        ("lancestat_project.yml", PROJECT.format(evil=quoted)),
        (
            "specs/shop.yml",
            SPECS.format(
                evil=quoted,
                sql=json.dumps(f"select '{EVIL}'"),
                uri=json.dumps("lake/\u2028::debug::x"),
            ),
        ),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    rows = pa.table({"id": [1, 2], EVIL.replace("\x00", ""): ["x", EVIL]})
    for name in ("orders", "all"):
        lance.write_dataset(rows, str(tmp_path / "lake" / f"{name}.lance"))
    for command in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", EVIL[:-1])):
        names = ("-c", "user.name=n", "-c", "user.email=e@e")
        subprocess.run(["git", *names, *command], cwd=tmp_path, check=True)
    specs = tmp_path / "specs" / "shop.yml"
    specs.write_text(specs.read_text().replace("columns: [", "columns: [id, "))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("validate",),
        ("--verbose", "list"),
        ("plan",),
        ("--verbose", "plan"),
        ("plan", "--output", "markdown"),
        ("status",),
        ("--verbose", "status"),
        ("status", "--output", "markdown"),
        ("show", "all"),
        ("show", "orders"),
        ("show", "gone"),
        ("diff", "main"),
        ("diff", "main", "--output", "markdown"),
        ("diff", f"main{EVIL[:60]}"),
        ("list", "-s", f"x{EVIL[:60]}"),
        ("list", f"--{EVIL[:60]}"),
        (f"x{EVIL[:60]}",),
        ("--project-dir", f"x{EVIL[:60]}", "list"),
        ("--target", f"x{EVIL[:60]}", "list"),
        ("--vars", f"x: [{EVIL[:60]}", "list"),
        ("run", "--plan-file", f"x{EVIL[:60]}"),
        ("plan", "--out", f"x/y{EVIL[:60]}"),
        ("docs", "--out", f"specs/shop.yml{EVIL[:0]}"),
        ("gc", "--dry-run"),
        ("unpublish",),
    ],
    ids=lambda command: " ".join(command)[:30].encode("unicode_escape").decode(),
)
def test_texts_with_line_breaks_start_no_line(
    folder: Path, lancestat: Lancestat, command: tuple[str, ...]
) -> None:
    assert lancestat("validate").exit_code == 0
    result = lancestat(*command)
    assert "LS001" not in result.output
    check(result.stdout)
    check(result.stderr)


@pytest.mark.parametrize(
    "command",
    [("list",), ("plan",), ("status",), ("unpublish",), ("show", "all"), ("diff", "main")],
)
def test_json_with_line_breaks_is_one_value(
    folder: Path, lancestat: Lancestat, command: tuple[str, ...]
) -> None:
    result = lancestat(*command, "--output", "json")
    json.loads(result.stdout)
    assert all(char.isprintable() or char == "\n" for char in result.stdout)
    assert "##[" not in result.stdout


@pytest.mark.parametrize("verbose", [(), ("--verbose",)])
@pytest.mark.parametrize("error", [DatasetMissing(f"a{EVIL}", hint=EVIL), ValueError(EVIL)])
def test_errors_and_tracebacks_start_no_line(
    project: FakeProject, lancestat: Lancestat, error: Exception, verbose: tuple[str, ...]
) -> None:
    project.failure = error
    result = lancestat(*verbose, "plan")
    assert result.exit_code == 1
    check(result.stderr)


def test_a_logged_message_is_one_line(project: FakeProject, lancestat: Lancestat) -> None:
    def warn(*args: object, **options: object) -> object:
        logging.getLogger("lancestat.state").warning("it said %s", EVIL)
        raise DatasetMissing("x")

    project.plan = warn  # type: ignore[method-assign, assignment]
    result = lancestat("plan")
    check(result.stderr)
    assert result.stderr.count("\n") == 2


def test_the_name_of_a_file_starts_no_line(lancestat: Lancestat, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "lancestat_project.yml").write_text("name: shop\ntargets: {dev: {}}\n")
    (tmp_path / "specs" / "x\n      evil line.yml").write_text("tables: [{nam: orders}]\n")
    result = lancestat("--verbose", "--project-dir", str(tmp_path), "validate")
    assert result.exit_code == 1
    output = result.stdout + result.stderr
    assert "evil line.yml" in output
    assert not [line for line in output.splitlines() if line.strip().startswith("evil")]
