"""Runs with a budget: what they read, in which order, and what becomes of the rest."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancestat.tables.work_items
from lancestat import Project
from lancestat.cli.main import cli
from lancestat.errors import InvalidArgument, InvalidProject
from lancestat.joins.action import JoinFigures
from lancestat.query.workload.query_log import QueryEvent
from lancestat.report.values import Health
from lancestat.runs.actions import Action, Deferred, Dependent, Plan, Reason, table_figures
from lancestat.runs.budget import Allowance, within_budget
from lancestat.runs.result import NodeResult, RunResult, Status
from lancestat.spec.budget import NO_BUDGET, Budget
from lancestat.tables.analyze import ProcessScanner, RangePartials, ScanTask
from lancestat.tables.wire import unstamped
from lancestat.tables.work_items import ScanRange
from tests.examples import examples
from tests.runs.world import orders, write_project


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small fragments are read by themselves, so that runs can be stopped between any two."""
    monkeypatch.setattr(lancestat.tables.work_items, "_FEW", 1_000_000)


def table(folder: Path, name: str, *fragments: int) -> str:
    """Write a table whose fragments have so many rows."""
    uri = str(folder / f"{name}.lance")
    for number, rows in enumerate(fragments):
        lance.write_dataset(orders(10 * number, rows), uri, mode="append" if number else "create")
    return uri


def bytes_read(project: Project, name: str) -> int:
    return sum(figures.bytes_scanned for figures in figures_of(project.plan(name)))


def figures_of(plan: Plan) -> list[Any]:
    return [figures for figures in map(table_figures, plan.actions) if figures is not None]


def by_name(result: RunResult) -> Mapping[str, NodeResult]:
    return {node.name: node for node in result.nodes}


def verbs(plan: Plan) -> dict[str, str]:
    return {action.node: action.verb for action in plan.actions}


def statistics(project: Project, name: str) -> Mapping[str, str]:
    """The published statistics, but for what they say of when they were made."""
    uri = next(table.uri for table in project.spec.tables if table.name == name)
    entries = lance.dataset(uri)._ds.config()
    return unstamped({k: v for k, v in entries.items() if k.startswith("lancestat")})


def test_a_plan_without_a_budget_defers_nothing(tmp_path: Path) -> None:
    table(tmp_path, "orders", 10)
    project = write_project(tmp_path, "orders")
    plan = project.plan()
    assert verbs(plan) == {"orders": "analyze"}
    assert within_budget(plan, NO_BUDGET, project.nodes(), dict) is plan


def test_what_does_not_fit_is_deferred_and_said_so(tmp_path: Path) -> None:
    uri = table(tmp_path, "first", 400)
    table(tmp_path, "second", 400)
    project = write_project(tmp_path, "first", "second")
    budget = bytes_read(project, "first")
    plan = project.plan(max_bytes=budget)
    assert verbs(plan) == {"first": "analyze", "second": "defer"}
    assert sum(figures.bytes_scanned for figures in figures_of(plan)) <= budget

    result = project.run(plan)
    assert result.ok
    second = by_name(result)["second"]
    assert (second.status, second.end) == (Status.DEFERRED, "deferred")
    assert second.reasons == ("new",)
    assert "left of the budget of" in (second.message or "")
    assert lance.dataset(uri).version == 2
    report = {node.spec.name: node for node in project.report().nodes}
    assert any("Its last run was deferred" in text for text in report["second"].problems)
    # It is due, and did not fail.
    assert project.unfinished().nodes == ()
    assert by_name(project.run())["second"].status is Status.SUCCESS
    assert {node.health for node in project.report().nodes} == {Health.OK}


def test_a_budget_of_nothing_reads_nothing(tmp_path: Path) -> None:
    table(tmp_path, "orders", 10)
    project = write_project(tmp_path, "orders")
    [node] = project.run(max_bytes=0).nodes
    assert (node.status, node.fragments_scanned) == (Status.DEFERRED, 0)


def test_a_first_analysis_goes_on_fragment_by_fragment(tmp_path: Path) -> None:
    uri = table(tmp_path, "orders", *([50] * 6))
    project = write_project(tmp_path, "orders")
    budget = bytes_read(project, "orders") // 3 + 8
    stored = []
    for _ in range(2):
        version = lance.dataset(uri).version
        [node] = project.run(max_bytes=budget).nodes
        assert node.status is Status.DEFERRED
        # What is there meanwhile is in the state alone: readers find nothing.
        assert lance.dataset(uri).version == version
        assert project.show("orders").columns == {}
        stored.append(node.fragments_scanned)
    [node] = project.run(max_bytes=budget).nodes
    assert (node.status, node.fragments_scanned) == (Status.SUCCESS, 2)
    assert stored == [2, 2]
    assert project.show("orders").columns

    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(tmp_path / "orders.lance", other / "orders.lance")
    at_once = write_project(other, "orders")
    at_once.run(full_refresh=True)
    assert statistics(project, "orders") == statistics(at_once, "orders")


