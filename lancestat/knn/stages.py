"""The stages of a join, and how far each has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Stage(str, Enum):
    """The stages, in their order."""

    GATE = "gate"
    SCRATCH = "scratch"
    PROBE = "probe"
    MERGE = "merge"
    MATERIALIZE = "materialize"


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage is.

    `rows_done` of `rows_total` rows (None where nobody has counted yet) are through; when probing,
    these are left rows times the parts of the right side that they meet, and `pairs_per_second`
    is the rate at which distances are computed. `note` is a sentence about what was decided.
    """

    stage: Stage
    rows_done: int = 0
    rows_total: int | None = None
    pairs_per_second: float | None = None
    note: str | None = None


OnStage = Callable[[StageProgress], None]


def nobody(progress: StageProgress) -> None:
    """Progress that nobody looks at."""
