"""Plans in files, runs, retries and past runs, as they are typed; nothing here needs Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pytest
from click.testing import Result

from lancestat import Project
from lancestat.errors import DatasetMissing, UnknownRun
from lancestat.runs.result import NodeResult, PastRun, Status, failed, interrupted, past_run
from lancestat.state.values import NodeRun, RunRecord
from tests.cli.conftest import FakeProject, Lancestat
from tests.conftest import Golden
from tests.runs.test_project import run_locally
from tests.runs.world import orders, write_project

FINISHED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose tables are analyzed, in the current folder."""
    write_project(tmp_path, "orders", "returns")
    for name in ("orders", "returns"):
        lance.write_dataset(orders(0, 50), str(tmp_path / f"{name}.lance"), max_rows_per_file=25)
    run_locally(Project.load(tmp_path))
    return tmp_path


def append(folder: Path) -> None:
    lance.write_dataset(orders(50, 1), str(folder / "orders.lance"), mode="append")


def test_a_plan_is_written_and_printed(folder: Path, lancestat: Lancestat) -> None:
    append(folder)
    plain = lancestat("plan")
    result = lancestat("plan", "--out", "plan.json")
    assert (result.exit_code, result.stdout) == (0, plain.stdout)
    assert result.stderr == "the plan is in plan.json, for 'lancestat run --plan-file'\n"
    stored = json.loads((folder / "plan.json").read_text())
    printed = json.loads(lancestat("plan", "--output", "json").stdout)
    assert [node["plan"] for node in stored["nodes"]] == printed["nodes"]


def test_a_blocked_plan_is_written_and_fails(folder: Path, lancestat: Lancestat) -> None:
    lance.LanceDataset.drop(str(folder / "orders.lance"), {})
    assert lancestat("plan", "--out", "plan.json").exit_code == 1
    result = lancestat("run", "--plan-file", "plan.json")
    assert (result.exit_code, "LS201" in result.stdout) == (1, True)


def test_a_current_plan_is_run(folder: Path, lancestat: Lancestat) -> None:
    lancestat("plan", "-s", "orders", "--out", "plan.json")
    result = lancestat("run", "--plan-file", "plan.json", "--output", "json")
    assert result.exit_code == 0
    assert [node["name"] for node in json.loads(result.stdout)["nodes"]] == ["orders"]


def test_an_outdated_plan_is_refused(folder: Path, lancestat: Lancestat, golden: Golden) -> None:
    lancestat("plan", "--out", "plan.json")
    append(folder)
    lance.LanceDataset.drop(str(folder / "returns.lance"), {})
    result = lancestat("run", "--plan-file", "plan.json")
    assert (result.exit_code, result.stdout) == (1, "")
    golden("cli/plan_moved.txt", result.stderr)


def test_a_file_that_is_not_a_plan_is_not_replaced(folder: Path, lancestat: Lancestat) -> None:
    result = lancestat("plan", "--out", "specs/shop.yml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("LS650  cannot write the plan to specs/shop.yml: it holds")
    assert (folder / "specs" / "shop.yml").read_text().startswith("tables:")


@pytest.mark.parametrize("option", [("-s", "orders"), ("--exclude", "x"), ("--full-refresh",)])
def test_a_plan_file_excludes_options_of_plan(
    option: tuple[str, ...], lancestat: Lancestat, project: FakeProject
) -> None:
    result = lancestat("run", "--plan-file", "plan.json", *option)
    assert result.exit_code == 2
    assert (
        "cannot be combined with --select, --exclude, --full-refresh, --max-bytes" in result.stderr
    )


def test_a_plan_file_may_come_from_the_environment(folder: Path, lancestat: Lancestat) -> None:
    assert lancestat("plan", LANCESTAT_OUT="plan.json").exit_code == 0
    append(folder)
    assert "LS620" in lancestat("run", LANCESTAT_PLAN_FILE="plan.json").stderr


def add_run(folder: Path, *nodes: str) -> None:
    """Record a run in which these nodes failed."""
    results = [NodeResult(name, "table", "", (), Status.ERROR).to_json() for name in nodes]
    failed = tuple(
        NodeRun(name, "table", "d", result, None)
        for name, result in zip(nodes, results, strict=True)
    )
    run = RunRecord("r", "run", "dev", FINISHED, FINISHED, "error", failed)
    Project.load(folder).state.add_run(run)


GONE = "'gone' is no longer declared, and is not retried\n"
ENDED = "in the last run of target dev, which ended at 2026-01-02 03:04:05 UTC\n"


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (None, "no run of target dev is recorded\n"),
        ([], f"nothing failed {ENDED}"),
        (
            ["gone"],
            f"'gone' is no longer declared, and is not retried\nnothing else failed {ENDED}",
        ),
    ],
    ids=["no run", "success", "not declared"],
)
def test_a_retry_of_nothing_says_why_and_succeeds(
    failed: list[str] | None, said: str, folder: Path, lancestat: Lancestat
) -> None:
    if failed is None:
        shutil.rmtree(folder / "state")
    else:
        add_run(folder, *failed)
    result = lancestat("retry")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Nothing to retry.\n", said)
    assert lancestat("--quiet", "retry").stderr == ""


def test_a_retry_as_json(folder: Path, lancestat: Lancestat) -> None:
    add_run(folder, "orders")
    lance.LanceDataset.drop(str(folder / "orders.lance"), {})
    result = lancestat("retry", "--output", "json")
    assert result.exit_code == 1
    payload = json.loads(result.stdout)
    assert (payload["command"], payload["status"]) == ("retry", "error")
    assert [(node["name"], node["action"]) for node in payload["nodes"]] == [("orders", "blocked")]


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