@given(
    sizes=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=5), min_size=1, max_size=3),
    share=st.floats(0.05, 1.2),
    data=st.data(),
)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_run_reads_more_than_its_budget_and_in_the_end_all_is_as_without(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: Sequence[Sequence[int]],
    share: float,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("shop")
    names = [f"t{number}" for number in range(len(sizes))]
    for name, fragments in zip(names, sizes, strict=True):
        table(folder, name, *fragments)
    project = write_project(folder, *names)
    whole = sum(figures.bytes_scanned for figures in figures_of(project.plan()))
    largest = max(
        scan.size_bytes
        for action in project.plan().actions
        for scan in action.scans  # type: ignore[attr-defined]
    )
    budget = max(largest, int(share * whole))
    for _ in range(2 * sum(map(len, sizes)) + 4):
        result = project.run(max_bytes=budget)
        assert result.ok
        assert sum(node.bytes_scanned or 0 for node in result.nodes) <= budget
        if data.draw(st.booleans(), label="changes"):
            name = data.draw(st.sampled_from(names), label="table")
            dataset = lance.dataset(str(folder / f"{name}.lance"))
            dataset.delete(f"o_id % 7 = {data.draw(st.integers(0, 6), label='remainder')}")
    while Status.DEFERRED in {node.status for node in project.run(max_bytes=budget).nodes}:
        pass
    assert verbs(project.plan()) == dict.fromkeys(names, "skip")
    kept = {name: statistics(project, name) for name in names}
    project.run(full_refresh=True)
    assert {name: statistics(project, name) for name in names} == kept


def test_what_is_deferred_is_to_be_done(tmp_path: Path) -> None:
    table(tmp_path, "orders", 10)
    write_project(tmp_path, "orders")
    words = ("--project-dir", str(tmp_path), "plan", "--check", "--max-bytes", "0")
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 3
    assert "Nothing to do now: the budget defers 1 node." in done.stdout


def test_a_full_refresh_is_not_divided(tmp_path: Path) -> None:
    # Its parts would be read again by the next run in full.
    table(tmp_path, "orders", 50, 50)
    project = write_project(tmp_path, "orders")
    project.run()
    budget = bytes_read(project, "orders") or 1
    plan = project.plan(full_refresh=True, max_bytes=budget)
    assert verbs(plan) == {"orders": "defer"}


def test_nodes_come_by_priority_then_use_then_change(tmp_path: Path) -> None:
    for name in ("grown", "used", "first", "new"):
        table(tmp_path, name, 400, 20)
    tables = [{"name": name, "uri": f"{name}.lance"} for name in ("grown", "used", "first", "new")]
    tables[2] |= {"priority": 1}  # type: ignore[dict-item]
    target = {"state": "state", "listen": "queries", "spark": {"master": "local[2]"}}
    project = write_project(tmp_path, *tables, target=target)
    for name in ("grown", "used", "first"):
        project.run(select=name)
        lance.write_dataset(orders(500, 100), str(tmp_path / f"{name}.lance"), mode="append")
    (tmp_path / "queries").mkdir()
    event = QueryEvent(0, {"used": ("o_id",)})
    (tmp_path / "queries/queries-1.jsonl").write_bytes(msgspec.json.encode(event) + b"\n")

    plan = Project.load(tmp_path).plan(max_bytes=10**9)
    assert sorted(plan.ranks, key=plan.ranks.__getitem__) == ["first", "used", "new", "grown"]
    room = bytes_read(project, "first") + bytes_read(project, "used")
    plan = Project.load(tmp_path).plan(max_bytes=room)
    assert verbs(plan) == {"grown": "defer", "used": "refresh", "first": "refresh", "new": "defer"}


def test_the_budget_of_the_target_holds_unless_it_is_overridden(tmp_path: Path) -> None:
    table(tmp_path, "orders", 50, 50)
    target = {"state": "state", "spark": {"master": "local[2]"}, "budget": {"bytes": "1B"}}
    project = write_project(tmp_path, "orders", target=target)
    assert verbs(project.plan()) == {"orders": "defer"}
    assert [node.status for node in project.run().nodes] == [Status.DEFERRED]
    assert verbs(project.plan(max_bytes=10**6)) == {"orders": "analyze"}
    # What is asked for by name is done.
    assert project.analyze("orders").nodes[0].status is Status.SUCCESS


@pytest.mark.parametrize("budget", [{}, {"minutes": 0}, {"minutes": -1}, {"bytes": "much"}, 5])
def test_budgets_that_make_no_sense_are_refused_with_their_place(
    tmp_path: Path, budget: object
) -> None:
    with pytest.raises(InvalidProject) as caught:
        write_project(tmp_path, "orders", target={"budget": budget})
    [error] = caught.value.errors
    assert error.location is not None and error.location.line == 3


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    table(tmp_path, "orders", 10)
    project = write_project(tmp_path, "orders")
    plan = project.plan()
    for wrong in ({"max_bytes": -1}, {"max_minutes": 0}, {"max_minutes": "5"}):
        with pytest.raises(InvalidArgument):
            project.plan(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="without a plan"):
        project.run(plan, max_minutes=5)


def test_a_saved_plan_keeps_its_budget(tmp_path: Path) -> None:
    table(tmp_path, "orders", 50, 50)
    project = write_project(tmp_path, "orders")
    project.save_plan(tmp_path / "plan.json", max_bytes=1, max_minutes=7)
    plan = project.load_plan(tmp_path / "plan.json")
    assert verbs(plan) == {"orders": "defer"}
    assert plan.budget == Budget(bytes=1, minutes=7)


class Time:
    """Time as tests let it pass."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


JOIN = Dependent("near", "knn_join", "refresh", (Reason.INPUT_CHANGED,), ())


@pytest.mark.parametrize(
    ("seconds", "passed", "why"),
    [
        (50, 0, None),
        (None, 0, None),
        (90, 0, "it takes about 1 min 30 s, with 1 min left of the budget of 1 minute"),
        (50, 20, "it takes about 50 s, with 40 s left of the budget of 1 minute"),
        (None, 60, "the budget of 1 minute is used up"),
    ],
)
def test_a_join_begins_only_if_it_is_likely_to_end_in_time(
    seconds: float | None, passed: float, why: str | None
) -> None:
    clock = Time()
    allowance = Allowance(Budget(minutes=1), clock=clock)
    clock.seconds = passed
    action = replace(JOIN, figures=JoinFigures(estimated_seconds=seconds))
    taken = allowance.take(action)
    assert (taken.why if isinstance(taken, Deferred) else None) == why


def test_joins_that_fit_alone_are_counted_together() -> None:
    joins = tuple(
        replace(JOIN, node=f"near{n}", figures=JoinFigures(estimated_seconds=25)) for n in range(4)
    )
    plan = within_budget(Plan("shop", "dev", joins), Budget(minutes=1), (), dict, 5)
    assert list(verbs(plan).values()) == ["refresh", "refresh", "defer", "defer"]
    plan = within_budget(Plan("shop", "dev", joins), Budget(minutes=1), (), dict, 20)
    assert list(verbs(plan).values()) == ["refresh", "defer", "defer", "defer"]


def test_spark_is_not_started_for_what_cannot_be_read_in_time(tmp_path: Path) -> None:
    table(tmp_path, "orders", 50)
    project = write_project(tmp_path, "orders", min_bytes="0")
    plan = project.plan(max_minutes=0.01)
    assert verbs(plan) == {"orders": "defer"}
    assert "Spark's start takes about" in plan.actions[0].notes[0]


def test_a_large_fragment_does_not_keep_others_waiting(tmp_path: Path) -> None:
    table(tmp_path, "orders", 9000, 500, 500, 500)
    project = write_project(tmp_path, "orders")
    [action] = project.plan().actions
    sizes = [scan.size_bytes for scan in action.scans]  # type: ignore[attr-defined]
    [figures] = figures_of(project.plan(max_bytes=sum(sizes[1:]) + 1))
    assert figures.fragments_scanned == 3


def test_what_a_full_refresh_deferred_is_retried_and_comes_to_an_end(tmp_path: Path) -> None:
    for name in "abc":
        table(tmp_path, name, 400)
    project = write_project(tmp_path, *"abc")
    room = 2 * bytes_read(project, "a") + 1
    project.run()
    result = project.run(full_refresh=True, max_bytes=room)
    assert [node.status for node in result.nodes].count(Status.DEFERRED) == 1
    assert project.unfinished().nodes == ("c",)
    # So is what a retry deferred in its turn.
    assert [node.status for node in project.retry(max_bytes=0).nodes] == [Status.DEFERRED]
    [node] = project.retry(max_bytes=room).nodes
    assert (node.name, node.status, node.reasons) == ("c", Status.SUCCESS, ("full_refresh",))
    assert project.unfinished().nodes == ()


def test_a_full_refresh_that_was_too_late_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, "large", *([20] * 30))
    project = write_project(tmp_path, "large")
    with monkeypatch.context() as patch:
        Slow(patch, 7)
        result = project.run(max_minutes=0.02, full_refresh=True)
    assert "stored" not in (result.nodes[0].message or "")
    assert result.nodes[0].fragments_scanned == 0


def test_what_reads_a_deferred_result_is_deferred() -> None:
    slow = replace(JOIN, figures=JoinFigures(estimated_seconds=90))
    after = replace(JOIN, node="after", dependencies=("near",))
    actions: tuple[Action, ...] = (after, slow)
    plan = within_budget(Plan("shop", "dev", actions), Budget(minutes=1), (), dict)
    assert [type(action) for action in plan.actions] == [Deferred, Deferred]
    assert "it reads the result of 'near', which is deferred" in plan.actions[0].notes[0]
    assert plan.ranks == {"near": 0, "after": 1}


def test_nodes_that_read_each_other_are_taken_once() -> None:
    first, second = (
        replace(JOIN, node=name, dependencies=(other,)) for name, other in ("ab", "ba")
    )
    plan = within_budget(Plan("shop", "dev", (first, second)), Budget(bytes=1), (), dict)
    assert plan.actions == (first, second)


class Slow:
    """Lets the reading of a table wait, after some fragments, until the time is over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fragments: int) -> None:
        read, cancel = ScanTask.read, ProcessScanner.cancel
        lock, self.over, self.begun = threading.Lock(), threading.Event(), 0

        def reading(task: ScanTask, part: ScanRange) -> RangePartials:
            with lock:
                self.begun += 1
                waits = self.begun > fragments
            if waits:
                assert self.over.wait(60)
            return read(task, part)

        def cancelling(scanner: ProcessScanner) -> None:
            cancel(scanner)
            self.over.set()

        monkeypatch.setattr(ScanTask, "read", reading)
        monkeypatch.setattr(ProcessScanner, "cancel", cancelling)


