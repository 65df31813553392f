"""Scratch folders: made, kept alive, removed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import JobFailed, OutputNotWritten, RunError
from lancestat.joins.scratch.folder import HEARTBEAT, MARKER, scratch
from lancestat.lake import files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def now() -> datetime:
    return datetime.now(timezone.utc)


def fill(folder: str) -> None:
    lance.write_dataset(pa.table({"x": list(range(1000))}), f"{folder}/right.lance")


def left_below(root: Path) -> list[Path]:
    return list(root.rglob("*"))


def test_a_join_has_its_own_folder_that_is_removed_afterwards(root: Path) -> None:
    began = now()
    with scratch(str(root), "local-1", {}) as one, scratch(str(root), "local-1", {}) as two:
        assert one != two
        for folder in (one, two):
            assert Path(folder).parent == root / "local-1"
            marker = json.loads((Path(folder) / MARKER).read_text())
            assert (marker["format_version"], marker["application"]) == (1, "local-1")
            assert marker["process"]["pid"] == os.getpid()
            assert began <= datetime.fromisoformat(marker["created_at"]) <= now()
            fill(folder)
    assert left_below(root) == []


@pytest.mark.parametrize("application", ["../../out", "/etc", "a/b", "..", "", "app é"])
def test_names_of_applications_stay_inside_the_root(root: Path, application: str) -> None:
    with scratch(str(root), application) as folder:
        assert Path(folder).parent.parent == root
    assert left_below(root) == []


@pytest.mark.parametrize("error", [ValueError, RunError, KeyboardInterrupt, SystemExit])
def test_a_folder_is_removed_after_a_failure(root: Path, error: type[BaseException]) -> None:
    raised = JobFailed("no") if error is RunError else error()
    with pytest.raises(error) as caught, scratch(str(root), "app", settle_seconds=0) as folder:
        fill(folder)
        raise raised
    assert caught.value is raised
    assert left_below(root) == []


def test_a_folder_is_removed_when_its_block_is_never_left(root: Path) -> None:
    entered = scratch(str(root), "app", settle_seconds=0)
    entered.__enter__()
    assert left_below(root)
    del entered
    assert left_below(root) == []


def test_late_files_of_cancelled_tasks_are_removed(root: Path) -> None:
    done = threading.Event()

    def straggle(folder: Path) -> None:
        while not done.wait(0.02):
            target = folder / "right.lance" / "data"
            try:
                target.mkdir(parents=True, exist_ok=True)
                (target / "late.lance").write_bytes(b"late")
            except FileNotFoundError:
                continue

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ValueError, match="cancelled"),
        scratch(str(root), "app", settle_seconds=1.5) as entered,
    ):
        pool.submit(straggle, Path(entered))
        threading.Timer(0.7, done.set).start()
        raise ValueError("cancelled")
    assert left_below(root) == []


def test_runs_of_one_application_do_not_remove_each_other(root: Path) -> None:
    """The application's folder is created and removed with the runs in it."""

    def run(number: int) -> None:
        with scratch(str(root), "app") as folder:
            (Path(folder) / "mine").write_text(str(number))
            time.sleep(0.001)
            assert (Path(folder) / "mine").read_text() == str(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(200)))
    assert left_below(root) == []


class Beats:
    """A clock that counts how often a heartbeat has asked for the time."""

    def __init__(self) -> None:
        self.instants: list[datetime] = []
        self._asked = threading.Semaphore(0)

    def __call__(self) -> datetime:
        self.instants.append(now())
        self._asked.release()
        return self.instants[-1]

    def wait_for(self, more: int) -> None:
        """Wait until the time was asked for so often again: all beats but the last are written."""
        wanted = len(self.instants) + more
        while len(self.instants) < wanted:
            assert self._asked.acquire(timeout=60), "the heart does not beat"


def test_the_heartbeat_of_a_folder_is_updated(root: Path) -> None:
    beats = Beats()
    with scratch(str(root), "app", clock=beats, beat_every=timedelta(milliseconds=5)) as folder:
        written = []
        for _ in range(3):
            beats.wait_for(2)
            written.append(datetime.fromisoformat((Path(folder) / HEARTBEAT).read_text()))
    assert written == sorted(set(written))
    assert set(written) <= set(beats.instants)


def test_a_failing_heartbeat_does_not_fail_the_join(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beats = Beats()
    with scratch(str(root), "app", clock=beats, beat_every=timedelta(milliseconds=5)) as folder:
        shutil.rmtree(folder)
        beats.wait_for(2)
    assert "the heartbeat of scratch failed" in caplog.text
    assert left_below(root) == []


def test_a_failed_removal_is_logged_and_does_not_hide_errors(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_remove_folder", busy)
    monkeypatch.setattr(files, "_PAUSE_SECONDS", 0)
    with pytest.raises(ValueError, match="of the join"), scratch(str(root), "app") as folder:
        raise ValueError("of the join")
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert folder in warning.getMessage()
    assert "Permission denied" in warning.getMessage()


def test_an_unusable_root_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as caught, scratch(str(tmp_path / "file"), "app"):
        pass
    assert caught.value.code == "LS583"
    assert str(tmp_path / "file") in caught.value.message


def test_links_inside_are_removed_and_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    with scratch(str(root), "app") as folder:
        (Path(folder) / "link").symlink_to(outside)
        (Path(folder) / "file").symlink_to(outside / "precious")
    assert left_below(root) == []
    assert (outside / "precious").read_text() == "mine"


# The messages of Python and Lance.
FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(
        "LanceError(IO): Encountered internal error. Please file a bug report: failed to write: "
        "Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)"
    ),
    JobFailed("computing the right side failed: No space left on device"),
)


@pytest.mark.parametrize("error", FULL, ids=range(len(FULL)))
def test_a_full_disk_is_one_clear_error(root: Path, error: Exception) -> None:
    with pytest.raises(RunError) as caught, scratch(str(root), "app", settle_seconds=0) as folder:
        fill(folder)
        raise error
    assert caught.value.code == "LS581"
    assert caught.value.message == f"no space is left in the scratch folder {root}"
    assert left_below(root) == []


def test_a_full_disk_at_the_first_file_is_one_clear_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise FULL[0]

    monkeypatch.setattr(files.FolderStorage, "write", full)
    with pytest.raises(RunError) as caught, scratch(str(root), "app", settle_seconds=0):
        pass
    assert caught.value.code == "LS581"
    assert left_below(root) == []


def test_a_full_disk_of_the_output_is_not_an_error_of_scratch(root: Path) -> None:
    raised = OutputNotWritten("the result does not fit: No space left on device")
    with pytest.raises(RunError) as caught, scratch(str(root), "app", settle_seconds=0):
        raise raised
    assert caught.value is raised
