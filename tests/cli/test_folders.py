"""The command line finds the project of the folder in which it is called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from lancestat.cli.main import cli
from lancestat.spec import files
from tests.cli.conftest import Lancestat

PROJECT = "name: {name}\ntargets: {{dev: {{state: state}}}}\n"


def make(folder: Path, name: str) -> Path:
    (folder / "specs").mkdir(parents=True)
    (folder / "lancestat_project.yml").write_text(PROJECT.format(name=name))
    (folder / "specs" / "shop.yml").write_text(f"tables: [{{name: {name}_orders, uri: a}}]\n")
    return folder


def names(lancestat: Lancestat, *args: str) -> list[str]:
    result = lancestat("list", "--output", "json", *args)
    return [node["name"] for node in json.loads(result.stdout).get("nodes", ())]


def test_the_nearest_folder_with_a_project_is_taken(
    lancestat: Lancestat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "outer")
    inner = make(tmp_path / "a" / "inner", "inner")
    for folder, expected in ((tmp_path / "a", "outer"), (inner / "specs", "inner")):
        monkeypatch.chdir(folder)
        assert names(lancestat) == [f"{expected}_orders"]
        assert names(lancestat, "--project-dir", ".") == []
        verbose = lancestat("validate", "--verbose")
        taken = tmp_path if expected == "outer" else inner
        assert f"the project is in {taken}\n" in verbose.stderr
        completion = ShellComplete(cli, {}, "lancestat", "_LANCESTAT_COMPLETE")
        items = completion.get_completions(["show"], "")
        assert [item.value for item in items] == [f"{expected}_orders"]


def test_init_makes_a_project_where_it_is_called(
    lancestat: Lancestat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "outer")
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    assert lancestat("init").exit_code == 0
    assert (tmp_path / "new" / "lancestat_project.yml").exists()


@pytest.mark.parametrize("limit", ["owner", "home", "device", "no_access"])
def test_a_project_above_has_to_be_ones_own_and_near(
    limit: str, lancestat: Lancestat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "outer")
    inner = tmp_path / "home" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert names(lancestat) == ["outer_orders"]
    if limit == "owner":
        monkeypatch.setattr(files, "_is_own", lambda path: False)
    elif limit == "home":
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    else:
        look = Path.stat

        def stat(path: Path, **options: bool) -> os.stat_result:
            found = look(path, **options)
            if path != tmp_path:
                return found
            if limit == "no_access":
                raise PermissionError(13, "no")
            return os.stat_result((*found[:2], found.st_dev + 1, *found[3:]))

        monkeypatch.setattr(Path, "stat", stat)
    result = lancestat("list")
    assert result.exit_code == 1
    assert f"there is no lancestat_project.yml in {inner}" in result.stderr
