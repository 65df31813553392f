"""Several tables in one run: order, isolation of failures, records, and who reads which."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import lance
import pytest

import lancestat.runs.execute
import lancestat.tables.run
from lancestat import Project
from lancestat.errors import (
    FragmentNotAnalyzed,
    NodesFailed,
    SparkNotStarted,
    StateUnreachable,
)
from lancestat.nodes import NODE_TYPES
from lancestat.runs.result import NodeResult, RunResult, Status
from lancestat.spark.session import RunSession
from lancestat.state.store import LanceState
from lancestat.tables.action import ReadFragments, Scan, TableVersion
from lancestat.tables.analyze import Scanned
from tests.runs.world import Before, World, orders, scan_locally, write_project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path, "large", "small")
    lance.write_dataset(orders(0, 500), str(tmp_path / "large.lance"), max_rows_per_file=50)
    lance.write_dataset(orders(0, 10), str(tmp_path / "small.lance"))
    return tmp_path


@pytest.fixture
def scanning(monkeypatch: pytest.MonkeyPatch) -> Callable[[Before], None]:
    """Scan in this process, after a call-back of the test."""

    def install(before: Before) -> None:
        scan_locally(monkeypatch, before)

    return install


def is_published(folder: Path, name: str) -> bool:
    return "lance.stats.version" in lance.dataset(str(folder / f"{name}.lance")).config()


def statuses(result: RunResult) -> dict[str, Status]:
    return {node.name: node.status for node in result.nodes}


def test_a_small_table_is_published_while_a_large_one_is_read(
    folder: Path, scanning: Callable[[Before], None]
) -> None:
    def wait_for_small(node: str) -> None:
        deadline = time.monotonic() + 60
        while node == "large" and not is_published(folder, "small"):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    scanning(wait_for_small)
    result = Project.load(folder).run()
    assert statuses(result) == {"large": Status.SUCCESS, "small": Status.SUCCESS}


def test_a_failed_table_does_not_fail_the_others(
    folder: Path, scanning: Callable[[Before], None]
) -> None:
    def fail_large(node: str) -> None:
        if node == "large":
            raise FragmentNotAnalyzed("fragment 3 cannot be read: the disk is on fire")

    scanning(fail_large)
    result = Project.load(folder).run()
    assert statuses(result) == {"large": Status.ERROR, "small": Status.SUCCESS}
    [failed] = [node for node in result.nodes if node.status is Status.ERROR]
    assert "the disk is on fire" in (failed.message or "")
    [failure] = result.failures
    assert (failure.node, failure.code) == ("large", "LS510")
    assert failure.message == "fragment 3 cannot be read: the disk is on fire"
    assert failure.location == Project.load(folder).spec.node("large").location  # type: ignore[union-attr]
    with pytest.raises(NodesFailed, match=r"1 of 2 nodes failed\n.*large: LS510"):
        result.raise_for_status()
    [run] = Project.load(folder).state.runs(1)
    stored = NodeResult.from_json(run.nodes[0].result, NODE_TYPES)
    assert (run.run_id, stored.code, stored.location) == (result.run_id, "LS510", failure.location)
    assert not is_published(folder, "large")
    assert is_published(folder, "small")


def test_an_internal_error_fails_its_table_without_a_traceback(
    folder: Path, scanning: Callable[[Before], None]
) -> None:
    def break_large(node: str) -> None:
        if node == "large":
            raise KeyError("oops")

    scanning(break_large)
    result = Project.load(folder).run()
    assert statuses(result) == {"large": Status.ERROR, "small": Status.SUCCESS}
    assert result.nodes[0].code == "LS001"


class _SlowCheck(type):
    """What a class of errors is asked by two threads at once, if they may."""

    both = threading.Barrier(2)

    def __instancecheck__(cls, error: object) -> bool:
        if isinstance(error, SparkNotStarted):
            with suppress(threading.BrokenBarrierError):
                cls.both.wait(0.5)
            return True
        return False


def test_spark_fails_one_node_of_those_that_wait_for_it(
    folder: Path, scanning: Callable[[Before], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    error, both = SparkNotStarted("no server"), threading.Barrier(2)

    def lose_spark(node: str) -> None:
        both.wait(60)
        raise error

    slow = _SlowCheck("Slow", (), {})
    monkeypatch.setattr(lancestat.runs.execute, "SparkNotStarted", slow)
    scanning(lose_spark)
    result = Project.load(folder).run(threads=2)
    [failed] = [node for node in result.nodes if node.status is Status.ERROR]
    [other] = [node for node in result.nodes if node is not failed]
    assert (failed.code, other.status) == ("LS522", Status.SKIPPED)
    assert other.message == f"it needs Spark, which failed '{failed.name}'"


def test_fail_fast_starts_nothing_new(folder: Path, scanning: Callable[[Before], None]) -> None:
    def fail_small(node: str) -> None:
        if node == "small":
            raise FragmentNotAnalyzed("no")

    scanning(fail_small)
    result = Project.load(folder).run(threads=1, fail_fast=True)
    assert statuses(result) == {"large": Status.SKIPPED, "small": Status.ERROR}


def test_partials_of_a_failed_table_are_stored(
    folder: Path, scanning: Callable[[Before], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partials reach the state while a table is read: a second try starts where it ended."""
    monkeypatch.setattr("lancestat.tables.run.PARTIALS_PER_COMMIT", 3)
    seen = threading.Semaphore(6)

    def fail_late(node: str) -> None:
        if node == "large" and not seen.acquire(blocking=False):
            raise FragmentNotAnalyzed("no")

    scanning(fail_late)
    assert Project.load(folder).run().status is Status.ERROR
    [again] = [action for action in Project.load(folder).plan().actions if action.node == "large"]
    assert 0 < again.figures.fragments_scanned <= 5


