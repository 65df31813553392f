"""Scratch folders: made, kept alive, removed."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancestat.errors import JobFailed, OutputNotWritten, RunError
from lancestat.joins.scratch.folder import HEARTBEAT, MARKER, encode, scratch
from lancestat.joins.scratch.garbage import ScratchGarbage
from lancestat.joins.scratch.kept_indexes import IndexStore
from lancestat.lake import files
from lancestat.lake.files import Process, this_process
from tests.integration.object_store import ObjectStore
from tests.joins.search.results import files_below


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


ROOT = Path(__file__).parents[3]
NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
ELSEWHERE = Process("another host", 1, 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def swept(
    root: Path | str,
    options: Mapping[str, str] | None = None,
    *,
    now: datetime = NOW,
    dry_run: bool = False,
) -> ScratchGarbage:
    return ScratchGarbage(IndexStore(str(root), options or {}), now, dry_run).collect("", {})


def left_by(
    root: Path,
    name: str = "app/0123456789abcdef",
    *,
    process: Process = ELSEWHERE,
    created: datetime = NOW - 60 * MINUTE,
    beat: datetime | str | None = None,
) -> Path:
    """A folder as a killed join leaves it."""
    folder = root / name
    (folder / "right.lance" / "data").mkdir(parents=True)
    (folder / "right.lance" / "data" / "rows.lance").write_bytes(b"x" * 1000)
    (folder / MARKER).write_text(encode("app", process, created))
    if beat is not None:
        text = beat if isinstance(beat, str) else beat.isoformat()
        (folder / HEARTBEAT).write_text(text)
    return folder


def test_folders_of_dead_joins_are_removed(root: Path) -> None:
    folder = left_by(root, beat=NOW - 11 * MINUTE)
    size = sum((folder / path).stat().st_size for path in files_below(folder))
    for dry_run in (True, False):
        assert folder.exists()
        garbage = swept(root, dry_run=dry_run)
        assert (garbage.folders, garbage.size_bytes) == ([str(folder)], size)
        assert garbage.left == []
    assert list(root.iterdir()) == []
    assert swept(root).folders == []


def test_a_folder_of_a_live_join_is_kept(root: Path) -> None:
    here = this_process()
    assert here.started is not None
    gone = Process(here.host, here.pid, here.started - 1)
    live = [
        left_by(root, "app/beats", beat=NOW - 9 * MINUTE),
        left_by(root, "app/clock", beat=NOW + 9 * MINUTE),
        left_by(root, "app/fresh", created=NOW - 9 * MINUTE),
        left_by(root, "other/broken-beat", created=NOW - 9 * MINUTE, beat="?"),
        left_by(root, "other/suspended", process=here, beat=NOW - 60 * MINUTE),
    ]
    dead = [
        left_by(root, "app/number-was-reused", process=gone, beat=NOW - MINUTE),
        left_by(root, "dead/stopped", beat=NOW - 10 * MINUTE),
        left_by(root, "dead/never-beat"),
        left_by(root, "dead/broken-beat", beat="?"),
    ]
    garbage = swept(root)
    assert set(garbage.folders) == {str(folder) for folder in dead}
    assert all(folder.exists() for folder in live)
    assert not any(folder.exists() for folder in dead)
    assert not (root / "dead").exists()


def test_folders_without_a_marker_are_kept(root: Path) -> None:
    foreign = root / "app" / "0123456789abcdef"
    foreign.mkdir(parents=True)
    (foreign / "rows.lance").write_text("mine")
    (root / "precious").write_text("mine")
    (root / MARKER).write_text(encode("app", ELSEWHERE, NOW - 60 * MINUTE))
    left_by(root, "app/deeper/than/that")
    left_by(root, "shallow")
    before = files_below(root)
    assert swept(root).folders == []
    assert files_below(root) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"format_version": 2}',
        json.dumps({**json.loads(encode("a", ELSEWHERE, NOW)), "created_at": "yesterday"}),
        json.dumps({**json.loads(encode("a", ELSEWHERE, NOW)), "created_at": "2020-01-01"}),
        json.dumps({**json.loads(encode("a", ELSEWHERE, NOW)), "process": {"pid": "x"}}),
    ],
)
def test_a_folder_with_a_broken_marker_is_kept_and_reported(root: Path, text: str) -> None:
    folder = left_by(root)
    (folder / MARKER).write_text(text)
    garbage = swept(root)
    assert garbage.folders == []
    [(uri, reason)] = garbage.left
    assert uri == str(folder)
    assert "its marker cannot be understood" in reason
    assert (folder / "right.lance" / "data" / "rows.lance").exists()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder elsewhere that looks like one of a dead join."""
    return left_by(tmp_path / "outside")


