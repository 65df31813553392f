"""Runs of whole projects whose fragments are read, and whose rows are joined, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import lancestat.spark.analyze.scanner
from lancestat.knn.request import OnStage
from lancestat.knn.work import JoinOutcome, JoinWork
from lancestat.plan.actions import Scan, TableWork
from lancestat.statistics.partial import ColumnPartial
from tests.execution.world import World, no_engine

ScanResults = Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]
# Called with the node before each of its scans.
Before = Callable[[str], None]
Engine = Callable[[JoinWork, OnStage], JoinOutcome]


def scan_locally(
    monkeypatch: pytest.MonkeyPatch, before: Before, engine: Engine = no_engine
) -> None:
    """Scan in this process, after whatever a test wants to happen first."""

    class LocalScanner:
        def __init__(self, target: object, on_progress: object, *, has_joins: bool) -> None:
            pass

        def __enter__(self) -> LocalScanner:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def cancel(self) -> None:
            pass

        def join(self, work: JoinWork, on_stage: OnStage) -> JoinOutcome:
            return engine(work, on_stage)

        def scan(self, node: str, work: TableWork) -> ScanResults:
            for found in World(Path(work.uri)).scan(node, work):
                before(node)
                yield found

    monkeypatch.setattr(lancestat.spark.analyze.scanner, "SparkScanner", LocalScanner)