def test_runs_are_recorded(folder: Path, scanning: Callable[[Before], None]) -> None:
    scanning(lambda node: None)
    Project.load(folder).run()
    Project.load(folder).run()
    [run] = Project.load(folder).state.runs(10)
    assert run.status == "success"
    assert {node.node: node.result["rows_scanned"] for node in run.nodes} == {
        "large": 500,
        "small": 10,
    }


def test_statistics_that_only_the_state_keeps_are_lost_with_the_record_of_their_run(
    folder: Path, scanning: Callable[[Before], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(folder, "large", {"name": "small", "uri": "small.lance", "publish": "none"})

    def fail(state: object, run: object) -> None:
        raise StateUnreachable("no space is left for the state")

    scanning(lambda node: None)
    with monkeypatch.context() as patched:
        patched.setattr(LanceState, "add_run", fail)
        result = Project.load(folder).run()
    assert statuses(result) == {"large": Status.SUCCESS, "small": Status.ERROR}
    [failure] = result.failures
    assert (failure.node, failure.code) == ("small", "LS301")
    assert failure.location == Project.load(folder).spec.node("small").location  # type: ignore[union-attr]
    assert is_published(folder, "large")

    again = Project.load(folder).run()
    assert statuses(again) == {"large": Status.SUCCESS, "small": Status.SUCCESS}


def test_a_stored_partial_that_does_not_decode_is_read_again(
    folder: Path, scanning: Callable[[Before], None]
) -> None:
    """The plan relies on the index of the state; partials that cannot be read are scanned."""
    scanning(lambda node: None)
    Project.load(folder).run()
    stored = lance.dataset(next(str(path) for path in folder.glob("state/v2/partials-*")))
    stored.update({"partials": "[X'00', X'00', X'00']"})
    lance.write_dataset(orders(500, 5), str(folder / "large.lance"), mode="append")
    result = Project.load(folder).run()
    assert statuses(result) == {"large": Status.SUCCESS, "small": Status.SUCCESS}
    large = lance.dataset(str(folder / "large.lance"))
    assert large.config()["lance.stats.column.o_id.max"] == "504"


class Scanner:
    """Reads in this process, and logs what is asked of it."""

    def __init__(self, name: str, log: list[str], interrupts: bool) -> None:
        self.name = name
        self.log = log
        self.interrupts = interrupts

    def __call__(self, *_: object) -> Scanner:
        return self

    def __enter__(self) -> Scanner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.log.append(f"{self.name} left by {kind.__name__ if kind else 'its end'}")

    def cancel(self) -> None:
        self.log.append(f"{self.name} cancelled")

    def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> Iterator[Scanned]:
        self.log.append(f"{self.name} reads {node}")
        if self.interrupts:
            raise KeyboardInterrupt
        yield from World(Path(table.uri)).scan(node, table, ReadFragments(tuple(scans)))


def scanners(monkeypatch: pytest.MonkeyPatch, *, interrupted: str = "") -> list[str]:
    log: list[str] = []
    for name in ("ProcessScanner", "SparkScanner"):
        scanner = Scanner(name, log, interrupts=name == interrupted)
        monkeypatch.setattr(lancestat.tables.run, name, scanner)

    class Session(RunSession):
        def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
            log.append(f"Spark left by {kind.__name__ if kind else 'its end'}")

        def cancel(self) -> None:
            log.append("Spark cancelled")

    monkeypatch.setattr(lancestat.runs.execute, "RunSession", Session)
    return log


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_project(tmp_path, "large", "small", min_bytes="2kB")
    lance.write_dataset(orders(0, 5_000), str(tmp_path / "large.lance"))
    lance.write_dataset(orders(0, 10), str(tmp_path / "small.lance"))
    return Project.load(tmp_path)


def test_a_table_is_read_where_its_stage_says(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = scanners(monkeypatch)
    planned = {action.node: action.runs_on for action in project.plan().actions}
    assert planned == {"large": "spark", "small": "process"}
    result = project.run()
    assert result.status is Status.SUCCESS
    assert {node.name: node.runs_on for node in result.nodes} == planned
    assert sorted(log[:2]) == ["ProcessScanner reads small", "SparkScanner reads large"]
    assert log[2:] == ["Spark left by its end", "ProcessScanner left by its end"]


@pytest.mark.parametrize("interrupted", ["ProcessScanner", "SparkScanner"])
def test_an_interrupt_ends_both_scanners(
    project: Project, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    log = scanners(monkeypatch, interrupted=interrupted)
    with pytest.raises(KeyboardInterrupt):
        project.run()
    assert log[-4:] == [
        "ProcessScanner cancelled",
        "Spark cancelled",
        "Spark left by RunInterrupted",
        "ProcessScanner left by RunInterrupted",
    ]
