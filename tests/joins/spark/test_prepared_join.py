"""Prepared joins without Spark: the division of pairs among tasks, and what failures leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import JobFailed, OutputNotWritten
from lancestat.joins.action import CommitResult, Probe
from lancestat.joins.output.writer import Written
from lancestat.joins.record import Accuracy, OutputFormat, OutputState
from lancestat.joins.search.cost_model import JoinSize, Strategy
from lancestat.joins.search.distances import CellCounts, DistanceTally
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.work import JoinOutcome, JoinRequest, JoinWork, Rows, Scope, SideSource
from lancestat.joins.spark import prepared_join
from lancestat.joins.spark.cells import CHUNK_BYTES, Grid, cut, cut_by_pairs, grid, list_grid
from lancestat.joins.spark.job import WrittenChunk
from lancestat.joins.spark.prepared_join import PreparedJoin


@given(
    st.integers(0, 1000),
    st.integers(0, 10_000_000),
    st.integers(0, 10_000_000),
    st.integers(1, 4096),
    st.integers(1, 100_000),
    st.integers(1, 64),
)
def test_every_left_row_is_in_one_chunk_that_fits_a_task(
    start: int, left: int, right: int, dimension: int, k: int, cores: int
) -> None:
    cells = grid(Rows(start, start + left), right, dimension=dimension, k=k, cores=cores)

    edges = [chunk.start for chunk in cells.chunks] + [cells.chunks[-1].stop]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (start, start + left)
    held = 4 * dimension + 24 * min(k, max(1, right))
    assert all(len(chunk) == 1 or len(chunk) * held <= 2 * CHUNK_BYTES for chunk in cells.chunks)
    assert 1 <= cells.parts <= max(1, right)


@pytest.mark.parametrize(
    ("left", "right", "chunks", "parts"),
    [
        (100_000, 1_000_000, 2, 1),
        (1_024, 1_000_000, 2, 1),
        (1_000, 1_000_000, 1, 2),
        (10, 10_000_000, 1, 2),
        (100, 100_000, 1, 2),
        (100, 10_000, 1, 1),
        (500, 60_000, 1, 1),
        (0, 0, 1, 1),
    ],
)
def test_all_cores_are_busy_where_a_join_takes_long(
    left: int, right: int, chunks: int, parts: int
) -> None:
    cells = grid(Rows(0, left), right, dimension=128, k=10, cores=2)

    assert (len(cells.chunks), cells.parts) == (chunks, parts)


def test_many_chunks_come_in_whole_rounds() -> None:
    cells = grid(Rows(0, 10_000_000), 1000, dimension=768, k=10, cores=8)

    assert len(cells.chunks) > 8
    assert len(cells.chunks) % 8 == 0


def test_without_parts_the_left_side_is_cut_instead() -> None:
    cells = grid(Rows(5, 505), 10_000_000, dimension=128, k=10, cores=2)
    assert cells.parts == 2

    whole = cells.without_parts(2)

    assert (whole.chunks, whole.parts) == ((Rows(5, 255), Rows(255, 505)), 1)


@given(st.integers(0, 100), st.integers(0, 1000), st.integers(1, 50))
def test_cuts_differ_by_one_row_at_most(start: int, count: int, parts: int) -> None:
    lengths = [len(part) for part in cut(Rows(start, start + count), parts)]

    assert sum(lengths) == count
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, 1000), st.integers(1, 100_000), st.integers(1, 50))
def test_cuts_by_pairs_have_as_many_rows_after_theirs(start: int, count: int, parts: int) -> None:
    cuts = cut_by_pairs(Rows(start, start + count), parts)
    edges = [cut.start for cut in cuts] + [cuts[-1].stop]
    assert edges == sorted(set(edges)) and (edges[0], edges[-1]) == (start, start + count)
    assert len(cuts) <= parts
    stop = start + count
    pairs = [sum(range(stop - cut.stop, stop - cut.start)) for cut in cuts]
    # An edge is off by half a row, which has up to `count` pairs.
    assert len(cuts) < parts or max(pairs) - min(pairs) <= 3 * count


def test_no_rows_are_one_cut_by_pairs() -> None:
    assert cut_by_pairs(Rows(7, 7), 4) == [Rows(7, 7)]


def test_lists_are_split_where_chunks_would_read_them_again() -> None:
    left = Rows(5, 10_005)
    many = grid(left, 1_000_000, dimension=128, k=10, cores=2)
    assert (len(many.chunks), many.parts) == (2, 1)
    lists = list_grid(left, 1_000_000, many, dimension=128, k=10, cores=2)
    assert lists == Grid((left,), 2)
    # Little is spared by merging, the left rows do not fit into fewer chunks, or lists are split.
    assert list_grid(left, 10_000, many, dimension=128, k=10, cores=2) is many
    heavy = grid(left, 1_000_000, dimension=8192, k=10, cores=2)
    assert list_grid(left, 1_000_000, heavy, dimension=8192, k=10, cores=2) is heavy
    assert list_grid(left, 1_000_000, lists, dimension=128, k=10, cores=2) is lists


WRITER = SimpleNamespace(storage_options={"secret": "hidden"})
OUTPUT = OutputState(30, "made", 2)
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
    output = SimpleNamespace(discard=log.append, replace=lambda *_: OUTPUT)
    monkeypatch.setattr(prepared_join, "output_of", lambda _: output)
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
        rollback.callback(prepared_join.output_of(WRITER).discard, WRITER)  # type: ignore[arg-type]
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
    assert len(discarded) == 1


def test_a_commit_that_fails_discards_what_was_written(
    discarded: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> OutputState:
        raise OutputNotWritten("no space is left")

    monkeypatch.setattr(prepared_join.output_of(WRITER), "replace", fail)
    with pytest.raises(OutputNotWritten), prepared() as join:
        run(join)
    assert len(discarded) == 1
