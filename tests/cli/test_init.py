from __future__ import annotations

import json
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


def test_init_tells_its_files(lancestat: Lancestat, tmp_path: Path) -> None:
    told = json.loads(lancestat("init", "--output", "json").stdout)
    there = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(told["files"]) == sorted(there)


def test_nothing_is_overwritten_and_nothing_half_written(
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
