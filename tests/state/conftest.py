"""Stores and values for the tests of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from hashlib import blake2b
from pathlib import Path

import pytest

from lancestat.state import retention
from lancestat.state.partials import block_digest, slices
from lancestat.state.store import LanceState, open_state
from lancestat.state.values import NodeRun, RunRecord, StoredPartials, SummaryBlock, TableSummary
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.sketches import REGISTERS, Sketch
from lancestat.tables.stored import TableRecord

EPOCH = datetime(2025, 1, 1, tzinfo=timezone.utc)


def fingerprint(name: object) -> bytes:
    return blake2b(str(name).encode(), digest_size=16).digest()


def partial(number: int) -> ColumnPartial:
    registers = bytearray(REGISTERS)
    registers[number % REGISTERS] = 1 + number % 52
    return ColumnPartial(number + 1, 0, 0, -number, number, 0, 0, Sketch.of(bytes(registers)))


def stored(names: object, **numbers: int) -> StoredPartials[ColumnPartial]:
    """Partials of a fragment (or of a tuple of fragments), by field key `f<name>`."""
    several = names if isinstance(names, tuple) else (names,)
    return StoredPartials(
        tuple(sorted(map(fingerprint, several))),
        {field: partial(number) for field, number in numbers.items()},
    )


def summary(version: int, *contents: object, blocks: tuple[int, ...] = (1, 1)) -> TableSummary:
    """A summary of fields x and y over one group of two fragments for each of some contents."""
    digests = tuple(map(fingerprint, contents))
    return TableSummary(
        version=version,
        manifest=f"{version:032x}",
        groups=tuple((10 * place, 10 * place + 3) for place in range(len(contents))),
        blocks=blocks,
        contents={"x": digests, "y": digests},
    )


def blocks(table_summary: TableSummary, *fields: str) -> list[SummaryBlock[ColumnPartial]]:
    """All blocks that a summary names for some fields."""
    return [
        ((field, block_digest(digests)), partials)
        for field in fields
        for place in slices(table_summary.blocks)
        for digests in [table_summary.contents[field][place]]
        for partials in [tuple(partial(digest[0]) for digest in digests)]
    ]


def record(table: str, version: int) -> TableRecord:
    return TableRecord(
        table=table,
        node=f"node of {table}",
        version=version,
        published=True,
        content_digest="d" * 32,
        schema_hash="5" * 64,
        rows=10 * version,
        fragments=version,
        computed_at=EPOCH + timedelta(seconds=version),
        columns=("a", "b"),
        values={"lance.stats.version": "1", "lance.stats.column.a.max": "ü\n"},
        bounds={"b": ("00", "ff")},
        manifest="f" * 32,
        histograms=("a",),
    )


def run(number: int, *records: TableRecord, nodes: tuple[NodeRun, ...] = ()) -> RunRecord:
    made = tuple(
        NodeRun(
            table_record.node,
            "table",
            "d1",
            {"name": table_record.node, "rows": number},
            table_record.stored(),
        )
        for table_record in records
    )
    return RunRecord(
        run_id=f"run-{number}",
        command="run",
        target="dev",
        started_at=EPOCH + timedelta(minutes=number),
        finished_at=EPOCH + timedelta(minutes=number, seconds=30),
        status="success",
        nodes=made + nodes,
    )


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def few_runs_kept(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many runs the state keeps: fewer than the hundreds that take seconds to write."""
    monkeypatch.setattr(retention, "RUNS_KEPT", 20)
    monkeypatch.setattr(retention, "_RUNS_TOLERATED", 25)
    return 20


@pytest.fixture
def make_state(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[[], LanceState]]:
    """Opens the one state of the test, again and again; it must stay sound."""
    yield lambda: open_state(str(folder))
    assert not [entry for entry in caplog.get_records("call") if entry.name == "lancestat.state"]


@pytest.fixture
def state(make_state: Callable[[], LanceState]) -> LanceState:
    return make_state()
