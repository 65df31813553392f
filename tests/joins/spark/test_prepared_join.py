"""Prepared joins: the outcome of their stages, and what is left after a failure; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lancestat.errors import JobFailed, OutputNotWritten
from lancestat.joins.action import CommitResult, Probe
from lancestat.joins.output import result as output
from lancestat.joins.output.writer import Written
from lancestat.joins.record import Accuracy
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.work import (
    JoinOutcome,
    JoinRequest,
    JoinWork,
    OutputFormat,
    OutputState,
    Rows,
    Scope,
    SideSource,
)
from lancestat.joins.spark import prepared_join
from lancestat.joins.spark.job import WrittenChunk
from lancestat.joins.spark.prepared_join import PreparedJoin

WRITER = SimpleNamespace(storage_options={"secret": "hidden"})
OUTPUT = OutputState(OutputFormat.LANCE, "near.lance", 30, "made", 2)
COMMIT = CommitResult(OutputFormat.LANCE, "near.lance", appends=False)
PROBE = Probe(Strategy.EXACT, Scope.FULL, None)


def counted(*distances: float) -> CellCounts:
    tally = DistanceTally((1,))
    column = np.array(distances, np.float32)[:, None]
    tally.add(Neighbours(np.zeros(column.shape, np.int64), column))
    return tally.counts()


CHUNKS = [
    WrittenChunk(Written("a", 20), 6, 3, 100, counted(0.5, 2.5)),
    WrittenChunk(Written("b", 10), 3, 3, 50, counted(0.5)),
]


@pytest.fixture(autouse=True)
def discarded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was discarded; the result is always replaced by another one."""
    log: list[object] = []
    monkeypatch.setattr(output, "discard", lambda _, written: log.append(list(written)))
    monkeypatch.setattr(output, "replace", lambda *_: OUTPUT)
    monkeypatch.setattr(prepared_join, "jobs_of", lambda _: SimpleNamespace(cores=2))
    monkeypatch.setattr(prepared_join, "task_threads", lambda _: 1)
    return log


def side(rows: int, excluded: int = 0) -> Any:
    return SimpleNamespace(side=SimpleNamespace(all_rows=Rows(0, rows), excluded=excluded))


@contextmanager
def prepared(search: Any = lambda _: CHUNKS, **changes: Any) -> Iterator[Any]:
    source = SideSource("v", ("id",))
    work = JoinWork("near", JoinRequest(3), source, source, OutputFormat.LANCE, "near.lance")
    with ExitStack() as rollback:
        rollback.callback(output.discard, WRITER, [])  # type: ignore[arg-type]
        materialize = SimpleNamespace(
            writer=WRITER, schema="schema", ranks=(1,), lines=lambda widths: widths
        )
        yield PreparedJoin(
            work=replace(work, **changes),
            spark=Any,
            left=side(10),
            right=side(20, excluded=5),
            size=JoinSize(10, 20, 2),
            grid=SimpleNamespace(chunks=[Rows(0, 6), Rows(6, 10)]),  # type: ignore[arg-type]
            materialize=materialize,  # type: ignore[arg-type]
            on_stage=lambda _: None,
            place=lambda name: name,
            scratch_options={},
            unproven={"left": ("names 'now'",)},
            rollback=rollback,
            _search=search,
            _accuracy=Accuracy(0.9, 4),
        )


def run(join: PreparedJoin, commit: CommitResult = COMMIT) -> JoinOutcome:
    join.probe(PROBE, commit)
    join.commit(commit)
    return join.outcome


def test_a_search_that_fails_is_rolled_back_without_secrets(discarded: list[object]) -> None:
    def fail(_: object) -> list[WrittenChunk]:
        raise OSError("hidden is away")

    with (
        pytest.raises(JobFailed, match=r"joining 'near' failed: OSError: .* is away") as caught,
        prepared(fail) as join,
    ):
        run(join)
    assert "hidden" not in str(caught.value)
    assert discarded == [[]]


def test_a_commit_that_fails_discards_what_was_written(
    discarded: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> OutputState:
        raise OutputNotWritten("no space is left")

    monkeypatch.setattr(output, "replace", fail)
    with pytest.raises(OutputNotWritten), prepared() as join:
        run(join)
    assert discarded == [[chunk.written for chunk in CHUNKS]]
