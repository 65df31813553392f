"""Runs that are interrupted or killed: what ends, what is kept, what is remembered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import lancestat.tables.work_items
from lancestat import Project
from lancestat.lake.commit import CommitOutcome
from lancestat.report.values import Health
from lancestat.runs.actions import table_figures
from lancestat.runs.events import Cancelling, Event
from lancestat.runs.result import NOT_BEGUN, NodeResult, RunInterrupted, Status
from lancestat.tables.analyze import RangePartials, ScanTask
from lancestat.tables.carriers import EntriesChange, commit
from lancestat.tables.run import TableWorkspace
from lancestat.tables.work_items import ScanRange
from tests.runs.test_scheduler import statuses
from tests.runs.world import orders, write_project


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small fragments are read by themselves, so that runs can be stopped between any two."""
    monkeypatch.setattr(lancestat.tables.work_items, "_FEW", 1_000_000)


FRAGMENTS = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path, "large", "small")
    rows = orders(0, 10 * FRAGMENTS)
    lance.write_dataset(rows, str(tmp_path / "large.lance"), max_rows_per_file=10)
    lance.write_dataset(orders(0, 10), str(tmp_path / "small.lance"))
    return tmp_path


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Let Ctrl-C raise, also where the tests run in the background of a shell, which ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


Interrupt = Callable[[int], None]


