"""Which scanner reads a table, and how both end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import lance
import pytest

import lancestat.runs.execute
import lancestat.tables.run
from lancestat import Project
from lancestat.runs.result import Status
from lancestat.spark.session import RunSession
from lancestat.tables.action import ReadFragments, Scan, TableVersion
from lancestat.tables.statistics.partial import ColumnPartial
from tests.runs.world import World, orders, write_project


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

    def scan(
        self, node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
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
