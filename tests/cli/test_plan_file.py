"""`plan --out`, `run --plan-file` and `retry`, as they are typed; nothing here needs Spark."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timezone
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.runs.result import NodeResult, Status
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
    assert "cannot be combined with --select, --exclude and --full-refresh" in result.stderr


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