def test_links_are_not_followed(root: Path, outside: Path) -> None:
    before = files_below(outside)
    left_by(root, "app/dead")
    (root / "app" / "run").symlink_to(outside)
    (root / "application").symlink_to(outside.parent)
    (root / "app" / "dead" / "inside").symlink_to(outside)
    (root / "app" / "dead" / "file").symlink_to(outside / MARKER)
    marked = root / "app" / "marked"
    marked.mkdir()
    (marked / MARKER).symlink_to(outside / MARKER)
    assert swept(root).folders == [str(root / "app" / "dead")]
    assert files_below(outside) == before
    assert (root / "app" / "run").is_symlink()
    assert (root / "application").is_symlink()
    assert marked.exists()


def test_the_root_may_be_a_link(root: Path, tmp_path: Path) -> None:
    """A declared root is followed even if it is a link."""
    folder = left_by(root)
    link = tmp_path / "link"
    link.symlink_to(root)
    assert len(swept(link).folders) == 1
    assert not folder.exists()


def test_a_root_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    assert swept(tmp_path / "none").folders == []


def test_a_folder_that_cannot_be_removed_is_reported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder = left_by(root)
    monkeypatch.setattr(files, "_remove_folder", busy)
    monkeypatch.setattr(files, "_PAUSE_SECONDS", 0)
    garbage = swept(root)
    assert garbage.folders == []
    [(uri, reason)] = garbage.left
    assert uri == str(folder)
    assert "Permission denied" in reason


