"""The neighbours that `ExactSearch` finds when all rows come at once."""

from __future__ import annotations

import numpy as np

from lancestat.joins.search.metrics import Metric
from lancestat.joins.search.neighbours import Floats, Ints, Neighbours
from lancestat.joins.search.search import ExactSearch


def search(
    queries: Floats, rows: Floats, k: int, metric: Metric, positions: Ints | None = None
) -> Neighbours:
    """Find the k nearest rows of every query; positions count from 0."""
    nearest = ExactSearch(queries, k, metric)
    nearest.add(rows, np.arange(len(rows)) if positions is None else positions)
    return nearest.neighbours()
