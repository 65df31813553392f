"""The jobs of joins of all pairs within a distance, which never hold all of them.

Pairs go to scratch as they are found, and are counted before any of the result is written. From
there they are read in the order of the left rows, some of these at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import TooManyPairs
from lancestat.joins.action import CommitResult, JoinStage, Probe
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.distances import DistanceTally
from lancestat.joins.search.neighbours import Neighbours, nothing
from lancestat.joins.search.pair_store import Pairs, PairStore, WrittenPairs, write_pairs
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.materialize import Materializer, ProbedChunk
from lancestat.joins.spark.tasks import (
    SEARCHING,
    WRITING,
    ProgressMeter,
    TaskProgress,
    WrittenChunk,
    worker_task,
)
from lancestat.runs.stages import OnStage
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs

# Left rows of a bin, to which the places of pairs in scratch are known.
_BIN_ROWS = 1024

Item_contra = TypeVar("Item_contra", contravariant=True)
Item = TypeVar("Item")


class PairSearch(Protocol[Item_contra]):
    """The search of one item; `pairs` were compared.

    `excluded` right rows cannot match, where this search counts them.
    """

    pairs: int
    excluded: int | None

    def __call__(self, item: Item_contra, /) -> Iterator[Pairs]:
        """Yield all pairs of an item within the distance."""
        ...


@dataclass(frozen=True, slots=True)
class SearchItem(Generic[Item]):
    """The work of a task that searches, for `rows` left rows."""

    item: Item
    rows: int


@dataclass(frozen=True, slots=True)
class _Found:
    written: WrittenPairs
    found: int
    pairs: int
    excluded: int


@dataclass(frozen=True, slots=True)
class _Bins:
    """The number of a chunk of left rows, and the bins of it, by their numbers."""

    chunk: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RangeJob(Generic[Item]):
    """The jobs over items, each of which is searched by one task, and over chunks of left rows.

    `new_search` is called for every item and travels to Spark's workers. `uri` is a place in
    scratch, which `storage_options` reach.
    """

    jobs: Jobs
    new_search: Callable[[], PairSearch[Item]]
    chunks: tuple[Rows, ...]
    materialize: Materializer
    request: JoinRequest
    threads: int
    stages: tuple[Probe, CommitResult]
    on_stage: OnStage
    uri: str
    storage_options: Mapping[str, str] = field(repr=False)

    def run(self, items: Sequence[SearchItem[Item]], excluded: int) -> list[WrittenChunk]:
        """Search all items, and write the chunks in their order; nothing is committed.

        Args:
            items: Those that may have pairs.
            excluded: Right rows that cannot match, and that no search counts.

        Raises:
            TooManyPairs: more pairs than the request allows are within the distance; none of
                the result is written then.
            WorkerError: what a worker raised, after Spark's own retries, inside Spark's exception.
        """
        bins, edges = _bins(self.chunks)
        done = self._searched(items, edges)
        found, pairs = sum(part.found for part in done), sum(part.pairs for part in done)
        if found > self.request.max_pairs:
            raise too_many(found, self.request)
        parts = [part.written for part in done if part.written.fragments]
        options = self.storage_options
        store = PairStore.commit(parts, edges, self.uri, options) if parts else None
        excluded += max((part.excluded for part in done), default=0)
        return [
            replace(chunk, excluded=excluded, pairs=pairs * (number == 0))
            for number, chunk in enumerate(self._written(bins, store))
        ]

    def _searched(
        self, items: Sequence[SearchItem[Item]], edges: NDArray[np.int64]
    ) -> list[_Found]:
        request, uri, new_search = self.request, self.uri, self.new_search
        options, threads = self.storage_options, self.threads
        probing = self.stages[0]

        def searched(
            task_items: Iterable[SearchItem[Item]],
        ) -> Iterator[tuple[_Found, list[TaskProgress]]]:
            with worker_task(threads, options, SEARCHING):
                require_visible(uri)
                for item in task_items:
                    started = time.perf_counter()
                    search = new_search()
                    counted = _Counted(search(item.item), request)
                    written = write_pairs(counted, edges, uri, options)
                    seconds = time.perf_counter() - started
                    steps = [TaskProgress(probing, item.rows, search.pairs, seconds)]
                    yield _Found(written, counted.found, search.pairs, search.excluded or 0), steps

        if not items:
            return []
        totals: dict[JoinStage, int] = {probing: sum(item.rows for item in items)}
        meter = ProgressMeter(self.on_stage, totals, min(len(items), self.jobs.cores))
        return self.jobs.run(searched, items, meter.listen)

    def _written(self, bins: Sequence[_Bins], store: PairStore | None) -> list[WrittenChunk]:
        materialize, threads, committing = self.materialize, self.threads, self.stages[1]
        chunks, options = self.chunks, materialize.writer.storage_options

        def written(
            items: Iterable[tuple[int, PairStore | None]],
        ) -> Iterator[tuple[WrittenChunk, list[TaskProgress]]]:
            with worker_task(threads, options, WRITING):
                for number, pairs in items:
                    parts = _Matched(_parts(chunks[number], pairs), materialize.ranks)
                    done = materialize.write_parts(number, parts)
                    chunk = WrittenChunk(done, parts.matched, 0, 0, parts.distances.counts())
                    yield chunk, [TaskProgress(committing, len(chunks[number]))]

        totals: dict[JoinStage, int] = {committing: sum(map(len, chunks))}
        meter = ProgressMeter(self.on_stage, totals, min(len(chunks), self.jobs.cores))
        items = [
            (some.chunk, None if store is None else store.of_bins(some.first, some.last))
            for some in bins
        ]
        return self.jobs.run(written, items, meter.listen)


def too_many(pairs: int, request: JoinRequest) -> TooManyPairs:
    """The error for a result with more pairs than a join may write."""
    return TooManyPairs(
        f"more than {request.max_pairs:,} pairs are within the distance {request.max_distance:g}: "
        f"{pairs:,} were found before the join stopped",
        hint="lower 'max_distance', give a number as 'k', or raise 'max_pairs'",
    )


def _bins(chunks: tuple[Rows, ...]) -> tuple[list[_Bins], NDArray[np.int64]]:
    """Divide chunks into bins, each of which lies in one; return them and the edges of all."""
    bins: list[_Bins] = []
    starts: list[int] = []
    for number, chunk in enumerate(chunks):
        first = len(starts)
        starts += range(chunk.start, chunk.stop, _BIN_ROWS)
        bins.append(_Bins(number, first, len(starts)))
    return bins, np.array([*starts, chunks[-1].stop], np.int64)


def _parts(rows: Rows, store: PairStore | None) -> Iterator[tuple[Rows, Neighbours]]:
    if store is None:
        for start in range(rows.start, rows.stop, _BIN_ROWS):
            some = Rows(start, min(start + _BIN_ROWS, rows.stop))
            yield some, nothing(len(some), 1)
        return
    yield from store.neighbours(pinned_dataset(store.pin, store.storage_options))


class _Counted:
    """Passes pairs on, counts them, and ends where there are too many of them."""

    def __init__(self, parts: Iterable[Pairs], request: JoinRequest) -> None:
        self._parts = parts
        self._request = request
        self.found = 0

    def __iter__(self) -> Iterator[Pairs]:
        for pairs in self._parts:
            self.found += len(pairs)
            if self.found > self._request.max_pairs:
                raise too_many(self.found, self._request)
            yield pairs


class _Matched:
    """Passes parts of a chunk on, and counts left rows that have neighbours, and distances."""

    def __init__(self, parts: Iterable[tuple[Rows, Neighbours]], ranks: Sequence[int]) -> None:
        self._parts = parts
        self.matched = 0
        self.distances = DistanceTally(ranks)

    def __iter__(self) -> Iterator[ProbedChunk]:
        for rows, neighbours in self._parts:
            self.matched += int(np.count_nonzero((neighbours.positions >= 0).any(axis=1)))
            self.distances.add(neighbours)
            yield ProbedChunk(0, rows, np.ones(len(rows), np.bool_), neighbours)
