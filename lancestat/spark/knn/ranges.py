"""Joins of all pairs within a distance, which are written part by part and never all held."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import TooManyPairs
from lancestat.knn.distances import DistanceTally
from lancestat.knn.request import RANGE_NEIGHBOURS, JoinRequest
from lancestat.knn.search import ExactSearch, Neighbours, nothing, without
from lancestat.knn.vectors import Vectors
from lancestat.knn.work import Rows
from lancestat.plan.stages import CommitResult, JoinStage, OnStage, Probe
from lancestat.spark.knn.materialize import Materializer, ProbedChunk
from lancestat.spark.knn.reader import VectorReader, row_places
from lancestat.spark.knn.tasks import (
    SEARCHING,
    ProgressMeter,
    TaskProgress,
    WrittenChunk,
    worker_task,
)
from lancestat.spark.session.jobs import Jobs

# Left rows that a task searches at once: each time it streams the right side.
SLICE_ROWS = 4096
_GROWTH = 8
# Neighbours that are held at once, unless a single row has more: 12 bytes each.
MOST_HELD = 4 << 20


def too_many(pairs: int, request: JoinRequest) -> TooManyPairs:
    """The error for a result with more pairs than a join may write."""
    return TooManyPairs(
        f"more than {request.max_pairs:,} pairs are within the distance {request.max_distance:g}: "
        f"{pairs:,} were found before the join stopped",
        hint="lower 'max_distance', give a number as 'k', or raise 'max_pairs'",
    )


@dataclass(slots=True)
class RangeSearch:
    """Finds all right rows within the distance of some left rows, and counts what it did.

    `width` is the room for neighbours of each row at first: rows that have more are searched again.
    `most` is the room for neighbours that are held at once.
    """

    left: VectorReader
    right: VectorReader
    request: JoinRequest
    width: int = RANGE_NEIGHBOURS
    most: int = MOST_HELD
    pairs: int = 0
    excluded: int | None = field(default=None)

    def search(self, rows: Rows) -> Iterator[tuple[Rows, NDArray[np.bool_], Neighbours]]:
        """Yield consecutive rows, which of them can match, and the neighbours of these.

        The neighbours of all rows that are yielded together are as many as the widest row has.
        """
        for start in range(rows.start, rows.stop, SLICE_ROWS):
            part = Rows(start, min(start + SLICE_ROWS, rows.stop))
            queries = self.left.read(part)
            found = self._searched(part, queries, np.flatnonzero(queries.valid), self.width)
            yield from self._resolved(part, queries, found)

    def _resolved(
        self, rows: Rows, queries: Vectors, found: Neighbours
    ) -> Iterator[tuple[Rows, NDArray[np.bool_], Neighbours]]:
        width = found.positions.shape[1]
        is_full = found.positions[:, -1] >= 0
        wider = width * _GROWTH
        if not is_full.any() or width >= len(self.right.side.all_rows):
            yield rows, queries.valid, self._without_self(rows, queries, found)
        elif len(rows) > 1 and len(found.positions) * wider > self.most:
            middle = len(rows) // 2
            split = int(np.count_nonzero(queries.valid[:middle]))
            for part, some, known in (
                (Rows(rows.start, rows.start + middle), slice(middle), slice(split)),
                (Rows(rows.start + middle, rows.stop), slice(middle, None), slice(split, None)),
            ):
                vectors = Vectors(queries.values[some], queries.valid[some])
                half = Neighbours(found.positions[known], found.distances[known])
                yield from self._resolved(part, vectors, half)
        else:
            full = np.flatnonzero(queries.valid)[is_full]
            again = self._searched(rows, queries, full, wider)
            widened = nothing(len(found.positions), wider)
            widened.positions[:, :width], widened.distances[:, :width] = (
                found.positions, found.distances,
            )  # fmt: skip
            widened.positions[is_full], widened.distances[is_full] = (
                again.positions, again.distances,
            )  # fmt: skip
            yield from self._resolved(rows, queries, widened)

    def _searched(
        self, rows: Rows, queries: Vectors, which: NDArray[np.int64], width: int
    ) -> Neighbours:
        request, behind = self.request, None
        if request.pairs_once:
            _, behind = row_places(self.left.side, self.right.side, rows.start + which)
        nearest = ExactSearch(
            queries.values[which], width, request.metric, limit=request.limit, behind=behind
        )
        excluded = 0
        for block in self.right.blocks(self.right.side.all_rows):
            excluded += block.excluded
            self.pairs += len(block.rows) * len(which)
            if behind is not None:
                self.pairs -= int(np.searchsorted(block.positions, behind).sum())
            nearest.add(block.rows, block.positions)
        self.excluded = excluded
        return nearest.neighbours()

    def _without_self(self, rows: Rows, queries: Vectors, found: Neighbours) -> Neighbours:
        if not self.request.excludes_self or self.request.pairs_once:
            return found
        positions = rows.start + np.flatnonzero(queries.valid)
        own, _ = row_places(self.left.side, self.right.side, positions)
        # Without itself a row has at most one neighbour fewer than there is room for.
        padded = nothing(len(own), found.positions.shape[1] + 1)
        padded.positions[:, :-1], padded.distances[:, :-1] = found.positions, found.distances
        return without(padded, own)


@dataclass(frozen=True, slots=True)
class RangeJob:
    """The job over chunks of left rows, each of which is searched and written by one task."""

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    chunks: tuple[Rows, ...]
    materialize: Materializer
    request: JoinRequest
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage

    def run(self) -> list[WrittenChunk]:
        """Search and write all chunks, in their order; nothing is committed.

        Raises:
            TooManyPairs: more pairs than the request allows are within the distance.
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        left, right, request, materialize = self.left, self.right, self.request, self.materialize
        chunks, threads, options = self.chunks, self.threads, materialize.writer.storage_options
        probing, committing = self.stages

        def searched(
            numbers: Iterable[int],
        ) -> Iterator[tuple[tuple[WrittenChunk, int], list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                for number in numbers:
                    started = time.perf_counter()
                    search = RangeSearch(left, right, request)
                    parts = _Counted(search.search(chunks[number]), request, materialize.ranks)
                    written = materialize.write_parts(number, parts)
                    seconds = time.perf_counter() - started
                    chunk = WrittenChunk(
                        written,
                        parts.matched,
                        search.excluded or 0,
                        search.pairs,
                        parts.distances.counts(),
                    )
                    rows = len(chunks[number])
                    yield (
                        (chunk, parts.found),
                        [
                            TaskProgress(probing, rows, search.pairs, seconds),
                            TaskProgress(committing, rows),
                        ],
                    )

        rows = sum(map(len, chunks))
        totals: dict[JoinStage, int] = {probing: rows, committing: rows}
        meter = ProgressMeter(self.on_stage, totals, min(len(chunks), self.jobs.cores))
        done = self.jobs.run(searched, range(len(chunks)), meter.listen)
        found = sum(found for _, found in done)
        if found > request.max_pairs:
            raise too_many(found, request)
        return [chunk for chunk, _ in done]


class _Counted:
    """Passes parts of a chunk on, and counts pairs, left rows that have some, and distances."""

    def __init__(
        self,
        parts: Iterable[tuple[Rows, NDArray[np.bool_], Neighbours]],
        request: JoinRequest,
        ranks: Sequence[int],
    ) -> None:
        self._parts = parts
        self._request = request
        self.distances = DistanceTally(ranks)
        self.found = 0
        self.matched = 0

    def __iter__(self) -> Iterator[ProbedChunk]:
        for rows, is_valid, neighbours in self._parts:
            is_found = neighbours.positions >= 0
            self.found += int(np.count_nonzero(is_found))
            self.matched += int(np.count_nonzero(is_found.any(axis=1)))
            if self.found > self._request.max_pairs:
                raise too_many(self.found, self._request)
            self.distances.add(neighbours)
            yield ProbedChunk(0, rows, is_valid, neighbours)