@pytest.mark.parametrize("question", ["children", "read"])
def test_unreadable_folders_do_not_stop_the_collection(
    root: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    own, other = left_by(root, "b/own"), left_by(root, "a/other")
    asked = getattr(files.FolderStorage, question)

    def denied(self: files.FolderStorage, path: str) -> object:
        if path.startswith("a"):
            raise PermissionError(13, "Permission denied")
        return asked(self, path)

    monkeypatch.setattr(files.FolderStorage, question, denied)
    garbage = swept(root)
    assert garbage.folders == [str(own)]
    assert [reason for _, reason in garbage.left] == ["Permission denied"]
    assert other.exists()


def test_an_unreadable_root_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as caught:
        swept(tmp_path / "file")
    assert caught.value.code == "LS583"


def test_a_collection_that_is_killed_is_finished_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker is removed last."""

    def killed(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    folder = left_by(root)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        swept(root)
    assert files_below(folder) == {MARKER}
    assert len(swept(root).folders) == 1
    assert not folder.exists()


def test_collections_do_not_disturb_joins_that_begin(root: Path) -> None:
    ended = []

    def join(number: int) -> None:
        with scratch(str(root), f"app{number % 2}") as folder:
            file = Path(folder) / "rows"
            file.write_text(str(number))
            assert file.read_text() == str(number)
        ended.append(number)

    def collect(number: int) -> None:
        assert swept(root, now=datetime.now(timezone.utc)).folders == []

    with ThreadPoolExecutor(8) as pool:
        joins = pool.map(join, range(100))
        collections = pool.map(collect, range(100))
        assert [*joins, *collections] == [None] * 200
    assert list(root.iterdir()) == []
    assert len(ended) == 100


JOIN = """
import sys, time
from pathlib import Path
from lancestat.joins.scratch.folder import scratch

with scratch(sys.argv[1], "app", settle_seconds=0) as found:
    (Path(found) / "rows").write_bytes(b"x" * 5000)
    print(found, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def join(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of a join."""
    with subprocess.Popen(
        [sys.executable, "-c", JOIN, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_a_killed_join_is_removed_at_once(root: Path, join: subprocess.Popen[str]) -> None:
    assert join.stdout is not None
    folder = join.stdout.readline().strip()
    now = datetime.now(timezone.utc)
    assert swept(root, now=now + timedelta(days=1)).folders == []
    join.send_signal(signal.SIGKILL)
    join.wait(timeout=60)
    assert Path(folder).exists()
    garbage = swept(root, now=now)
    assert garbage.folders == [folder] and garbage.size_bytes > 5000
    assert list(root.iterdir()) == []


def test_an_interrupted_join_leaves_nothing(root: Path, join: subprocess.Popen[str]) -> None:
    assert join.stdout is not None
    assert join.stdout.readline()
    join.send_signal(signal.SIGINT)
    assert join.wait(timeout=60) != 0
    assert list(root.iterdir()) == []


@pytest.mark.s3
def test_scratch_in_an_object_store_is_removed(object_store: ObjectStore) -> None:
    import lance
    import pyarrow as pa

    root, options = object_store.fresh_uri("scratch"), object_store.storage_options

    def objects() -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(root.removeprefix("s3://"), recursive=True, allow_not_found=True)
        files = object_store.filesystem().get_file_info(selector)
        return [file.path.rpartition("/")[2] for file in files if file.is_file]

    now = datetime.now(timezone.utc)
    assert swept(root, options, now=now).folders == []
    with pytest.raises(ValueError, match="join"), scratch(root, "app", options) as folder:
        uri = f"{folder}/right.lance"
        lance.write_dataset(pa.table({"x": [1]}), uri, storage_options=dict(options))
        assert MARKER in objects()
        assert swept(root, options, now=now + timedelta(days=1)).folders == []
        raise ValueError("join")
    assert objects() == []
    store = files.storage_at(root, options)
    for name in ("app/dead", "app/live", "app/broken"):
        store.write(f"{name}/rows", "x" * 100)
        store.write(f"{name}/{MARKER}", encode("app", ELSEWHERE, now - 60 * MINUTE))
    store.write(f"app/live/{HEARTBEAT}", now.isoformat())
    store.write(f"app/broken/{MARKER}", "{")
    store.write("app/foreign/rows", "mine")
    for dry_run in (True, False):
        found_by = swept(root, options, now=now, dry_run=dry_run)
        assert found_by.folders == [f"{root}/app/dead"]
        assert [uri for uri, _ in found_by.left] == [f"{root}/app/broken"]
    assert sorted(objects()) == sorted([MARKER] * 2 + ["rows"] * 3 + [HEARTBEAT])


@pytest.mark.s3
def test_an_object_store_that_denies_access_is_reported(object_store: ObjectStore) -> None:
    options = {**object_store.storage_options, "aws_secret_access_key": "wrong-and-hidden"}
    root = object_store.fresh_uri("scratch")
    with pytest.raises(RunError) as caught:
        swept(root, options)
    assert caught.value.code == "LS583"
    with pytest.raises(RunError) as caught, scratch(root, "app", options, settle_seconds=0):
        pass
    assert caught.value.code == "LS583"
    assert "wrong-and-hidden" not in str(caught.value)


KILLED_WHILE_MARKING = """
import os, signal, sys
from lancestat.lake.files import FolderStorage
from lancestat.joins.scratch.folder import scratch

point = sys.argv[2]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if point == "made":
    FolderStorage.write = die
else:
    import pathlib
    pathlib.Path.replace = die
with scratch(sys.argv[1], "app"):
    pass
"""


@pytest.mark.parametrize("point", ["made", "drafted"])
def test_folders_of_processes_killed_before_marking_are_removed(root: Path, point: str) -> None:
    """And nothing that it did not make, or that holds anything else."""
    command = [sys.executable, "-c", KILLED_WHILE_MARKING, str(root), point]
    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    [folder] = root.glob("app/*")
    assert len(list(folder.iterdir())) == (point == "drafted")
    (folder / "notes.txt").write_text("mine")
    assert swept(root).folders == []
    (folder / "notes.txt").unlink()
    assert len(swept(root).folders) == 1
    assert list(root.iterdir()) == []


def test_a_folder_without_a_marker_stays_while_its_process_lives(root: Path) -> None:
    folder = root / "app" / f"{this_process().tag}-0123456789abcdef"
    folder.mkdir(parents=True)
    assert swept(root).folders == []
    assert folder.is_dir()
