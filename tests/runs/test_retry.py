"""A retry runs only the nodes that failed last time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import lance
import pytest

from lancestat import Project
from lancestat.errors import FragmentNotAnalyzed
from lancestat.joins.search.work import JoinOutcome, JoinWork
from lancestat.runs.actions import OnStage
from lancestat.runs.result import NodeResult, RunResult, Status, UnfinishedNodes
from lancestat.spec.model import Table
from lancestat.state.values import NodeRun, RunRecord
from tests.joins.joined import JoinWorld, opened, vectors
from tests.runs.test_scheduler import statuses
from tests.runs.world import PLACE, orders, scan_locally, write_project

# Makes scans of these nodes fail, until it is called again.
Break = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path, "orders", "parts", "returns")
    for name in ("orders", "parts", "returns"):
        lance.write_dataset(orders(0, 50), str(tmp_path / f"{name}.lance"))
    return tmp_path


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Break:
    def install(*nodes: str, error: BaseException | None = None) -> None:
        def fail(node: str) -> None:
            if node in nodes:
                raise error or FragmentNotAnalyzed("the disk is on fire")

        scan_locally(monkeypatch, fail)

    return install


def retry(folder: Path, **options: object) -> RunResult:
    return Project.load(folder).retry(**options)  # type: ignore[arg-type]


def test_a_retry_runs_only_failed_nodes(folder: Path, broken: Break) -> None:
    broken("orders", "returns")
    assert Project.load(folder).run().status is Status.ERROR
    # What moved on since has to wait for a run.
    lance.write_dataset(orders(50, 1), str(folder / "parts.lance"), mode="append")
    broken("returns")
    result = retry(folder)
    assert statuses(result) == {"orders": Status.SUCCESS, "returns": Status.ERROR}
    assert (result.command, result.status) == ("retry", Status.ERROR)


def test_a_second_retry_runs_the_nodes_that_failed_in_the_first(
    folder: Path, broken: Break
) -> None:
    broken("orders", "returns")
    Project.load(folder).run()
    broken("returns")
    retry(folder)
    broken()
    assert statuses(retry(folder)) == {"returns": Status.SUCCESS}
    assert retry(folder).nodes == ()
    assert [run.command for run in Project.load(folder).state.runs(9)] == ["retry", "retry", "run"]


def test_a_retry_after_a_successful_run_has_no_nodes(folder: Path, broken: Break) -> None:
    broken()
    Project.load(folder).run()
    left = Project.load(folder).unfinished()
    assert (left.nodes, left.gone, left.full_refresh) == ((), (), False)
    assert left.run is not None
    assert retry(folder).status is Status.SUCCESS


def test_a_retry_without_a_run_has_no_nodes(folder: Path) -> None:
    assert Project.load(folder).unfinished() == UnfinishedNodes(None)
    result = retry(folder)
    assert (result.nodes, result.command, result.ok) == ((), "retry", True)


def test_a_retry_runs_nodes_skipped_after_a_failure(folder: Path, broken: Break) -> None:
    broken("orders")
    project = Project.load(folder)
    first = project.run(project.plan(["orders", "parts"]), threads=1, fail_fast=True)
    assert statuses(first) == {"orders": Status.ERROR, "parts": Status.SKIPPED}
    broken()
    assert statuses(retry(folder)) == {"orders": Status.SUCCESS, "parts": Status.SUCCESS}


def test_fail_fast_holds_for_a_retry(folder: Path, broken: Break) -> None:
    broken("orders", "parts", "returns")
    Project.load(folder).run()
    outcome = statuses(retry(folder, threads=1, fail_fast=True))
    assert list(outcome.values()) == [Status.ERROR, Status.SKIPPED, Status.SKIPPED]
    assert set(Project.load(folder).unfinished().nodes) == {"orders", "parts", "returns"}


def test_nodes_that_are_no_longer_declared_are_named(folder: Path, broken: Break) -> None:
    broken("orders", "returns")
    Project.load(folder).run()
    path = folder / "specs" / "shop.yml"
    path.write_text(path.read_text().replace("name: returns", "name: refunds"))
    left = Project.load(folder).unfinished()
    assert (left.nodes, left.gone) == (("orders",), ("returns",))
    broken()
    assert statuses(retry(folder)) == {"orders": Status.SUCCESS}


def test_a_full_refresh_that_failed_is_a_full_refresh_again(folder: Path, broken: Break) -> None:
    broken()
    Project.load(folder).run()
    broken("orders")
    Project.load(folder).run(full_refresh=True)
    broken("orders")
    again = retry(folder)
    assert again.nodes[0].reasons == ("full_refresh",)
    broken()
    result = retry(folder)
    assert [(node.name, node.reasons) for node in result.nodes] == [("orders", ("full_refresh",))]
    assert result.nodes[0].rows_scanned == 50


def test_a_table_that_could_not_be_opened_is_refreshed_in_full(folder: Path, broken: Break) -> None:
    """Its reasons do not name the full refresh, since it was blocked; the record does."""
    broken()
    Project.load(folder).run()
    (folder / "orders.lance").rename(folder / "away.lance")
    Project.load(folder).run(full_refresh=True)
    (folder / "away.lance").rename(folder / "orders.lance")
    [node] = retry(folder).nodes
    assert (node.name, node.reasons) == ("orders", ("full_refresh",))


def test_a_retry_runs_the_nodes_that_an_interrupted_run_did_not_end(
    folder: Path, broken: Break
) -> None:
    broken("orders")
    Project.load(folder).run()
    broken("parts", "returns", error=KeyboardInterrupt())
    lance.write_dataset(orders(50, 1), str(folder / "parts.lance"), mode="append")
    with pytest.raises(KeyboardInterrupt):
        Project.load(folder).run()
    left = Project.load(folder).unfinished().nodes
    # The others end or not, as it happens.
    assert {"parts"} <= set(left) <= {"orders", "parts"}
    broken()
    assert statuses(retry(folder)) == dict.fromkeys(left, Status.SUCCESS)


def record(number: int, target: str, *nodes: NodeRun) -> RunRecord:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=number)
    return RunRecord(f"run{number}", "run", target, at, at, "error", nodes)


def failed(node: str, **changes: object) -> NodeRun:
    result = NodeResult(node, "table", "refresh", (), Status.ERROR).to_json()
    return replace(NodeRun(node, "table", "d", result, None), **changes)  # type: ignore[arg-type]


def test_runs_of_other_targets_are_ignored(folder: Path) -> None:
    state = Project.load(folder).state
    state.add_run(record(0, "dev", failed("orders")))
    for number in range(1, 15):
        state.add_run(record(number, "prod", failed("parts")))
    assert Project.load(folder).unfinished().nodes == ("orders",)


def test_a_retry_after_runs_of_other_targets_only_has_no_nodes(folder: Path) -> None:
    state = Project.load(folder).state
    for number in range(15):
        state.add_run(record(number, "prod", failed("parts")))
    assert Project.load(folder).unfinished() == UnfinishedNodes(None)


def test_a_full_refresh_is_recorded_separately_from_the_result(folder: Path) -> None:
    state = Project.load(folder).state
    nodes = (failed("orders", full_refresh=True), failed("parts"))
    state.add_run(record(0, "dev", *nodes))
    [run] = Project.load(folder).state.runs(1)
    assert run.nodes == nodes
    assert "full_refresh" not in run.nodes[0].result


def test_a_record_of_an_older_release_has_no_full_refresh(folder: Path) -> None:
    """Rows have the same columns; a missing value is False."""
    Project.load(folder).state.add_run(record(0, "dev", failed("orders")))
    [stored] = folder.glob("state/v2/runs-*")
    [row] = lance.dataset(str(stored)).to_table().to_pylist()
    assert "full_refresh" not in json.loads(row["result_json"])
    assert not Project.load(folder).unfinished().full_refresh


def test_a_failed_join_is_retried_with_its_dependents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(vectors(0, 20, name="v"), str(tmp_path / "l.lance"))
    lance.write_dataset(vectors(0, 30, name="w"), str(tmp_path / "r.lance"))
    world = JoinWorld(tmp_path)
    world.others = (Table("made", world.join.output_uri, PLACE),)
    project = Project(world.spec, clock=world.clock)
    project._state = world.state

    def fail(work: JoinWork, on_stage: OnStage) -> JoinOutcome:
        raise FragmentNotAnalyzed("the disk is on fire")

    scan_locally(monkeypatch, open_join=opened(fail))
    first = project.run(project.plan(["l", "near", "made"]))
    assert statuses(first) == {"l": Status.SUCCESS, "near": Status.ERROR, "made": Status.SKIPPED}
    scan_locally(monkeypatch, open_join=world.open_join)
    world.clock.advance(hours=1)
    result = project.retry()
    assert statuses(result) == {"near": Status.SUCCESS, "made": Status.SUCCESS}
    assert project.unfinished().nodes == ()
