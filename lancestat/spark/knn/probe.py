"""The probe stage: chunks of left vectors against the vectors of the right side, block by block."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lancestat.knn.neighbours import Neighbours
from lancestat.knn.search import Nearest
from lancestat.knn.side import Rows
from lancestat.spark.knn.reader import VectorReader


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk of left rows against one part of the right side."""

    chunk: int
    left: Rows
    part: int


@dataclass(frozen=True, slots=True)
class Probed:
    """What one chunk of left rows found in one part of the right side.

    `neighbours` are those of the left rows that can match, in order; `is_valid` tells which of the
    chunk's rows these are. `excluded` right rows of the part cannot match; `pairs` were compared,
    in `seconds`.
    """

    is_valid: NDArray[np.bool_]
    neighbours: Neighbours
    excluded: int
    pairs: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExactProbe:
    """Compares every pair, streaming the rows of one of `parts`; travels to Spark's workers."""

    left: VectorReader
    right: VectorReader
    parts: tuple[Rows, ...]
    k: int

    def __call__(self, cell: Cell) -> Probed:
        """Search one part of the right side for the neighbours of one chunk."""
        started = time.perf_counter()
        queries = self.left.read(cell.left)
        asked = queries.values[queries.valid]
        nearest = Nearest(asked, self.k, self.left.metric)
        excluded = compared = 0
        for block in self.right.blocks(self.parts[cell.part]):
            excluded += block.excluded
            compared += len(block.rows)
            nearest.add(block.rows, block.places)
        pairs, seconds = compared * len(asked), time.perf_counter() - started
        return Probed(queries.valid, nearest.neighbours(), excluded, pairs, seconds)
