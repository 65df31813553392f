"""Drafts of files are removed even if their writer was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lancestat import codec
from lancestat.lake import files as temporary
from lancestat.lake.files import (
    TAG,
    Lease,
    Process,
    abandoned,
    collect_temporary_garbage,
    is_draft,
    new_draft,
    process_of,
    remove_drafts,
    temporary_folder,
    this_process,
    write_new,
    write_whole,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from lancestat.lake.files import new_draft
from lancestat.lake.files import make_temporary_folder

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


def test_where_no_temporary_folder_can_be_made_there_is_none_to_remove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    collect_temporary_garbage()


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


@pytest.fixture
def child() -> Iterator[tuple[Process, subprocess.Popen[bytes]]]:
    """Another process of this host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        process = Process(this_process().host, running.pid, temporary._started(running.pid))
        yield process, running
        running.kill()


MINE = this_process()


@pytest.mark.parametrize(
    ("process", "is_alive"),
    [
        pytest.param(MINE, True, id="this one"),
        pytest.param(replace(MINE, started=(MINE.started or 0) - 1), False, id="reused number"),
        pytest.param(replace(MINE, pid=2**22 + 1), False, id="unused number"),
        pytest.param(replace(MINE, pid=2**70), False, id="too large a number"),
        pytest.param(replace(MINE, host="elsewhere"), None, id="another host"),
    ],
)
def test_processes_are_told_apart(process: Process, is_alive: bool | None) -> None:
    assert MINE.started is not None
    assert process.is_alive() is is_alive


def test_another_process_is_alive_until_it_ends(
    child: tuple[Process, subprocess.Popen[bytes]],
) -> None:
    process, running = child
    assert process.is_alive() is True
    running.kill()
    running.wait()
    assert process.is_alive() is False


def test_without_a_start_time_a_missing_process_is_unknown(
    child: tuple[Process, subprocess.Popen[bytes]],
) -> None:
    """Names of hosts are not unique."""
    process, running = child
    process = replace(process, started=None)
    assert process.is_alive() is True
    running.kill()
    running.wait()
    assert process.is_alive() is None


NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
ELSEWHERE = Process("elsewhere", 1, 1)


def test_a_lease_ends_with_its_owner() -> None:
    mine = this_process()
    assert mine.started is not None
    gone = replace(mine, started=mine.started - 1)
    assert Lease(mine, NOW - timedelta(days=100)).is_held(NOW)
    assert not Lease(gone, NOW).is_held(NOW)
    assert list(abandoned([("mine", Lease(mine)), ("gone", Lease(gone))])) == ["gone"]


@pytest.mark.parametrize("owner", [ELSEWHERE, None])
def test_a_lease_of_another_host_ends_after_a_time(owner: Process | None) -> None:
    assert Lease(owner, NOW - timedelta(days=6)).is_held(NOW)
    assert not Lease(owner, NOW - timedelta(days=8)).is_held(NOW)
    assert not Lease(owner, NOW - timedelta(minutes=2), timedelta(minutes=1)).is_held(NOW)
    assert Lease(owner).is_held(NOW), "nothing tells when it was last renewed"


def test_tags_name_the_processes_of_this_host() -> None:
    mine = this_process()
    assert re.fullmatch(TAG, mine.tag)
    assert process_of(mine.tag) == mine
    assert process_of(f"{'0' * 12}-{mine.pid}-1") is None
    assert Lease.of_tag(mine.tag) == Lease(mine)
    assert Lease.of_tag(mine.tag, 1e300) == Lease(mine), "no such time"


def test_a_process_round_trips_through_its_stored_form() -> None:
    for process in (this_process(), Process("h", 7)):
        assert codec.decode(codec.encode(process), Process) == process
    for broken in ({}, {"host": "h"}, {"host": "h", "pid": "x", "started": None}):
        with pytest.raises(ValueError):
            codec.convert(broken, Process)