@pytest.fixture
def interrupted_after(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Send Ctrl-C to this process when so many fragments of the large table have been read."""

    def install(fragments: int) -> None:
        read, done, lock = ScanTask.read, [0], threading.Lock()

        def reading(task: ScanTask, part: ScanRange) -> RangePartials:
            if "large" in task.pin.uri:
                with lock:
                    done[0] += 1
                    if done[0] == fragments + 1:
                        os.kill(os.getpid(), signal.SIGINT)
                        assert cancelled.wait(60)
            return read(task, part)

        monkeypatch.setattr(ScanTask, "read", reading)

    return install


cancelled = threading.Event()


class Heard:
    """Lets the reading of fragments go on once the run is being cancelled."""

    def __init__(self) -> None:
        cancelled.clear()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Cancelling):
            cancelled.set()


def test_ctrl_c_propagates_and_the_run_is_recorded_as_far_as_it_got(
    folder: Path, interrupted_after: Interrupt
) -> None:
    interrupted_after(7)
    with pytest.raises(KeyboardInterrupt) as caught:
        Project.load(folder).run(threads=2, on_event=Heard())
    assert isinstance(caught.value, RunInterrupted)
    result = caught.value.result
    assert (result.status, result.ok) == (Status.INTERRUPTED, False)
    assert statuses(result)["large"] is Status.INTERRUPTED
    large = next(node for node in result.nodes if node.name == "large")
    stored = large.fragments_scanned or 0
    assert 7 <= stored < FRAGMENTS
    assert f"{stored} fragments of large" in str(caught.value)
    assert str(caught.value).endswith("; lancestat retry goes on")

    project = Project.load(folder)
    [run] = project.state.runs(9)
    assert (run.run_id, run.status) == (result.run_id, "interrupted")
    assert project.state.running() == []
    assert "large" in project.unfinished().nodes
    report = {node.spec.name: node for node in project.report().nodes}
    assert any("Its last run was interrupted" in text for text in report["large"].problems)
    again = project.plan("large")
    assert again.actions[0].figures.fragments_scanned == FRAGMENTS - stored


def test_a_retry_goes_on_where_an_interrupted_run_ended(
    folder: Path, interrupted_after: Interrupt
) -> None:
    interrupted_after(7)
    with pytest.raises(RunInterrupted) as caught:
        Project.load(folder).run(threads=2, on_event=Heard())
    left = [node for node in caught.value.result.nodes if node.status is not Status.SUCCESS]
    retried = Project.load(folder).retry()
    assert statuses(retried) == {node.name: Status.SUCCESS for node in left}
    assert Project.load(folder).unfinished().nodes == ()
    assert all(node.health is Health.OK for node in Project.load(folder).report().nodes)


def test_an_interrupted_run_in_full_keeps_no_fragments(
    folder: Path, interrupted_after: Interrupt
) -> None:
    interrupted_after(7)
    with pytest.raises(RunInterrupted) as caught:
        Project.load(folder).run(threads=2, full_refresh=True, on_event=Heard())
    assert "of large" not in str(caught.value)
    assert Project.load(folder).unfinished().full_refresh


def test_a_run_does_not_wait_for_what_does_not_stop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that hangs, as on a store that does not answer, goes on in its thread."""
    monkeypatch.setattr("lancestat.runs.execute._SECONDS_TO_STOP", 0.05)
    hanging, read = threading.Event(), ScanTask.read

    def hang(task: ScanTask, part: ScanRange) -> RangePartials:
        if "large" in task.pin.uri:
            os.kill(os.getpid(), signal.SIGINT)
            assert hanging.wait(60)
        return read(task, part)

    monkeypatch.setattr(ScanTask, "read", hang)
    with pytest.raises(RunInterrupted) as caught:
        Project.load(folder).run(threads=2)
    assert statuses(caught.value.result)["large"] is Status.INTERRUPTED
    [run] = Project.load(folder).state.runs(9)
    assert run.status == "interrupted"
    hanging.set()


def test_an_interrupt_that_a_thread_of_reading_raises_is_one_of_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars raises Ctrl-C wherever it computes, and the main thread hears of it, too."""
    read, done = ScanTask.read, []

    def raising(task: ScanTask, part: ScanRange) -> RangePartials:
        if "large" in task.pin.uri:
            done.append(part)
            if len(done) == 8:
                os.kill(os.getpid(), signal.SIGINT)
                raise KeyboardInterrupt
        return read(task, part)

    monkeypatch.setattr(ScanTask, "read", raising)
    with pytest.raises(RunInterrupted) as caught:
        Project.load(folder).run(threads=2)
    large = next(node for node in caught.value.result.nodes if node.name == "large")
    assert large.status is Status.INTERRUPTED
    assert large.fragments_scanned and large.fragments_scanned >= 6


def run_large(folder: Path) -> tuple[NodeResult, RunInterrupted]:
    """Run the large table, which is interrupted; return its result and the error."""
    project = Project.load(folder)
    with pytest.raises(RunInterrupted) as caught:
        project.run(project.plan("large"), on_event=Heard())
    [large] = caught.value.result.nodes
    return large, caught.value


def interrupt_commit(monkeypatch: pytest.MonkeyPatch, wait: Callable[[float], object]) -> None:
    """Send Ctrl-C where statistics are committed, which goes on while the run ends."""

    def interrupting(change: EntriesChange, **options: Any) -> CommitOutcome:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(60)
        wait(1.0)
        return commit(change, **options)

    monkeypatch.setattr("lancestat.tables.carriers.commit", interrupting)


def test_a_table_that_is_being_published_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancestat.runs.execute._SECONDS_TO_STOP", 0.05)
    interrupt_commit(monkeypatch, time.sleep)
    large, error = run_large(folder)
    assert (large.status, large.version_published) == (Status.SUCCESS, 2)
    assert "kept: 1 node" in str(error)
    assert lance.dataset(str(folder / "large.lance")).version == 2
    assert [action.verb for action in Project.load(folder).plan("large").actions] == ["skip"]


def test_a_table_that_is_still_being_published_at_the_end_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancestat.runs.execute._SECONDS_TO_STOP", 0.05)
    monkeypatch.setattr("lancestat.runs.execute._SECONDS_TO_PUBLISH", 0.1)
    hanging = threading.Event()
    interrupt_commit(monkeypatch, lambda _: hanging.wait(60))
    large, _ = run_large(folder)
    assert large.status is Status.INTERRUPTED
    assert "its statistics were being published, and may be" in (large.message or "")
    hanging.set()


def test_an_interrupted_run_begins_no_publication(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = TableWorkspace.merge

    def interrupting(workspace: TableWorkspace, version: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(60)
        merge(workspace, version)

    monkeypatch.setattr(TableWorkspace, "merge", interrupting)
    large, error = run_large(folder)
    assert (large.status, large.fragments_scanned) == (Status.INTERRUPTED, FRAGMENTS)
    assert f"Kept {FRAGMENTS} fragments of stopped tables" in str(error.result)
    assert lance.dataset(str(folder / "large.lance")).version == 1
    [again] = Project.load(folder).plan("large").actions
    figures = table_figures(again)
    assert figures is not None and figures.fragments_scanned == 0


def test_nodes_that_had_not_begun_are_one_line(folder: Path, interrupted_after: Interrupt) -> None:
    names = [f"more{number}" for number in range(9)]
    write_project(folder, "large", *names)
    for name in names:
        lance.write_dataset(orders(0, 200), str(folder / f"{name}.lance"), max_rows_per_file=10)
    interrupted_after(0)
    with pytest.raises(RunInterrupted) as caught:
        Project.load(folder).run(threads=1, on_event=Heard())
    result = caught.value.result
    left = [node for node in result.nodes if node.message == NOT_BEGUN]
    assert len(left) > 1
    text = str(result)
    assert f"    stopped  {len(left)} nodes that had not begun (--verbose lists them)" in text
    assert not any(node.name in text for node in left)
    assert "No data was read" not in text


# Runs the project of the folder, and kills itself when the large table is read.
KILLED = """
import os, signal
from lancestat import Project
from lancestat.tables.analyze import ScanTask
def kill(task, part):
    os.kill(os.getpid(), signal.SIGKILL)
ScanTask.read = kill
Project.load(".").run()
"""


@pytest.mark.fault
def test_a_killed_run_is_an_interrupted_one(folder: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, check=False)
    assert killed.returncode == -signal.SIGKILL
    project = Project.load(folder)
    [run] = project.state.runs(9)
    assert (run.status, run.command) == ("interrupted", "run")
    assert run.finished_at == run.started_at
    assert project.state.running() == []
    assert project.unfinished().nodes == ("large", "small")
    [problem] = [text for node in project.report("large").nodes for text in node.problems][-1:]
    assert "the process that ran it was killed" in problem

    assert statuses(project.retry()) == {"large": Status.SUCCESS, "small": Status.SUCCESS}
    # The retry has recorded it for good.
    assert [run.status for run in Project.load(folder).state.runs(9)] == ["success", "interrupted"]
    assert not list((folder / "state").glob("running*"))
    assert Project.load(folder).unfinished().nodes == ()


def test_a_run_that_goes_on_is_a_running_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, read = [], ScanTask.read

    def look(task: ScanTask, part: ScanRange) -> RangePartials:
        state = Project.load(folder).state
        seen.append(([run.run_id for run in state.running()], state.runs(9)))
        return read(task, part)

    monkeypatch.setattr(ScanTask, "read", look)
    result = Project.load(folder).run(threads=1)
    assert seen[0] == ([result.run_id], [])
    assert Project.load(folder).state.running() == []


def test_an_idle_run_leaves_no_mark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Project.load(folder).run()

    def refuse(*args: object) -> None:
        raise AssertionError("nothing has begun")

    monkeypatch.setattr("lancestat.state.store.LanceState.begin_run", refuse)
    assert Project.load(folder).run().ok


def test_a_mark_that_does_not_decode_is_left_out(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], cwd=folder, check=False)
    [mark] = (folder / "state" / "running").iterdir()
    for damaged in ("", "[1]", "{}", '[{"run_id": 1}]', mark.read_text()[:-9]):
        mark.write_text(damaged)
        assert Project.load(folder).state.runs(9) == []
    assert Project.load(folder).run().ok
    assert not list((folder / "state").glob("running*"))
