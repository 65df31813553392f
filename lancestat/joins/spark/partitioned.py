"""The right side in lists by centroid on Spark: laid out, measured, searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import lance
import numpy as np
from numpy.typing import NDArray

from lancestat.errors import LancestatError, PartitionsLost
from lancestat.joins.scratch.folder import require_visible
from lancestat.joins.search.centroids import Centroids, choose_nprobes, recall_curve, train
from lancestat.joins.search.cost_model import SAMPLE_ROWS, TRAIN_ROWS
from lancestat.joins.search.laid_pieces import LaidPiece, laid_pieces, sample_lists
from lancestat.joins.search.list_search import SampledQueries, search_lists
from lancestat.joins.search.live_rows import OFFSET_BITS, OFFSET_MASK
from lancestat.joins.search.neighbours import share_found
from lancestat.joins.search.partitions import (
    PartitionedDataset,
    WrittenPart,
    commit,
    live_list_rows,
    write_partition,
)
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.sampled import SampledNeighbours, merge_sampled
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.grid import cut
from lancestat.joins.spark.reader import Block, VectorReader
from lancestat.joins.spark.row_places import RowPlaces
from lancestat.joins.spark.tasks import Cell, ProbeResult, worker_task
from lancestat.spark.fragment_reader import pinned_dataset
from lancestat.spark.jobs import Jobs

# Bytes of right vectors that a task lays out at once: longer lists in a file mean fewer, longer
# reads.
LAYOUT_BYTES = 128 << 20
# Rows by which the search judges how accurate its products are.
_LIKE_ROWS = 2048
# Rows to train on are taken so many in a row: by single rows it takes twenty times as long.
_TRAIN_TOGETHER = 8
# Sampled left rows that choose how many lists to visit, and those that measure the recall: every
# other one, since the sample is in row order, which may not be random.
_CHOOSING, _MEASURING = slice(None, None, 2), slice(1, None, 2)


@dataclass(frozen=True, slots=True)
class Layout:
    """The right side by list, and the number of lists that a left row visits.

    `recall` is measured on a sample of left rows that did not choose `nprobes`; None where
    there are no left rows to sample. `excluded` right rows cannot match. `rows` are the numbers of
    live rows in the lists. With `places` the search knows rows by their keys.
    """

    partitioned: PartitionedDataset
    centroids: Centroids
    rows: NDArray[np.int64]
    nprobes: int
    recall: float | None
    excluded: int
    like: NDArray[np.float32]
    places: RowPlaces | None = None


@dataclass(frozen=True, slots=True)
class UnmeasuredLayout:
    """A layout of which it is declared or known how many lists to visit, but not the recall.

    Left rows in `sample` (rows, dim) can measure it. `measure` measures it by a pass of its own,
    and takes the number of lists where that is known to reach the recall.
    """

    layout: Layout
    sample: NDArray[np.float32]
    measure: Callable[[int | None], Layout]


@dataclass(frozen=True, slots=True)
class SlottedPlaces:
    """The places in a layout of rows that are put into it, whose fragments get slots.

    `slots` has the slot of each fragment by number, -1 of those that are not put in.
    """

    places: RowPlaces
    slots: NDArray[np.int64]

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows at ascending positions."""
        keys = self.places.keys(positions)
        places: NDArray[np.int64] = self.slots[keys >> OFFSET_BITS] << OFFSET_BITS
        return places | (keys & OFFSET_MASK)