def test_tables_stop_reading_when_the_time_is_over_and_go_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = table(tmp_path, "large", *([20] * 30))
    table(tmp_path, "later", 10)
    tables = ({"name": "large", "uri": "large.lance", "priority": 1}, "later")
    project = write_project(tmp_path, *tables)
    with monkeypatch.context() as patch:
        Slow(patch, 7)
        result = project.run(max_minutes=0.02, threads=1)
    assert result.ok
    large, later = (by_name(result)[name] for name in ("large", "later"))
    assert (large.status, later.status) == (Status.DEFERRED, Status.DEFERRED)
    assert (later.message or "").endswith("is used up")
    stored = large.fragments_scanned or 0
    assert 7 <= stored < 30
    assert f"{stored} of 30 fragments to read are stored" in (large.message or "")
    assert lance.dataset(uri).version == 30

    [figures] = figures_of(project.plan("large"))
    assert figures.fragments_scanned == 30 - stored
    assert project.run().ok
    assert {node.health for node in project.report().nodes} == {Health.OK}


def test_a_run_that_ends_in_time_is_as_without(tmp_path: Path) -> None:
    table(tmp_path, "orders", 10)
    project = write_project(tmp_path, "orders")
    assert [node.status for node in project.run(max_minutes=60).nodes] == [Status.SUCCESS]


def test_columns_that_appear_meanwhile_do_not_lead_beyond_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The table is made anew while a part of it is read, and is ten times as large then.
    uri = table(tmp_path, "orders", 50, 50)
    project = write_project(tmp_path, "orders")
    budget = bytes_read(project, "orders") - 1
    read, replaced = ScanTask.read, []

    def reading(task: ScanTask, part: ScanRange) -> RangePartials:
        if not replaced:
            replaced.append(True)
            shutil.rmtree(uri)
            rows = pa.concat_tables([orders(0, 500)] * 2)
            lance.write_dataset(rows, uri, max_rows_per_file=10)
            lance.write_dataset(rows, uri, max_rows_per_file=10, mode="overwrite")
        return read(task, part)

    monkeypatch.setattr(ScanTask, "read", reading)
    [node] = project.run(max_bytes=budget).nodes
    assert node.status is Status.DEFERRED
    assert (node.bytes_scanned or 0) <= budget
