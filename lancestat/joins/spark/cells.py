"""Cells of a join: pairs of row ranges that tasks search, and how the work is cut into them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.action import JoinStage
from lancestat.joins.search.cost_model import BLOCK_FLOPS, READ_BYTES
from lancestat.joins.search.ivf import SampledResult
from lancestat.joins.search.neighbours import Neighbours, merge
from lancestat.joins.search.search import ExactSearch
from lancestat.joins.search.work import JoinRequest, Rows
from lancestat.joins.spark.reader import VectorReader, row_places, rows_after

# Left vectors and the neighbours found for them, which a task holds at once.
CHUNK_BYTES = 64 << 20
# Fewer queries than this make poor use of what is read of the right side.
SMALLEST_CHUNK = 512
# The cost of merging: another stage of tasks, or the driver's time.
SHUFFLE_SECONDS, DRIVER_SECONDS = 0.15, 0.02
# Neighbours that the driver merges and fetches itself.
DRIVER_LINES = 4096
# A left row's neighbours are held as position and distance, and once more while they are merged.
NEIGHBOUR_BYTES = 2 * (8 + 4)


@dataclass(frozen=True, slots=True)
class Grid:
    """Every chunk of left rows meets every part of the right side; the chunks are in row order.

    With one part nothing is merged; `merges_on_driver` goes with one chunk that has few neighbours.
    """

    chunks: tuple[Rows, ...]
    parts: int
    merges_on_driver: bool = False

    def without_parts(self, cores: int) -> Grid:
        """Return a grid of the same left rows and the whole right side, with a chunk per core."""
        if self.parts == 1:
            return self
        rows = Rows(self.chunks[0].start, self.chunks[-1].stop)
        return Grid(tuple(cut(rows, max(1, min(cores, len(rows))))), 1)


def grid(left: Rows, right_rows: int, *, dimension: int, k: int, cores: int) -> Grid:
    """Choose cells that keep all cores busy, within the memory of a task for the left side.

    With at least `SMALLEST_CHUNK` left rows for each core every task streams the whole right side;
    with fewer it is split, and neighbours are merged, unless one task is sooner through.
    """
    row_bytes = 4 * dimension + NEIGHBOUR_BYTES * min(k, max(1, right_rows))
    largest = max(1, CHUNK_BYTES // row_bytes)
    fewest = -(-len(left) // largest)
    for_all_cores = min(cores, len(left) // SMALLEST_CHUNK)
    # Whole rounds: no core waits for the last chunks.
    count = max(fewest, for_all_cores) if fewest <= 1 else -(-fewest // cores) * cores
    count = max(1, min(count, len(left)))
    parts = max(1, min(1 if count >= cores else -(-cores // count), right_rows))
    is_small = count == 1 and len(left) * min(k, right_rows) <= DRIVER_LINES
    merging = DRIVER_SECONDS if is_small else SHUFFLE_SECONDS
    if _seconds(len(left), right_rows, dimension) * (1 - 1 / parts) < merging:
        parts = 1
    return Grid(tuple(cut(left, count)), parts, is_small and parts > 1)


def list_grid(
    left: Rows, right_rows: int, shares: Grid, *, dimension: int, k: int, cores: int
) -> Grid:
    """Choose cells for a right side in lists, each of which some left row of any chunk visits.

    Every chunk reads the lists again. So where memory allows fewer chunks than cores, and what that
    spares of reading is worth merging, the lists are split instead. `right_rows` are in lists, and
    `shares` is what is chosen for other strategies.
    """
    row_bytes = 4 * dimension + NEIGHBOUR_BYTES * min(k, max(1, right_rows))
    fewest = max(1, -(-len(left) // max(1, CHUNK_BYTES // row_bytes)))
    if fewest >= min(cores, len(shares.chunks)) or shares.parts > 1:
        return shares
    again = (len(shares.chunks) - fewest) * 4 * dimension * right_rows / READ_BYTES
    if again / cores < SHUFFLE_SECONDS:
        return shares
    return Grid(tuple(cut(left, fewest)), -(-cores // fewest))


def _seconds(left_rows: int, right_rows: int, dimension: int) -> float:
    elements = right_rows * dimension
    return 2 * left_rows * elements / BLOCK_FLOPS + 4 * elements / READ_BYTES


def cut(rows: Rows, count: int) -> Sequence[Rows]:
    """Split `rows` into `count` ranges of nearly equal length, in order."""
    edges = [rows.start + len(rows) * number // count for number in range(count + 1)]
    return [Rows(start, stop) for start, stop in pairwise(edges)]


def cut_by_pairs(rows: Rows, count: int) -> Sequence[Rows]:
    """Split `rows` into up to `count` ranges of nearly as many pairs of a row and one after it."""
    ends = (round(len(rows) * (1 - sqrt(1 - number / count))) for number in range(count + 1))
    edges = sorted({rows.start + end for end in ends})
    return [Rows(start, stop) for start, stop in pairwise(edges)] or [rows]


# A stage, the rows and pairs of it that a task has processed, and the seconds that the pairs took.
TaskProgress = tuple[JoinStage, int, int, float]


@dataclass(frozen=True, slots=True)
class LeftRows:
    """Left rows that can match: (n,) positions, (n, dimension) vectors, and (n,) groups by keys."""

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    groups: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64] | slice) -> LeftRows:
        groups = None if self.groups is None else self.groups[which]
        return LeftRows(self.positions[which], self.vectors[which], groups)


@dataclass(frozen=True, slots=True)
class CellResult:
    """Neighbours of the left rows at `positions` (n,), in row order but for those of groups.

    `excluded` of the right rows that were met cannot match; `sampled` queries measure the recall.
    """

    positions: NDArray[np.int64]
    neighbours: Neighbours
    excluded: int = 0
    pairs: int = 0
    sampled: SampledResult | None = None

    def merged(self, other: CellResult, k: int) -> CellResult:
        """Merge what was found in other right rows for the same left rows."""
        sampled = self.sampled or other.sampled
        if self.sampled is not None and other.sampled is not None:
            sampled = self.sampled.merged(other.sampled, k)
        return CellResult(
            self.positions,
            merge([self.neighbours, other.neighbours], k),
            self.excluded + other.excluded,
            self.pairs + other.pairs,
            sampled,
        )


class Cell(Protocol):
    """A block of left rows against a block of right rows. It is pickled."""

    @property
    def left_count(self) -> int: ...


CellT = TypeVar("CellT", bound=Cell)


class CellSearch(ABC, Generic[CellT]):
    """How a strategy searches cells. It is pickled."""

    __slots__ = ()

    @abstractmethod
    def left_rows(self, cell: CellT) -> Iterator[LeftRows]:
        """Yield the left rows of a cell, those together that are searched in one pass."""

    @abstractmethod
    def nearest(self, cell: CellT, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        """Return up to k right rows of the cell that are nearest to left rows, within the limit.

        `is_first` is true in one of the passes over a cell, which counts its excluded right rows.
        """


@dataclass(frozen=True, slots=True)
class ChunkCell:
    """A chunk of left rows against one part of the right side."""

    chunk: int
    left: Rows
    part: int = 0

    @property
    def left_count(self) -> int:
        return len(self.left)


def chunk_cells(grid: Grid) -> list[ChunkCell]:
    return [
        ChunkCell(number, chunk, part)
        for number, chunk in enumerate(grid.chunks)
        for part in range(grid.parts)
    ]


@dataclass(frozen=True, slots=True)
class ChunkSearch(CellSearch[ChunkCell]):
    """A strategy whose cells are chunks of left rows; with `slice_rows` they come in slices."""

    left: VectorReader
    request: JoinRequest
    slice_rows: int | None = None

    def left_rows(self, cell: ChunkCell) -> Iterator[LeftRows]:
        count = -(-len(cell.left) // self.slice_rows) if self.slice_rows else 1
        for rows in cut(cell.left, max(1, count)):
            read = self.left.read(rows)
            yield LeftRows(rows.start + np.flatnonzero(read.valid), read.values[read.valid])


@dataclass(frozen=True, slots=True)
class ExactCells(ChunkSearch):
    """Compares every pair, streaming one of the `parts` of the right side."""

    right: VectorReader = field(kw_only=True)
    parts: tuple[Rows, ...] = field(kw_only=True)

    def nearest(self, cell: ChunkCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        request, read, after = self.request, self.parts[cell.part], None
        if request.pairs_once:
            _, after = row_places(self.left.side, self.right.side, rows.positions)
            # The first chunk meets every right row once, and so counts those that cannot match.
            read = read if cell.chunk == 0 and is_first else rows_after(read, after)
        nearest = ExactSearch(rows.vectors, k, request.metric, limit=request.limit, after=after)
        excluded = pairs = 0
        for block in self.right.blocks(read):
            excluded += block.excluded
            pairs += len(block.rows) * len(rows)
            if after is not None:
                pairs -= int(np.searchsorted(block.positions, after).sum())
            nearest.add(block.rows, block.positions)
        return CellResult(rows.positions, nearest.neighbours(), excluded * is_first, pairs)
