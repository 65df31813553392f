"""The gate: which strategy a join takes, and what it is expected to cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lancestat.knn.request import JoinRequest


class Strategy(str, Enum):
    """How neighbours are found, as plans and JSON spell it."""

    SPARK = "spark"
    EXACT = "exact"
    PARTITIONED = "partitioned"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class JoinSize:
    """What is known of the sides; None where nobody has counted yet.

    `has_index` tells of a vector index on the right, of the metric asked for. `right_in_scratch`
    tells that the right side is to be written first.
    """

    left_rows: int | None
    right_rows: int | None
    dimension: int | None
    has_index: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """A strategy, why, and its estimate.

    `pairs` are distances to compute and `seconds` their estimated time on `cores` cores, both None
    where sizes are unknown. `lists` is how many partitions the right side gets.
    """

    strategy: Strategy
    why: str
    pairs: int | None = None
    seconds: float | None = None
    lists: int | None = None


def choose(request: JoinRequest, size: JoinSize, cores: int) -> Decision:
    """The cheapest strategy that the request allows.

    Args:
        request: `mode: exact` never picks an approximate strategy.
        size: Unknown sizes are taken for large.
        cores: How many tasks run at once.
    """
    raise NotImplementedError
