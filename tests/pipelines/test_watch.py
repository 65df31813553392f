"""`lancestat watch`: rounds in this process, and a process that is ended."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.cli.main import Terminated, raise_once
from lancestat.errors import StateWatched
from lancestat.lake.files import this_process
from lancestat.lake.open import LatestVersions
from lancestat.pipelines import watch as module
from lancestat.pipelines.watch import LEASE, Outcome, Watcher, run_apart, run_due, sole_watcher
from lancestat.runs.actions import Plan, Reason, Skip
from lancestat.runs.result import RunResult
from lancestat.tables.action import FoldPartials
from tests.runs.world import Clock, orders, write_project

pytestmark = pytest.mark.whole

HERE = {"name": "here", "uri": "here.lance"}
MINUTE = timedelta(minutes=1)


class Watched:
    """A project with a table that is watched, and what is planned and run of it."""

    def __init__(self, folder: Path, *tables: dict[str, object]) -> None:
        self.uri = str(folder / "here.lance")
        lance.write_dataset(orders(0, 30), self.uri)
        self.project = write_project(folder, *(tables or (HERE,)))
        self.clock = Clock(datetime.now(timezone.utc))
        self.plans = 0
        self.runs: list[list[str]] = []
        watcher = Watcher(
            lambda: (self.project.spec, self.project.nodes()),
            partial(run_due, self._plan, self._execute),
            MINUTE,
            self.clock,
        )
        self._rounds: Iterator[timedelta] = watcher.rounds()

    def _plan(self) -> Plan:
        self.plans += 1
        return self.project.plan()

    def _execute(self, plan: Plan) -> RunResult:
        self.runs.append([action.node for action in plan.actions])
        return self.project.run(plan)

    def round(self) -> timedelta:
        """Go once round, and return how long is waited then."""
        pause = next(self._rounds)
        self.clock.advance(seconds=pause.total_seconds())
        return pause

    def append(self) -> None:
        lance.write_dataset(orders(30, 40), self.uri, mode="append")


def broken_file(dataset: Path) -> tuple[Path, bytes]:
    """Write a dataset whose data file is empty; return the file and what it had."""
    lance.write_dataset(orders(0, 30), str(dataset))
    [data] = (dataset / "data").iterdir()
    content = data.read_bytes()
    data.write_bytes(b"")
    return data, content


def test_what_is_due_is_run_and_what_is_not_is_not_even_planned(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.round() == MINUTE
    assert watched.runs == [["here"]]
    # The version that the run itself has committed.
    watched.round()
    plans = watched.plans
    for _ in range(5):
        watched.round()
    assert (watched.plans, watched.runs) == (plans, [["here"]])
    watched.append()
    watched.round()
    assert watched.runs == [["here"], ["here"]]


def test_what_is_skipped_is_run_where_its_partials_are_folded() -> None:
    folded, idle = (
        Skip(name, (Reason.UNCHANGED,), None, stages=stages)
        for name, stages in (("folded", (FoldPartials(2),)), ("idle", ()))
    )
    plans: list[Plan] = []

    def execute(plan: Plan) -> RunResult:
        plans.append(plan)
        return RunResult(plan.project, plan.target, ())

    run_due(lambda: Plan("shop", "dev", (folded, idle)), execute, ())
    assert [plan.actions for plan in plans] == [(folded,)]


def test_a_plan_is_made_now_and_then_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    monkeypatch.setattr(module, "PLANNED_EVERY", 4 * MINUTE)
    for _ in range(3):
        watched.round()
    plans = watched.plans
    for _ in range(8):
        watched.round()
    assert watched.plans == plans + 2
    assert watched.runs == [["here"]]


def test_what_fails_is_tried_again_ever_later(tmp_path: Path) -> None:
    watched = Watched(tmp_path, HERE, {"name": "broken", "uri": "broken.lance"})
    data, content = broken_file(tmp_path / "broken.lance")
    tried = []
    for minute in range(16):
        before = len(watched.runs)
        watched.round()
        tried += [minute] * (len(watched.runs) > before)
    assert watched.runs[0] == ["here", "broken"]
    assert watched.runs[1:] == [["broken"]] * (len(tried) - 1)
    # After two minutes, four, eight.
    assert tried == [0, 2, 6, 14]
    # A failure does not keep others waiting.
    watched.append()
    watched.round()
    assert watched.runs[-1] == ["here"]
    data.write_bytes(content)
    for _ in range(20):
        watched.round()
    assert watched.runs[-1] == ["broken"]
    assert watched.project.plan("broken").actions[0].verb == "skip"


def test_what_is_mended_elsewhere_is_not_planned_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, HERE, {"name": "broken", "uri": "broken.lance"})
    data, content = broken_file(tmp_path / "broken.lance")
    watched.round()
    data.write_bytes(content)
    assert watched.project.run(select="broken").status == "success"
    for _ in range(3):
        watched.round()
    plans = watched.plans
    for _ in range(5):
        watched.round()
    assert (watched.plans, watched.runs) == (plans, [["here", "broken"]])


def test_what_cannot_be_planned_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path, HERE, {"name": "gone", "uri": "gone.lance"})
    with caplog.at_level(logging.WARNING, "lancestat.watch"):
        for _ in range(3):
            watched.append()
            watched.round()
    [record] = caplog.records
    assert "'gone' is blocked, LS201" in record.getMessage()
    lance.write_dataset(orders(0, 30), str(tmp_path / "gone.lance"))
    watched.round()
    assert watched.runs[-1] == ["gone"]


def test_a_state_that_cannot_be_reached_is_asked_ever_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path)
    state = tmp_path / "state"
    state.write_text("no folder", "utf-8")
    with caplog.at_level(logging.WARNING, "lancestat.watch"):
        pauses = [watched.round() for _ in range(8)]
    assert pauses[:3] == [2 * MINUTE, 4 * MINUTE, 8 * MINUTE]
    assert pauses[-1] == timedelta(hours=1)
    assert len(caplog.records) == 8
    state.unlink()
    assert watched.round() == MINUTE
    assert watched.runs == [["here"]]


def test_versions_are_those_of_datasets_as_they_are(tmp_path: Path) -> None:
    uri, gone = str(tmp_path / "a.lance"), str(tmp_path / "gone.lance")
    lance.write_dataset(orders(0, 3), uri)
    latest = LatestVersions({uri: {}, gone: {}})
    assert latest.get() == {uri: 1, gone: None}
    lance.write_dataset(orders(3, 6), uri, mode="append")
    lance.write_dataset(orders(0, 3), gone)
    assert latest.get() == {uri: 2, gone: 1}
    shutil.rmtree(uri)
    assert latest.get() == {uri: None, gone: 1}


@pytest.mark.parametrize("is_v2", [True, False])
def test_versions_in_folders_are_those_that_lance_says(tmp_path: Path, is_v2: bool) -> None:
    uri = str(tmp_path / "a b.lance")
    lance.write_dataset(orders(0, 3), uri, enable_v2_manifest_paths=is_v2)
    latest = LatestVersions({uri: {}, f"file://{tmp_path}/a%20b.lance": {}})
    for number in range(1, 12):
        assert {*latest.get().values()} == {lance.dataset(uri).latest_version} == {number}
        lance.write_dataset(orders(3, 6), uri, mode="append")


def test_one_process_watches_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEWED_EVERY", timedelta(milliseconds=20))
    Watched(tmp_path)
    state, other = Project.load(tmp_path).state, Project.load(tmp_path).state
    clock = Clock(datetime.now(timezone.utc))
    folder = tmp_path / "state" / "watching"
    with sole_watcher(state, clock):
        with pytest.raises(StateWatched), sole_watcher(other, clock):
            pass
        first = {file.name for file in folder.iterdir()}
        # A run may take longer than the lease, which is renewed meanwhile.
        while first & {file.name for file in folder.iterdir()}:
            time.sleep(0.01)
        names = {file.name for file in folder.iterdir()}
        assert all(this_process().tag in name for name in names)
    assert not (tmp_path / "state" / "watching").exists()
    with sole_watcher(other, clock):
        pass


@pytest.mark.parametrize(("ago", "is_held"), [(LEASE / 2, True), (LEASE * 2, False)])
def test_a_process_of_another_host_counts_for_a_while(
    tmp_path: Path, ago: timedelta, is_held: bool
) -> None:
    Watched(tmp_path)
    folder = tmp_path / "state" / "watching"
    folder.mkdir(parents=True)
    host, *rest = this_process().tag.split("-")
    started = int(time.time() - ago.total_seconds())
    (folder / "-".join(["0" * len(host), *rest, str(started), "abcdef"])).touch()
    state, clock = Project.load(tmp_path).state, Clock(datetime.now(timezone.utc))
    if is_held:
        with pytest.raises(StateWatched), sole_watcher(state, clock):
            pass
        return
    with sole_watcher(state, clock):
        assert len(list(folder.iterdir())) == 1


def test_sigterm_ends_it_with_success(tmp_path: Path) -> None:
    Watched(tmp_path)
    command = [sys.executable, "-m", "lancestat", "watch", "--interval", "1s"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines = []
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if "here: analyze" in line:
                break
        process.send_signal(signal.SIGTERM)
        lines += process.stderr
        assert process.wait(60) == 0
    assert lines[0].startswith("watching shop")
    assert lines[-1] == "stopped\n"
    assert [run.status for run in Project.load(tmp_path).runs()] == ["success"]
    assert not (tmp_path / "state" / "watching").exists()
    assert (tmp_path / "target" / "run_results.json").exists()


def test_a_round_has_a_process_of_its_own(tmp_path: Path) -> None:
    Watched(tmp_path)
    command = [sys.executable, "-m", "lancestat", "--project-dir", str(tmp_path), "watch"]
    done = run_apart([*command, "--round"], ())
    assert done == Outcome({"here": False})
    lance.write_dataset(orders(30, 40), str(tmp_path / "here.lance"), mode="append")
    assert run_apart([*command, "--round"], ["here"]) == Outcome()
    shutil.rmtree(tmp_path / "here.lance")
    blocked = run_apart([*command, "--round"], ())
    assert list(blocked.blocked) == ["here"]
    assert blocked.blocked["here"].startswith("LS201: ")
    (tmp_path / "lancestat_project.yml").write_text("name: [", "utf-8")
    assert run_apart([*command, "--round"], ()).error == "a round ended with exit code 1"


def test_a_round_that_cannot_begin_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    error = run_apart([sys.executable], ()).error
    assert error is not None
    assert error.startswith("a round cannot begin: ")


def test_what_ends_the_watch_ends_its_round_first(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    slow = (
        "import pathlib, signal, sys, time\n"
        f"ended = pathlib.Path({str(ended)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(ended.touch()))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    code = (
        "import sys\n"
        "from lancestat.pipelines.watch import run_apart\n"
        f"run_apart([sys.executable, '-c', {slow!r}], ())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert ended.exists()


def test_a_second_sigterm_does_not_kill_a_round() -> None:
    before = signal.signal(signal.SIGTERM, raise_once)
    try:
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interval_is_a_duration(tmp_path: Path) -> None:
    Watched(tmp_path)
    for text in ("0s", "soon", "-1m", "1"):
        command = [sys.executable, "-m", "lancestat", "watch", "--interval", text]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 2
        assert "is not a duration such as 90s" in result.stderr


def test_a_selection_of_nothing_ends_it_at_once(tmp_path: Path) -> None:
    Watched(tmp_path)
    command = [sys.executable, "-m", "lancestat", "watch", "--select", "nosuch"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, "LS402" in result.stderr) == (2, True), result.stderr


def test_what_the_budget_defers_is_no_failure(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    local = {"state": "state", "spark": {"master": "local[2]"}}
    watched.project = write_project(tmp_path, HERE, target={**local, "budget": {"bytes": "1B"}})
    for _ in range(3):
        assert watched.round() == MINUTE
    # Nothing is run in vain, and nothing is planned again before the next plan is due.
    assert (watched.plans, watched.runs) == (1, [])
    watched.project = write_project(tmp_path, HERE, target=local)
    for _ in range(10):
        watched.round()
    assert watched.runs == [["here"]]
