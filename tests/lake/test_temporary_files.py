"""Drafts of files are removed even if their writer was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lancestat.lake import temporary_files as temporary
from lancestat.lake.temporary_files import (
    collect_temporary_garbage,
    is_draft,
    new_draft,
    remove_drafts,
    temporary_folder,
    write_new,
    write_whole,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from lancestat.lake.temporary_files import new_draft
from lancestat.lake.temporary_files import make_temporary_folder

new_draft(Path(sys.argv[1])).write_text("half")
(make_temporary_folder() / "spark.properties").write_text("secret")
os.kill(os.getpid(), signal.SIGKILL)
"""


def be_killed(place: Path) -> None:
    """Leave a draft, and a temporary folder beside it."""
    environment = {**os.environ, "TMPDIR": str(place.parent)}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(place)], env=environment, check=False
    )
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("write", [write_whole, write_new])
def test_the_next_write_removes_drafts_of_killed_processes(tmp_path: Path, write: object) -> None:
    place = tmp_path / "plan.json"
    be_killed(place)
    living = new_draft(place)
    living.write_text("whole soon")
    (tmp_path / ".plan.json.draft-of-mine").write_text("mine")
    assert callable(write)
    write(place, b"whole")
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"plan.json", living.name, ".plan.json.draft-of-mine"}
    assert place.read_bytes() == b"whole"


def test_a_new_file_does_not_replace_an_existing_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"other")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "link", b"other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "link"]
    assert (tmp_path / "a").read_text() == "mine"


def test_without_hard_links_a_new_file_does_not_replace_an_existing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    write_new(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"first")]


def test_drafts_of_another_host_are_kept_for_a_week(tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    other = tmp_path / f".plan.json.draft-{'0' * 12}-1-1-{'0' * 12}"
    other.write_text("half")
    assert is_draft(other)
    remove_drafts(place)
    assert other.exists()
    os.utime(other, (0, 0))
    remove_drafts(place)
    assert not other.exists()


def test_temporary_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    be_killed(tmp_path / "plan.json")
    (tmp_path / "lancestat-mine").mkdir()
    with temporary_folder() as living:
        assert living.stat().st_mode & 0o077 == 0
        assert len(list(tmp_path.glob(f"{living.name.rsplit('-', 4)[0]}-*"))) >= 2
        collect_temporary_garbage()
        assert {path.name for path in tmp_path.glob("lancestat-*")} == {
            living.name,
            "lancestat-mine",
        }
    assert temporary._FOLDER_NAME.fullmatch(living.name)
    assert not living.exists()