@dataclass(frozen=True, slots=True)
class WrittenLists:
    """Rows that were put into lists, and not committed yet; `excluded` are places of the others."""

    parts: list[WrittenPart]
    excluded: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The rows in lists."""
        return sum(int(part.offsets[:, -1].sum()) for part in self.parts)

    @property
    def error(self) -> float:
        """The sum of the distances of rows from the centroids of their lists."""
        return sum(part.error for part in self.parts)


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout, and what was written for it."""

    layout: Layout
    written: WrittenLists


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Lays the right side out; its tasks travel to Spark's workers."""

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    threads: int

    def lay_out(self, uri: str, lists: int, places: SlottedPlaces | None = None) -> Laid | None:
        """Write the right side to scratch by list, and measure the recall on the way.

        The pass that writes holds every right row in memory once, and finds the true neighbours of
        some left rows among them. Half of these choose how many lists have to be visited, the
        others measure the recall.

        Args:
            uri: Where to write to.
            lists: Into how many lists.
            places: Of rows, where the layout is to be kept; their positions are written without.

        Returns:
            None when no right row was found that can match.
        """
        rows = self.right.sample(lists * TRAIN_ROWS, _TRAIN_TOGETHER)
        if not len(rows):
            return None
        centroids = train(rows, lists, self.request.metric)
        queries = self.left.sample(SAMPLE_ROWS)
        written = self.write(uri, centroids, queries, [self.right.side.all_rows], places)
        options = self.right.side.storage_options
        partitioned = commit(written.parts, uri, self.right.dimension, options)
        sampled = merge_sampled([part.sampled for part in written.parts], self.request.k)
        list_rows = partitioned.list_rows
        nprobes, recall = self._nprobes(centroids, list_rows, queries, sampled)
        layout = Layout(
            partitioned,
            centroids,
            list_rows,
            nprobes,
            recall,
            len(written.excluded),
            rows[:_LIKE_ROWS],
            None if places is None else places.places,
        )
        return Laid(layout, written)

    def write(
        self,
        uri: str,
        centroids: Centroids,
        queries: NDArray[np.float32],
        runs: Sequence[Rows],
        places: SlottedPlaces | None,
        *,
        appends: bool = False,
    ) -> WrittenLists:
        """Write runs of right rows by list, without a commit; as `lay_out`.

        With `appends` the dataset at the URI is there already.
        """
        right, k, threads = self.right, self.request.k, self.threads

        def write(
            task_parts: Iterable[Rows],
        ) -> Iterator[tuple[tuple[WrittenPart, NDArray[np.int64]], tuple[()]]]:
            options = right.side.storage_options
            with worker_task(threads, options, "laying out the right side"):
                require_visible(uri)
                for rows in task_parts:
                    blocks = _PlacedBlocks(right.blocks(rows, LAYOUT_BYTES), places)
                    part = write_partition(
                        blocks, centroids, queries, k, uri, options, appends=appends
                    )
                    yield (part, blocks.excluded), ()

        cores = self.jobs.cores
        blocks = -(-4 * right.dimension * sum(map(len, runs)) // LAYOUT_BYTES)
        parts: list[Rows] = []
        for rows in runs:
            share = -(-4 * right.dimension * len(rows) // LAYOUT_BYTES)
            count = -(-blocks // cores) * cores if len(runs) == 1 else share
            parts += cut(rows, max(1, min(len(rows), count)))
        done = self.jobs.run(write, parts)
        excluded = [places for _, places in done]
        none = np.empty(0, np.int64)
        return WrittenLists([part for part, _ in done], np.concatenate([none, *excluded]))

    def unmeasured(
        self,
        partitioned: PartitionedDataset,
        centroids: Centroids,
        excluded: int,
        places: RowPlaces,
    ) -> Layout:
        """Return the layout of rows that are in lists already, all of which a left row visits.

        Raises:
            PartitionsLost: the lists cannot be read.
        """
        rows = live_list_rows(opened_lists(partitioned), partitioned)
        like = self.right.sample(_LIKE_ROWS, _TRAIN_TOGETHER)
        return Layout(partitioned, centroids, rows, len(centroids), None, excluded, like, places)

    def measured(self, layout: Layout, known_nprobes: int | None) -> Layout:
        """Return the layout measured on a sample of left rows.

        A pass over the lists finds the true neighbours of the sample; nothing is written. Where it
        is declared or known how many lists to visit, only the rows that measure the recall are
        sampled, unless that turns out not to reach the recall.

        Raises:
            PartitionsLost: the lists cannot be read.
        """
        queries = self.left.sample(SAMPLE_ROWS)
        nprobes, measuring = self.request.nprobes or known_nprobes, queries[_MEASURING]
        if nprobes is not None and len(measuring):
            nprobes = min(nprobes, len(layout.centroids))
            sampled = self._sampled(layout, measuring)
            recall = self._recall(layout.centroids, layout.rows, measuring, sampled.lists, nprobes)
            if self.request.reached_by(recall):
                return replace(layout, nprobes=nprobes, recall=recall)
        sampled = self._sampled(layout, queries)
        chosen, measured = self._nprobes(layout.centroids, layout.rows, queries, sampled)
        return replace(layout, nprobes=chosen, recall=measured)

    def measuring_rows(self) -> NDArray[np.float32]:
        """Return the sampled left rows (rows, dim) that do not choose how many lists to visit."""
        return self.left.sample(SAMPLE_ROWS)[_MEASURING]

    def _sampled(self, layout: Layout, queries: NDArray[np.float32]) -> SampledNeighbours:
        request, threads = self.request, self.threads
        partitioned, like = layout.partitioned, layout.like

        def sample(
            task_shares: Iterable[Sequence[LaidPiece]],
        ) -> Iterator[tuple[SampledNeighbours, tuple[()]]]:
            with worker_task(threads, partitioned.storage_options, "sampling the recall"):
                dataset = opened_lists(partitioned)
                for share in task_shares:
                    k, metric = request.k, request.metric
                    yield sample_lists(dataset, partitioned, share, queries, k, metric, like), ()

        shares = laid_pieces(partitioned, self.jobs.cores)
        return merge_sampled(self.jobs.run(sample, shares), request.k)

    def _nprobes(
        self,
        centroids: Centroids,
        rows: NDArray[np.int64],
        queries: NDArray[np.float32],
        sampled: SampledNeighbours,
    ) -> tuple[int, float | None]:
        declared = self.request.nprobes
        if not len(queries):
            return declared or 1, None
        order = centroids.nearest_lists(queries[_CHOOSING], len(centroids))
        chosen = recall_curve(order, sampled.lists[_CHOOSING])
        nprobes = declared or choose_nprobes(chosen, self.request.recall or 1.0)
        nprobes = min(nprobes, len(centroids))
        measuring = _MEASURING if len(queries) > 1 else slice(None)
        lists = sampled.lists[measuring]
        return nprobes, self._recall(centroids, rows, queries[measuring], lists, nprobes)

    def _recall(
        self,
        centroids: Centroids,
        rows: NDArray[np.int64],
        queries: NDArray[np.float32],
        lists: NDArray[np.int32],
        nprobes: int,
    ) -> float:
        """Return the share of true neighbours in the lists (queries, k) that a search visits."""
        # Of lists that are equally near, the first of all are not always those that are visited.
        visits = centroids.visited_lists(queries, nprobes, self.request.k, rows)
        share = share_found(lists, visits)
        return 1.0 if share is None else share


@dataclass(frozen=True, slots=True)
class PartitionProbe:
    """Searches the lists that left rows visit; travels to Spark's workers."""

    left: VectorReader
    layout: Layout
    parts: tuple[range, ...]
    request: JoinRequest
    sample: NDArray[np.float32] | None = None

    def __call__(self, cell: Cell) -> ProbeResult:
        """Search some of the lists for the neighbours of one chunk, and once for the sample's."""
        started = time.perf_counter()
        layout, partitioned = self.layout, self.layout.partitioned
        queries = self.left.read(cell.left)
        vectors = queries.values[queries.valid]
        sample = None
        if self.sample is not None and cell.chunk == 0:
            sample = SampledQueries(self.sample, self._visits(self.sample))
        searched = search_lists(
            opened_lists(partitioned),
            partitioned,
            vectors,
            self._visits(vectors),
            self.parts[cell.part],
            self.request.k,
            self.request.metric,
            limit=self.request.limit,
            like=layout.like,
            sample=sample,
        )
        neighbours = searched.neighbours
        if layout.places is not None:
            positions = layout.places.positions(neighbours.positions)
            neighbours = replace(neighbours, positions=positions)
        # Every chunk counts them once.
        excluded = layout.excluded if cell.part == 0 else 0
        seconds = time.perf_counter() - started
        return ProbeResult(
            queries.valid, neighbours, excluded, searched.pairs, seconds, searched.sampled
        )

    def _visits(self, queries: NDArray[np.float32]) -> NDArray[np.int32]:
        layout = self.layout
        return layout.centroids.visited_lists(queries, layout.nprobes, self.request.k, layout.rows)


def opened_lists(partitioned: PartitionedDataset) -> lance.LanceDataset:
    """Open the dataset that lists are in.

    Raises:
        PartitionsLost: it is not there any more, or damaged.
    """
    try:
        return pinned_dataset(partitioned.pin, partitioned.storage_options)
    except LancestatError as error:
        raise PartitionsLost(f"the lists in scratch cannot be opened: {error.message}") from None


def split_lists(rows: NDArray[np.int64], parts: int) -> tuple[range, ...]:
    """Split lists into parts of consecutive lists with about as many rows each."""
    ends = np.cumsum(rows)
    shares = [ends[-1] * number / parts for number in range(1, parts)]
    edges = [0, *np.searchsorted(ends, shares).tolist(), len(rows)]
    return tuple(range(start, stop) for start, stop in pairwise(edges))


class _PlacedBlocks:
    """Yields places and vectors of blocks, and collects the places of rows that cannot match."""

    def __init__(self, blocks: Iterable[Block], places: SlottedPlaces | None) -> None:
        self._blocks = blocks
        self._places = places
        self._excluded: list[NDArray[np.int64]] = [np.empty(0, np.int64)]

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        for block in self._blocks:
            self._excluded.append(self._placed(block.excluded_positions))
            yield self._placed(block.positions), block.rows

    @property
    def excluded(self) -> NDArray[np.int64]:
        """The places of rows that cannot match."""
        return np.concatenate(self._excluded)

    def _placed(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions if self._places is None else self._places(positions)
