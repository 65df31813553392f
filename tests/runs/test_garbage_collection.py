"""`lancestat gc` on a project: scratch of killed joins, besides the state."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from lancestat.cli.main import cli
from lancestat.joins.scratch.folder import MARKER, default_root, encode
from lancestat.lake.files import Process
from lancestat.project import Project

PROJECT = """
name: shop
targets:
  dev:
    state: state
    scratch: scratch
    spark: {conf: {spark.local.dir: SPARK}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    text = PROJECT.replace("SPARK", str(tmp_path / "spark"))
    (tmp_path / "lancestat_project.yml").write_text(text)
    (tmp_path / "specs").mkdir()
    return tmp_path


def left_in(root: Path) -> Path:
    folder = root / "app" / "run"
    folder.mkdir(parents=True)
    (folder / "rows").write_bytes(b"x" * 1000)
    created = datetime.now(timezone.utc) - timedelta(hours=1)
    (folder / MARKER).write_text(encode("app", Process("elsewhere", 1, 1), created))
    return folder


def test_declared_and_default_scratch_folders_are_removed(folder: Path) -> None:
    declared = left_in(folder / "scratch")
    default = left_in(default_root({"spark.local.dir": str(folder / "spark")}))
    project = Project.load(folder)
    report = project.collect_garbage(dry_run=True)
    assert (report.scratch_dropped, report.scratch_left) == (2, 0)
    assert report.bytes > 2000
    assert declared.exists()
    assert default.exists()
    assert project.collect_garbage() == report
    assert not declared.exists()
    assert not default.exists()
    assert project.collect_garbage().scratch_dropped == 0


def test_scratch_that_was_not_removed_is_counted_and_logged(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = left_in(folder / "scratch")
    (left / MARKER).write_text("{")
    assert Project.load(folder).collect_garbage().scratch_left == 1
    assert f"scratch {left} was left: its marker cannot be understood" in caplog.text


def test_gc_says_what_it_removed(folder: Path) -> None:
    left = left_in(folder / "scratch")
    command = ["--project-dir", str(folder), "gc", "--output", "json"]
    ended = CliRunner().invoke(cli, command)
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["scratch_dropped"] == 1
    assert not left.exists()
