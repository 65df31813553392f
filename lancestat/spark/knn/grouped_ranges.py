"""Joins of all pairs within a distance among rows with equal keys.

Groups are searched one after the other, and the pairs that are found go to scratch. From there they
are read in the order of the left rows, some of these at a time, so that they are never all held.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.knn.groups import GroupCell
from lancestat.knn.pair_store import Pairs, PairStore, WrittenPairs, write_pairs
from lancestat.knn.request import JoinRequest
from lancestat.knn.search import Neighbours, nothing
from lancestat.knn.vectors import Vectors
from lancestat.knn.widening import WideningSearch
from lancestat.knn.work import Rows
from lancestat.plan.stages import CommitResult, JoinStage, OnStage, Probe
from lancestat.scratch.folder import require_visible
from lancestat.spark.knn.group_layout import GroupLayout
from lancestat.spark.knn.group_search import CellRows, CellSearch
from lancestat.spark.knn.materialize import Materializer, ProbedChunk
from lancestat.spark.knn.ranges import too_many
from lancestat.spark.knn.tasks import (
    SEARCHING,
    WRITING,
    ProgressMeter,
    TaskProgress,
    WrittenChunk,
    worker_task,
)
from lancestat.spark.read.fragment_reader import pinned_dataset
from lancestat.spark.session.jobs import Jobs

# Left rows of a bin, to which the places of pairs in scratch are known.
_BIN_ROWS = 1024


@dataclass(slots=True)
class GroupRangeSearch:
    """Finds the pairs of cells within the distance, and counts them and those it compared."""

    search: CellSearch
    found: int = 0
    pairs: int = 0

    def __call__(self, cell: GroupCell) -> Iterator[Pairs]:
        """Yield the pairs of the left rows of a cell.

        Raises:
            TooManyPairs: more pairs than the request allows were found.
        """
        rows, search = self.search.left_rows(cell), self.search
        widest = int(np.max(search.right.list_rows[cell.groups.start : cell.groups.stop]))

        def find(part: Rows, _: Vectors, which: NDArray[np.int64], width: int) -> Neighbours:
            result = search.nearest(cell, rows.some(part.start + which), width)
            self.pairs += result.pairs
            return result.neighbours

        queries = Vectors(rows.vectors, np.ones(len(rows.positions), np.bool_))
        for part, _, neighbours in WideningSearch(find, widest).search(
            Rows(0, len(rows.positions)), queries
        ):
            yield self._pairs(rows, part, neighbours)

    def _pairs(self, rows: CellRows, part: Rows, neighbours: Neighbours) -> Pairs:
        request, positions = self.search.request, rows.positions[part.start : part.stop]
        query, turn = np.nonzero(neighbours.positions >= 0)
        right = neighbours.positions[query, turn]
        pairs = Pairs(positions[query], right, neighbours.distances[query, turn])
        if request.excludes_self and not request.pairs_once:
            own, _ = self.search.places(positions)
            pairs = pairs.some(right != own[query])
        self.found += len(pairs)
        if self.found > request.max_pairs:
            raise too_many(self.found, request)
        return pairs


@dataclass(frozen=True, slots=True)
class _Bins:
    """The number of a chunk of left rows, and the bins of it, by their numbers."""

    chunk: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class GroupedRangeJob:
    """The jobs over all groups, and over chunks of left rows, each written by one task."""

    jobs: Jobs
    chunks: tuple[Rows, ...]
    materialize: Materializer
    request: JoinRequest
    dimension: int
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def run(self, layout: GroupLayout) -> list[WrittenChunk]:
        """Search all groups, and write the chunks in their order; nothing is committed.

        Raises:
            TooManyPairs: more pairs than the request allows are within the distance; none of
                the result is written then.
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        bins, edges = _bins(self.chunks)
        sides = (self.materialize.left, self.materialize.right)
        search = CellSearch.of(layout, self.request, self.dimension, sides)
        store, pairs = None, 0
        if search is not None:
            store, pairs = self._found(search, edges, layout.pairs_uri)
        written = self._written(bins, edges, store)
        return [
            WrittenChunk(chunk.written, chunk.matched, layout.excluded, pairs * (number == 0))
            for number, chunk in enumerate(written)
        ]

    def _found(
        self, search: CellSearch, edges: NDArray[np.int64], uri: str
    ) -> tuple[PairStore | None, int]:
        """Search all cells; return the pairs, None for none, and how many were compared."""
        options, threads, probing = search.left.storage_options, self.threads, self.stages[0]
        cells = search.cells(self.jobs.cores)
        if not cells:
            return None, 0

        def searched(
            task_cells: Iterable[GroupCell],
        ) -> Iterator[tuple[tuple[WrittenPairs, int, int], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                require_visible(uri)
                for cell in task_cells:
                    started = time.perf_counter()
                    found = GroupRangeSearch(search)
                    written = write_pairs(found(cell), edges, uri, options)
                    seconds = time.perf_counter() - started
                    rows = _left_count(search, cell)
                    steps = [TaskProgress(probing, rows, found.pairs, seconds)]
                    yield (written, found.found, found.pairs), steps

        totals: dict[JoinStage, int] = {probing: search.left_count}
        meter = ProgressMeter(self.on_stage, totals, min(len(cells), self.jobs.cores))
        done = self.jobs.run(searched, cells, meter.listen)
        found = sum(found for _, found, _ in done)
        if found > self.request.max_pairs:
            raise too_many(found, self.request)
        pairs = sum(pairs for _, _, pairs in done)
        parts = [part for part, _, _ in done if part.fragments]
        return PairStore.commit(parts, edges, uri, options) if parts else None, pairs

    def _written(
        self, bins: list[_Bins], edges: NDArray[np.int64], store: PairStore | None
    ) -> list[WrittenChunk]:
        materialize, threads, committing = self.materialize, self.threads, self.stages[1]
        chunks, options = self.chunks, materialize.writer.storage_options

        def written(
            items: Iterable[tuple[_Bins, PairStore | None]],
        ) -> Iterator[tuple[WrittenChunk, list[TaskProgress]]]:
            with worker_task(threads, options, WRITING):
                for item, pairs in items:
                    parts = _Matched(_parts(chunks[item.chunk], pairs))
                    done = materialize.write_parts(item.chunk, parts)
                    chunk = WrittenChunk(done, parts.matched, 0, 0)
                    yield chunk, [TaskProgress(committing, len(chunks[item.chunk]))]

        totals: dict[JoinStage, int] = {committing: sum(map(len, chunks))}
        meter = ProgressMeter(self.on_stage, totals, min(len(chunks), self.jobs.cores))
        items = [
            (some, None if store is None else store.of_bins(some.first, some.last)) for some in bins
        ]
        return self.jobs.run(written, items, meter.listen)


def _bins(chunks: tuple[Rows, ...]) -> tuple[list[_Bins], NDArray[np.int64]]:
    """Divide chunks into bins, each of which lies in one; return them and the edges of all."""
    bins: list[_Bins] = []
    starts: list[int] = []
    for number, chunk in enumerate(chunks):
        first = len(starts)
        starts += range(chunk.start, chunk.stop, _BIN_ROWS)
        bins.append(_Bins(number, first, len(starts)))
    return bins, np.array([*starts, chunks[-1].stop], np.int64)


def _left_count(search: CellSearch, cell: GroupCell) -> int:
    if cell.rows is not None:
        return len(cell.rows)
    groups = slice(cell.groups.start, cell.groups.stop)
    return int(search.left.list_rows[groups][search.right.list_rows[groups] > 0].sum())


def _parts(rows: Rows, store: PairStore | None) -> Iterator[tuple[Rows, Neighbours]]:
    if store is None:
        for start in range(rows.start, rows.stop, _BIN_ROWS):
            some = Rows(start, min(start + _BIN_ROWS, rows.stop))
            yield some, nothing(len(some), 1)
        return
    yield from store.neighbours(pinned_dataset(store.pin, store.storage_options))


class _Matched:
    """Passes parts of a chunk on, and counts left rows that have neighbours."""

    def __init__(self, parts: Iterable[tuple[Rows, Neighbours]]) -> None:
        self._parts = parts
        self.matched = 0

    def __iter__(self) -> Iterator[ProbedChunk]:
        for rows, neighbours in self._parts:
            self.matched += int(np.count_nonzero((neighbours.positions >= 0).any(axis=1)))
            yield ProbedChunk(0, rows, np.ones(len(rows), np.bool_), neighbours)
