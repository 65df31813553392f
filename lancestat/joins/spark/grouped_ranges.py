"""The search of all right rows within a distance among those of the same group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.joins.search.groups import GroupCell
from lancestat.joins.search.neighbours import Neighbours
from lancestat.joins.search.pair_store import Pairs
from lancestat.joins.search.vectors import Vectors
from lancestat.joins.search.widening import WideningSearch
from lancestat.joins.search.work import Rows
from lancestat.joins.spark.group_search import CellSearch


@dataclass(slots=True)
class GroupRangeSearch:
    """Finds the pairs of cells within the distance, and counts those that it compared.

    Without a `search` there are no cells. Rows that cannot match are none of a group's.
    """

    search: CellSearch | None
    pairs: int = 0
    excluded: int | None = None

    def __call__(self, cell: GroupCell) -> Iterator[Pairs]:
        """Yield the pairs of the left rows of a cell."""
        assert self.search is not None, "there are cells"
        search, request = self.search, self.search.request
        rows = search.left_rows(cell)
        widest = int(np.max(search.right.list_rows[cell.groups.start : cell.groups.stop]))

        def find(part: Rows, _: Vectors, which: NDArray[np.int64], width: int) -> Neighbours:
            result = search.nearest(cell, rows.some(part.start + which), width)
            self.pairs += result.pairs
            return result.neighbours

        every = Rows(0, len(rows.positions))
        queries = Vectors(rows.vectors, np.ones(len(every), np.bool_))
        for part, _, found in WideningSearch(find, widest).search(every, queries):
            left = rows.positions[part.start : part.stop]
            pairs = Pairs.of(left, found)
            if request.excludes_self and not request.pairs_once:
                own, _ = search.places(left)
                counts = np.count_nonzero(found.positions >= 0, axis=1)
                pairs = pairs.some(pairs.right != np.repeat(own, counts))
            yield pairs
