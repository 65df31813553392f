"""What a KNN join is asked to find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lancestat.knn.metric import Metric

MOST_NEIGHBOURS = 100_000
DISTANCE = "_distance"
RANK = "_rank"


class Mode(str, Enum):
    """`exact` compares every pair; `approx` may look at the likely ones only."""

    EXACT = "exact"
    APPROX = "approx"


class JoinKind(str, Enum):
    """What becomes of left rows that match nothing: dropped, or kept with nulls."""

    INNER = "inner"
    LEFT_OUTER = "left_outer"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """How to join, whatever the sides are.

    Under `approx` one of `nprobes` (partitions that each left row visits) and `recall` (the share
    of true neighbours to find, above 0 and up to 1) is set. `min_right_rows` is the gate: fewer
    rows are left to Spark's own join. `with_rank` asks for the column `_rank`, from 1.
    """

    k: int
    metric: Metric = Metric.L2
    mode: Mode = Mode.EXACT
    kind: JoinKind = JoinKind.INNER
    nprobes: int | None = None
    recall: float | None = None
    min_right_rows: int = 10_000
    with_rank: bool = False
