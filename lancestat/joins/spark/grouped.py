"""Joins of rows with equal keys: each group of both sides, as laid out, is searched alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.action import CommitResult, JoinStage, Probe
from lancestat.joins.search.groups import GroupCell
from lancestat.joins.search.neighbours import Neighbours, nothing
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.group_search import CellSearch
from lancestat.joins.spark.materialize import Materializer
from lancestat.joins.spark.tasks import (
    SEARCHING,
    WRITING,
    ProbeResult,
    ProgressMeter,
    TaskProgress,
    WrittenChunk,
    worker_task,
    written_chunk,
)
from lancestat.runs.stages import OnStage
from lancestat.spark.jobs import Jobs, Merging


@dataclass(frozen=True, slots=True)
class GroupedNeighbours:
    """Neighbours of some left rows of a chunk: their positions, in any order."""

    positions: NDArray[np.int64]
    neighbours: Neighbours
    pairs: int


def merge_grouped(left: GroupedNeighbours, right: GroupedNeighbours) -> GroupedNeighbours:
    """Put the neighbours of different left rows together."""
    both = (left.neighbours, right.neighbours)
    return GroupedNeighbours(
        np.concatenate([left.positions, right.positions]),
        Neighbours(
            np.concatenate([part.positions for part in both]),
            np.concatenate([part.distances for part in both]),
        ),
        left.pairs + right.pairs,
    )


@dataclass(frozen=True, slots=True)
class GroupProbe:
    """Searches groups for the neighbours of their left rows; travels to Spark's workers.

    `starts` are the positions at which the chunks of left rows start.
    """

    search: CellSearch
    starts: NDArray[np.int64]

    def __call__(self, cell: GroupCell) -> Iterator[tuple[int, GroupedNeighbours]]:
        """Yield the neighbours of a cell's left rows, by chunk of the left side."""
        rows = self.search.left_rows(cell)
        if not len(rows.positions):
            return
        searched = self.search.nearest(cell, rows, self.search.request.searched)
        pairs, found, positions = searched.pairs, searched.neighbours, rows.positions
        chunks = np.searchsorted(self.starts, positions, side="right") - 1
        order = np.argsort(chunks, kind="stable")
        numbers, firsts = np.unique(chunks[order], return_index=True)
        for number, (start, stop) in zip(
            numbers.tolist(), pairwise([*firsts.tolist(), len(order)]), strict=True
        ):
            some = order[start:stop]
            part = Neighbours(found.positions[some], found.distances[some])
            yield number, GroupedNeighbours(positions[some], part, pairs)
            pairs = 0


@dataclass(frozen=True, slots=True)
class GroupedJob:
    """The job over all groups: cells are searched, and neighbours go to the chunks of left rows."""

    jobs: Jobs
    chunks: tuple[Rows, ...]
    materialize: Materializer
    request: JoinRequest
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def run(self, search: CellSearch | None, excluded: int) -> list[WrittenChunk]:
        """Search all groups, and write the chunks in their order.

        Args:
            search: None where no rows have equal keys.
            excluded: Right rows that cannot match.

        Raises:
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        done = {} if search is None else self._searched(search, excluded)
        missing = [number for number in range(len(self.chunks)) if number not in done]
        done |= self._written_empty(missing, excluded)
        return [done[number] for number in range(len(self.chunks))]

    def _searched(self, search: CellSearch, excluded: int) -> dict[int, WrittenChunk]:
        cells = search.cells(self.jobs.cores)
        if not cells:
            return {}
        chunks, materialize, threads = self.chunks, self.materialize, self.threads
        k = self.request.searched
        starts = np.array([chunk.start for chunk in chunks], np.int64)
        probe = GroupProbe(search, starts)
        options, (probing, committing) = materialize.writer.storage_options, self.stages

        def probed(
            task_cells: Iterable[GroupCell],
        ) -> Iterator[tuple[tuple[int, GroupedNeighbours], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for cell in task_cells:
                    started = time.perf_counter()
                    for number, part in probe(cell):
                        seconds = time.perf_counter() - started
                        rows = len(part.positions)
                        yield (number, part), [TaskProgress(probing, rows, part.pairs, seconds)]
                        started = time.perf_counter()

        def written(
            results: Iterable[tuple[int, GroupedNeighbours]],
        ) -> Iterator[tuple[tuple[int, WrittenChunk], list[TaskProgress]]]:
            with worker_task(threads, options, WRITING):
                for number, part in results:
                    rows = chunks[number]
                    chunk = written_chunk(
                        materialize, number, rows, _in_order(part, rows, k, excluded)
                    )
                    yield (number, chunk), [TaskProgress(committing, len(rows))]

        totals: dict[JoinStage, int] = {
            probing: search.left_count,
            committing: sum(map(len, chunks)),
        }
        meter = ProgressMeter(self.on_stage, totals, min(len(cells), self.jobs.cores))
        merging = Merging(len(chunks), merge_grouped, written)
        return dict(self.jobs.run_merged(probed, merging, cells, meter.listen))

    def _written_empty(self, numbers: Sequence[int], excluded: int) -> dict[int, WrittenChunk]:
        """Write chunks of which no row is in a group."""
        if not numbers:
            return {}
        chunks, materialize, threads, k = (
            self.chunks, self.materialize, self.threads, self.request.searched
        )  # fmt: skip

        def write(chunk_numbers: Iterable[int]) -> Iterator[tuple[WrittenChunk, tuple[()]]]:
            with worker_task(threads, materialize.writer.storage_options, WRITING):
                for number in chunk_numbers:
                    rows = chunks[number]
                    none = np.zeros(len(rows), np.bool_)
                    probed = ProbeResult(none, nothing(0, k), excluded, 0)
                    yield written_chunk(materialize, number, rows, probed), ()

        return dict(zip(numbers, self.jobs.run(write, numbers), strict=True))


def _in_order(part: GroupedNeighbours, rows: Rows, k: int, excluded: int) -> ProbeResult:
    """Return the neighbours of a chunk in the order of its rows."""
    order = np.argsort(part.positions)
    is_valid = np.zeros(len(rows), np.bool_)
    is_valid[part.positions - rows.start] = True
    found = part.neighbours
    neighbours = Neighbours(found.positions[order], found.distances[order])
    return ProbeResult(is_valid, neighbours, excluded, part.pairs)
