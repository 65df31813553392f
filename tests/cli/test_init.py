from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Lancestat


def test_a_new_project_is_valid_and_lists_an_example_of_each_kind(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    made = lancestat("init", "shop")
    assert made.exit_code == 0, made.output
    assert "cd shop" in made.stdout
    valid = lancestat("validate", "--project-dir", "shop")
    assert (valid.exit_code, valid.stderr) == (0, "")
    assert valid.stdout.startswith("valid  shop, target dev: ")
    listed = json.loads(lancestat("list", "--project-dir", "shop", "--output", "json").stdout)
    assert {node["kind"] for node in listed["nodes"]} == {"table", "knn_join"}


def test_init_prints_the_files_it_wrote(lancestat: Lancestat, tmp_path: Path) -> None:
    payload = json.loads(lancestat("init", "--output", "json").stdout)
    there = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(payload["files"]) == sorted(there)
    assert payload["files"][0] == "lancestat_project.yml"


def test_existing_files_stop_init_before_it_writes_anything(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    mine = tmp_path / "specs" / "tables.yml"
    mine.parent.mkdir()
    mine.write_text("tables: []\n")
    result = lancestat("init")
    assert result.exit_code == 2
    assert "specs/tables.yml" in result.stderr
    assert mine.read_text() == "tables: []\n"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [mine]


def test_a_broken_link_is_not_written_through(lancestat: Lancestat, tmp_path: Path) -> None:
    (tmp_path / "lancestat_project.yml").symlink_to(tmp_path / "elsewhere")
    assert lancestat("init").exit_code == 2
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_file_where_the_folder_should_be_is_one_clear_error(
    folder: str, lancestat: Lancestat, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = lancestat("init", folder)
    assert result.exit_code == 2
    assert result.stderr.startswith("LS403  cannot write to ")


def test_existing_editor_settings_are_not_changed(lancestat: Lancestat, tmp_path: Path) -> None:
    mine = tmp_path / ".vscode" / "settings.json"
    mine.parent.mkdir()
    mine.write_text("// mine\n{}\n")
    result = lancestat("init")
    assert result.exit_code == 0, result.output
    assert mine.read_text() == "// mine\n{}\n"
    assert ".vscode/settings.json stays as it is" in result.stderr
    assert ".vscode/extensions.json" in result.stdout
    assert "yaml.schemas" in result.stderr


def test_an_editor_finds_the_schema_of_every_file(lancestat: Lancestat, tmp_path: Path) -> None:
    assert lancestat("init").exit_code == 0
    settings = json.loads((tmp_path / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    schemas = {
        path: schema
        for schema, globs in settings.items()
        for pattern in globs
        for path in tmp_path.glob(pattern)
    }
    assert set(schemas) == {*tmp_path.rglob("*.yml")}
    for path, schema in schemas.items():
        json.loads((tmp_path / schema).read_text())
        # The files also name their schema, for editors that open another folder.
        named = path.read_text().splitlines()[0].partition("$schema=")[2]
        assert (path.parent / named).resolve() == (tmp_path / schema).resolve()


def test_init_completes_a_killed_init(lancestat: Lancestat, tmp_path: Path) -> None:
    """It writes the project's file last: a folder without it is not a project yet."""
    assert lancestat("init").exit_code == 0
    whole = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "lancestat_project.yml").unlink()
    (tmp_path / "specs" / "tables.yml").unlink()
    again = lancestat("init")
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == whole
    assert lancestat("init").exit_code == 2


_MARK = "from lancestat.lake.lease import this_process; print(this_process().tag)"


def test_a_refused_init_removes_the_drafts_of_a_killed_one(
    lancestat: Lancestat, tmp_path: Path
) -> None:
    assert lancestat("init").exit_code == 0
    completed = subprocess.run(
        [sys.executable, "-c", _MARK], capture_output=True, text=True, check=True
    )
    mark = completed.stdout.strip()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        name = path.name.lstrip(".")
        path.with_name(f".{name}.draft-{mark}-{'0' * 12}").write_text("a part of it")
    drafts = f".*.draft-{mark}-*"
    assert len([*tmp_path.rglob(drafts)]) == len(files)
    assert lancestat("init").exit_code == 2
    assert [*tmp_path.rglob(drafts)] == []
