"""Runs of whole projects whose fragments are read, and whose rows are joined, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import lancestat.joins.run
import lancestat.tables.run
from lancestat.joins.run import OpenJoin
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
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> LocalScanner:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def cancel(self) -> None:
            pass

        def scan(self, node: str, table: TableVersion, scans: Sequence[Scan]) -> ScanResults:
            for scanned in World(Path(table.uri)).scan(node, table, ReadFragments(tuple(scans))):
                before(node)
                yield scanned

    class LocalOpener:
        def __init__(self, *_: object) -> None:
            self.open = open_join

    monkeypatch.setattr(lancestat.tables.run, "SparkScanner", LocalScanner)
    monkeypatch.setattr(lancestat.tables.run, "ProcessScanner", LocalScanner)
    monkeypatch.setattr(lancestat.joins.run, "JoinOpener", LocalOpener)
