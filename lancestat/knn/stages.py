"""The stages of a join, and how far one is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Stage(str, Enum):
    """What a join goes through, in this order; not every strategy needs all of them."""

    GATE = "gate"
    SCRATCH = "scratch"
    PROBE = "probe"
    MERGE = "merge"
    MATERIALIZE = "materialize"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is.

    `rows_total` is None where nobody has counted yet, `pairs_per_second` where no distances are
    computed.
    """

    stage: Stage
    rows_done: int = 0
    rows_total: int | None = None
    pairs_per_second: float | None = None


# Receives progress; calls may come from several threads.
OnStage = Callable[[StageProgress], None]
