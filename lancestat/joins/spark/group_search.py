"""The search of groups that are laid out: left rows of a cell meet the right rows of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.groups import GroupCell, group_cells
from lancestat.joins.search.list_search import ListSearchResult, search_lists
from lancestat.joins.search.partitions import PartitionedDataset, read_lists, read_piece
from lancestat.joins.search.request import JoinRequest
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.grid import CHUNK_BYTES, NEIGHBOUR_BYTES
from lancestat.joins.spark.group_layout import GroupLayout
from lancestat.joins.spark.reader import Side, row_places
from lancestat.spark.fragment_reader import pinned_dataset


@dataclass(frozen=True, slots=True)
class CellRows:
    """Left rows of a cell: (n,) group and position, and (n, dimension) vector."""

    groups: NDArray[np.int32]
    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def some(self, which: NDArray[np.int64]) -> CellRows:
        """Return some of the rows."""
        return CellRows(self.groups[which], self.positions[which], self.vectors[which])


@dataclass(frozen=True, slots=True)
class CellSearch:
    """Searches groups; travels to Spark's workers. `sides` are those that were laid out."""

    left: PartitionedDataset
    right: PartitionedDataset
    like: NDArray[np.float32]
    request: JoinRequest
    dimension: int
    sides: tuple[Side, Side]

    @classmethod
    def of(
        cls,
        layout: GroupLayout,
        request: JoinRequest,
        dimension: int,
        sides: tuple[Side, Side],
    ) -> CellSearch | None:
        """Return the search of a layout, None where no rows have equal keys."""
        if layout.left is None or layout.right is None:
            return None
        return cls(layout.left, layout.right, layout.like, request, dimension, sides)

    @property
    def left_count(self) -> int:
        """The number of left rows with right rows in their group."""
        return int(self.left.list_rows[self.right.list_rows > 0].sum())

    def left_rows_of(self, cell: GroupCell) -> int:
        """Return how many of these are in a cell."""
        if cell.rows is not None:
            return len(cell.rows)
        groups = slice(cell.groups.start, cell.groups.stop)
        return int(self.left.list_rows[groups][self.right.list_rows[groups] > 0].sum())

    def cells(self, cores: int) -> Sequence[GroupCell]:
        """Divide the pairs of the groups into cells."""
        row_bytes = 4 * self.dimension + NEIGHBOUR_BYTES * self.request.searched
        return tuple(
            group_cells(
                self.left.list_rows,
                self.right.list_rows,
                dimension=self.dimension,
                largest=max(1, CHUNK_BYTES // row_bytes),
                cores=cores,
            )
        )

    def nearest(self, cell: GroupCell, rows: CellRows, k: int) -> ListSearchResult:
        """Find the k nearest right rows of left rows of a cell, within the limit."""
        right, request = self.right, self.request
        return search_lists(
            pinned_dataset(right.pin, right.storage_options),
            right,
            rows.vectors,
            rows.groups[:, None],
            cell.groups,
            k,
            request.metric,
            limit=request.limit,
            behind=self.places(rows.positions)[1] if request.pairs_once else None,
            like=self.like,
        )

    def places(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what `row_places` does, for positions in any order."""
        order = np.argsort(positions)
        own, behind = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
        own[order], behind[order] = row_places(*self.sides, positions[order])
        return own, behind

    def left_rows(self, cell: GroupCell) -> CellRows:
        """Read the left rows of a cell."""
        dataset = pinned_dataset(self.left.pin, self.left.storage_options)
        if len(cell.groups) == 1:
            [number] = cell.groups
            span = cell.rows or Rows(0, int(self.left.list_rows[number]))
            positions, rows = read_piece(
                dataset, self.left, number, span.start, span.stop, self.dimension
            )
            return CellRows(np.full(len(rows), number, np.int32), positions, rows)
        read = list(read_lists(dataset, self.left, cell.groups, self.dimension, 1))
        groups = [
            np.repeat(np.arange(len(p.offsets) - 1), np.diff(p.offsets)) + p.first for p in read
        ]
        return CellRows(
            np.concatenate(groups).astype(np.int32),
            np.concatenate([part.positions for part in read]),
            np.concatenate([part.rows for part in read]),
        )
