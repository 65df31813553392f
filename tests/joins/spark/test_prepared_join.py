"""Prepared joins: their search, what is left after a failure, and progress; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lancestat.errors import JobFailed, OutputNotWritten, StaleBase
from lancestat.joins.action import CommitResult, Probe
from lancestat.joins.output import result as output
from lancestat.joins.output.writer import Written
from lancestat.joins.planner import JoinFacts
from lancestat.joins.record import Accuracy, JoinCounts
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.work import (
    Increment,
    JoinRequest,
    JoinWork,
    OutputFormat,
    OutputState,
    Rows,
    Scope,
    SideSource,
)
from lancestat.joins.spark.job import WrittenChunk
from lancestat.joins.spark.prepared_join import PreparedJoin, SearchResult
from lancestat.runs.actions import StageProgress
from tests.joins.search.counted_distances import assert_counted

WRITER = SimpleNamespace(storage_options={"secret": "hidden"})
OUTPUT = OutputState(OutputFormat.LANCE, "near.lance", 30, "made", 2)


def counted(*distances: float) -> CellCounts:
    tally = DistanceTally((1,))
    column = np.array(distances, np.float32)[:, None]
    tally.add(Neighbours(np.zeros(column.shape, np.int64), column))
    return tally.counts()


CHUNKS = [
    WrittenChunk(Written("a", 20), 6, 3, 100, counted(0.5, 2.5)),
    WrittenChunk(Written("b", 10), 3, 3, 50, counted(0.5)),
]
COMMIT = CommitResult(OutputFormat.LANCE, "near.lance", appends=False)
PROBE = Probe(Strategy.IVF, Scope.FULL, 150)


@dataclass
class Search:
    """Searches nothing, and logs what it is asked for."""

    log: list[object] = field(default_factory=list)
    reached: list[StageProgress] = field(default_factory=list)
    fails: Exception | None = None
    left: Any = field(default_factory=lambda: side(10))
    right: Any = field(default_factory=lambda: side(20))
    materialize: Any = field(
        default_factory=lambda: SimpleNamespace(
            writer=WRITER, schema="schema", previous=None, ranks=(1,)
        )
    )

    def on_stage(self, progress: StageProgress) -> None:
        self.reached.append(progress)

    def exact(self, stages: tuple[Probe, CommitResult]) -> SearchResult:
        if self.fails is not None:
            raise self.fails
        self.log.append(stages)
        return SearchResult(stages[0].strategy, CHUNKS, Accuracy(0.9, 4))


def side(rows: int) -> SimpleNamespace:
    return SimpleNamespace(side=SimpleNamespace(all_rows=Rows(0, rows)))


@pytest.fixture
def discarded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was discarded; the result is always replaced by another one."""
    log: list[object] = []
    monkeypatch.setattr(output, "discard", lambda _, written: log.append(list(written)))
    monkeypatch.setattr(output, "replace", lambda *_: OUTPUT)
    return log


@contextmanager
def prepared(search: Search, **changes: Any) -> Iterator[PreparedJoin]:
    source = SideSource("v", ("id",))
    work = JoinWork("near", JoinRequest(3), source, source, OutputFormat.LANCE, "near.lance")
    with ExitStack() as rollback:
        rollback.callback(output.discard, WRITER, [])  # type: ignore[arg-type]
        yield PreparedJoin(
            replace(work, **changes),
            JoinFacts(JoinSize(10, 20, 2), 2),
            search,  # type: ignore[arg-type]
            excluded=5,
            unproven={"left": ("names 'now'",)},
            rollback=rollback,
            probing=Probe(Strategy.EXACT, Scope.FULL, None),
        )


def test_a_join_can_be_searched_and_committed_as_soon_as_it_is_prepared(
    discarded: list[object],
) -> None:
    search = Search()
    with prepared(search) as join:
        outcome = join.commit(COMMIT)
    assert search.log == [(Probe(Strategy.EXACT, Scope.FULL, None), COMMIT)]
    assert outcome.counts == JoinCounts(10, 25, 1, 8)
    assert (outcome.strategy, outcome.pairs, outcome.output) == ("exact", 150, OUTPUT)
    assert (outcome.accuracy, outcome.unproven) == (Accuracy(0.9, 4), {"left": ("names 'now'",)})
    assert outcome.distances is not None
    assert outcome.distances.left_rows == 10
    assert_counted(outcome.distances, enumerate([0.5, 2.5, 0.5]))
    assert search.reached == [StageProgress(COMMIT)]
    assert not discarded


def test_a_search_that_fails_is_rolled_back_without_secrets(discarded: list[object]) -> None:
    search = Search(fails=OSError("hidden is away"))
    with (
        pytest.raises(JobFailed, match=r"joining 'near' failed: OSError: .* is away") as caught,
        prepared(search) as join,
    ):
        join.commit(COMMIT)
    assert "hidden" not in str(caught.value)
    assert discarded == [[]]


def test_a_commit_that_fails_discards_what_was_written(
    discarded: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> OutputState:
        raise OutputNotWritten("no space is left")

    monkeypatch.setattr(output, "replace", fail)
    with pytest.raises(OutputNotWritten), prepared(Search()) as join:
        join.commit(COMMIT)
    assert discarded == [[chunk.written for chunk in CHUNKS]]


def test_new_left_rows_are_appended_and_counted_with_the_others(
    discarded: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[object] = []

    def append(*arguments: object) -> OutputState:
        appended.append(arguments[2:])
        return OUTPUT

    monkeypatch.setattr(output, "append", append)
    known = JoinCounts(100, 25, 7, 8)
    previous = replace(OUTPUT, version=1)
    increment = Increment(Scope.NEW_LEFT, frozenset(), previous, known)
    with prepared(Search(), increment=increment) as join:
        outcome = join.commit(replace(COMMIT, appends=True))
    assert appended == [(previous, [chunk.written for chunk in CHUNKS])]
    assert outcome.counts == JoinCounts(110, 25, 8, 8)


def test_a_last_result_of_other_rows_is_stale(
    discarded: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search()
    search.grid = SimpleNamespace(chunks=[Rows(0, 6), Rows(6, 10)])  # type: ignore[attr-defined]
    search.jobs = None  # type: ignore[attr-defined]
    search.materialize.line_count = lambda valid, _, width: valid * width
    monkeypatch.setattr("lancestat.joins.spark.prepared_join.count_valid", lambda *_: [5, 4])
    increment = Increment(Scope.NEW_RIGHT, frozenset(), OUTPUT, JoinCounts(10, 2, 1, 0))
    with (
        pytest.raises(StaleBase, match=r"near\.lance has 30 rows, but 18 follow from its sides"),
        prepared(search, increment=increment) as join,
    ):
        join.merge_neighbours()
    assert discarded == [[]]
