"""Runs of whole projects whose fragments are read, and whose rows are joined, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import lancestat.runs.execute
from lancestat.joins.search.work import JoinWork
from lancestat.runs.evaluator import JoinSession, OpenJoin
from lancestat.runs.stages import OnStage
from lancestat.tables.action import ReadFragments, Scan, TableVersion
from lancestat.tables.statistics.partial import ColumnPartial
from tests.runs.world import World, no_join

ScanResults = Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]
# Called with the node before each of its scans.
Before = Callable[[str], None]


def scan_locally(
    monkeypatch: pytest.MonkeyPatch, before: Before, open_join: OpenJoin = no_join
) -> None:
    """Scan in this process, after a call-back of the test."""

    class LocalScanner:
        def __init__(
            self,
            target: object,
            on_progress: object,
            options: object = None,
            *,
            has_joins: bool = False,
            session: object = None,
            ends_process: bool = False,
        ) -> None:
            pass

        def __enter__(self) -> LocalScanner:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def cancel(self) -> None:
            pass

        def join(self, work: JoinWork, on_stage: OnStage) -> AbstractContextManager[JoinSession]:
            return open_join(work, on_stage)

        def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> ScanResults:
            for scanned in World(Path(table.uri)).scan(node, table, ReadFragments(tuple(scans))):
                before(node)
                yield scanned

    monkeypatch.setattr(lancestat.runs.execute, "SparkScanner", LocalScanner)
    monkeypatch.setattr(lancestat.runs.execute, "ProcessScanner", LocalScanner)
