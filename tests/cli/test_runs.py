"""`lancestat runs`: past runs, from the state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import Result

from lancestat import Project
from lancestat.errors import DatasetMissing, UnknownRun
from lancestat.runs.result import NodeResult, PastRun, Status, failed, interrupted, past_run
from lancestat.state.values import NodeRun, RunRecord
from tests.cli.conftest import Lancestat
from tests.conftest import Golden
from tests.runs.world import write_project

DONE = NodeResult(
    "orders",
    "table",
    "refresh",
    ("rows_appended",),
    Status.SUCCESS,
    fragments_total=17,
    fragments_scanned=1,
    rows_scanned=250_000,
    version_read=17,
    version_published=18,
    elapsed_seconds=1.25,
)
IDLE = replace(DONE, name="part", action="skip", reasons=("unchanged",))
FAILED = failed(replace(DONE, name="part"), DatasetMissing("it is not there", hint="is it moved?"))
LEFT = interrupted(replace(DONE, name="returns", fragments_scanned=9), "the run was interrupted", 4)
NIGHT = datetime(2026, 3, 1, 4, 0, tzinfo=timezone.utc)


def record(
    number: int, status: str, *nodes: NodeResult, target: str = "dev", seconds: float = 75.5
) -> RunRecord:
    started = NIGHT + timedelta(days=number)
    return RunRecord(
        f"{number}{number + 1}" * 8,
        "retry" if number == 2 else "run",
        target,
        started,
        started + timedelta(seconds=seconds),
        status,
        tuple(NodeRun(n.name, n.kind, "d", n.to_json(), None) for n in nodes),
    )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, "orders", "part", "returns")
    project = Project.load(tmp_path)
    project.state.add_run(record(1, "success", DONE, IDLE))
    project.state.add_run(record(2, "error", DONE, FAILED))
    project.state.add_run(record(3, "success", DONE, target="prod"))
    project.state.add_run(record(4, "interrupted", IDLE, LEFT))
    project.state.begin_run(record(5, "interrupted", LEFT, seconds=0))
    return project


@pytest.fixture
def run(lancestat: Lancestat, shop: Project) -> Callable[..., Result]:
    def call(*arguments: str) -> Result:
        result = lancestat("runs", *arguments)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        return result

    return call


def test_runs_lists_the_runs_of_the_target_newest_first(
    run: Callable[..., Result], golden: Golden
) -> None:
    golden("cli/runs.txt", run().stdout)
    golden("cli/runs.json", run("--output", "json").stdout)


def test_runs_shows_the_nodes_of_one_run(run: Callable[..., Result], golden: Golden) -> None:
    golden("cli/runs_one.txt", run("232").stdout)
    golden("cli/runs_interrupted.txt", run("45").stdout)
    golden("cli/runs_one.json", run("232", "--output", "json").stdout)


def test_the_number_of_runs_is_limited(run: Callable[..., Result]) -> None:
    listed = json.loads(run("--limit", "2", "--output", "json").stdout)["runs"]
    assert [run["status"] for run in listed] == ["running", "interrupted"]


@pytest.mark.parametrize("run_id", ["9", "3434"])
def test_an_unknown_run_is_an_error(lancestat: Lancestat, shop: Project, run_id: str) -> None:
    result = lancestat("runs", run_id)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"LS518  no run '{run_id}' is recorded" in result.stderr


def test_a_beginning_that_several_ids_have_is_an_error() -> None:
    runs = [PastRun(name, "run", "dev", "success", NIGHT, NIGHT, ()) for name in ("ab1", "ab2")]
    assert past_run(runs, "ab2").run_id == "ab2"
    with pytest.raises(UnknownRun, match="2 runs begin with 'ab'"):
        past_run(runs, "ab")
    for known in (runs, runs[:1], []):
        with pytest.raises(UnknownRun, match="the ID of a run is empty"):
            past_run(known, "")


def test_no_run_is_recorded(lancestat: Lancestat, tmp_path: Path) -> None:
    write_project(tmp_path, "orders")
    assert lancestat("runs").stdout == "No run of target dev is recorded.\n"
    assert Project.load(tmp_path).runs() == ()
