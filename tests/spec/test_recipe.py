"""The recipe of docs/recipes/table-key.md: its patch is all that a new key of a table needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PATCH = TOP / "docs/recipes/table-key.patch"

PROJECT = "name: shop\ntargets: {dev: {}}\n"
TABLE = "tables:\n  - {name: orders, uri: /nowhere/orders.lance"
LINK = "https://wiki.example.com/orders"

# Prints the results of commands, one JSON list a line: exit code and output.
COMMANDS = """\
import json, sys
from click.testing import CliRunner
from lancestat.cli.main import cli
from lancestat.spec.digest import node_digest
from lancestat.spec.load import load_project
from pathlib import Path
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, words)
    print(json.dumps([done.exit_code, done.output]))
digests = [node_digest(load_project(Path(folder)).nodes[0]) for folder in ("old", "new")]
print(json.dumps([len(set(digests)), load_project(Path("new")).tables[0].link]))
"""


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the key."""
    copy = tmp_path_factory.mktemp("patched")
    shutil.copytree(TOP / "lancestat", copy / "lancestat")
    for folder in ("specs", "schemas", "docs"):
        shutil.copytree(TOP / folder, copy / folder)
    subprocess.run(["git", "apply", str(PATCH)], cwd=copy, check=True)
    return copy


def test_a_new_key_touches_few_files() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(), re.MULTILINE)
    assert touched == [
        "lancestat/presentation/site/facts.py",
        "lancestat/spec/table.py",
        "specs/tables.yml",
    ]


def test_commands_know_a_key_that_is_declared(patched: Path, tmp_path: Path) -> None:
    texts = {"old": "}", "new": f", link: '{LINK}'}}", "wrong": ", link: 5, lnk: x}"}
    for name, end in texts.items():
        (tmp_path / name / "specs").mkdir(parents=True)
        (tmp_path / name / "lancestat_project.yml").write_text(PROJECT)
        (tmp_path / name / "specs/shop.yml").write_text(TABLE + end)
    commands = [
        ["--project-dir", "new", "validate"],
        ["--project-dir", "wrong", "validate"],
        ["--project-dir", "new", "diff", "--no-datasets", "--output", "json", "./old"],
        ["schema", "table"],
        ["--project-dir", "new", "docs", "--out", "pages"],
    ]
    completed = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(patched), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    results = map(json.loads, completed.stdout.splitlines())
    valid, wrong, diff, schema, docs, (digests, link) = results

    assert valid[0] == 0
    assert wrong[0] == 1
    assert "'link' of table 'orders' must be text that is not empty, found the number 5" in wrong[1]
    assert "unknown key 'lnk' in table 'orders'\n      2 | " in wrong[1]
    assert "^\n      hint: did you mean 'link'?" in wrong[1]
    [node] = json.loads(diff[1])["nodes"]
    assert [change["name"] for change in node["properties"]] == ["link"]
    assert node["properties"][0]["new"] == LINK
    assert json.loads(schema[1])["properties"]["link"]["description"] == "A page about the table."
    assert (digests, link) == (1, LINK)
    assert docs[0] == 0
    [page] = (tmp_path / "pages/tables").glob("*.html")
    assert LINK in page.read_text(encoding="utf-8")


def test_the_schema_and_the_reference_follow(patched: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "lancestat.spec.reference"],
        cwd=patched,
        env={"PYTHONPATH": str(patched), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    schema = json.loads((patched / "schemas/lancestat_specs.schema.json").read_text())
    assert "link" in schema["$defs"]["table"]["properties"]
    row = "| `link` | text that is not empty | | A page about the table. |"
    assert row in (patched / "docs/reference/yaml.md").read_text()
