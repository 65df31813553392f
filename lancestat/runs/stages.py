"""The stages of an action: the work of a run for one node, in order, with all that was decided.

`lancestat plan` explains the list of stages, a run evaluates the same list, and its progress names
the stage that it has reached. The stages of a kind of node belong to its package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar


class Stage:
    """A stage: a frozen dataclass that derives from this class."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def detail(self) -> str:
        """What progress says beside the name, such as a strategy; may be empty."""
        return ""

    @property
    def words(self) -> str:
        """What a plan says of the stage; empty where there is nothing to say."""
        return ""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The stage that a node has reached, and how far it is.

    `rows_done` of `rows_total` rows (None where they are not counted yet) are done; when probing,
    these are left rows times the parts of the right side that they meet, and `pairs_per_second`
    is the rate at which distances are computed. `note` is a sentence about what is being done.
    """

    stage: Stage
    rows_done: int = 0
    rows_total: int | None = None
    pairs_per_second: float | None = None
    note: str | None = None


OnStage = Callable[[StageProgress], None]


def ignore_progress(progress: StageProgress) -> None:
    """Ignore progress."""
