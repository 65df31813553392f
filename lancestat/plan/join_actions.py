"""What will be done about a join, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lancestat.knn.gate import Decision
from lancestat.knn.work import JoinWork
from lancestat.plan.reason import Reason
from lancestat.spec.model import Node
from lancestat.state.values import InputRecord

SYMBOLS = {"analyze": "+", "refresh": "~"}


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """The counts that plans and runs show for a join, None where they are not known (yet).

    `left_rows` and `right_rows` are those of the whole sides; `pairs` are compared by this run, in
    `scope`. `recall` and `nprobes` tell of approximate strategies; in a plan, as far as known. Only
    a plan has `why` the strategy was chosen, and `estimated_seconds` of what it takes.
    """

    strategy: str | None = None
    scope: str | None = None
    left_rows: int | None = None
    right_rows: int | None = None
    unmatched_left_rows: int | None = None
    excluded_right_rows: int | None = None
    pairs: int | None = None
    recall: float | None = None
    nprobes: int | None = None
    why: str | None = None
    estimated_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """A join is run: `analyze` where it has no usable result yet, else `refresh`.

    `new_rows` are those that a narrowed scope joins, `stages` what it will go through. `left` and
    `right` are remembered once it is done.
    """

    kind: ClassVar[str] = "knn_join"
    node: str
    verb: str
    reasons: tuple[Reason, ...]
    figures: JoinFigures
    work: JoinWork
    decision: Decision
    left: InputRecord
    right: InputRecord
    new_rows: int | None = None
    stages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """The sign of the verb."""
        return SYMBOLS[self.verb]


def await_joins(node: Node, joins: tuple[str, ...], *, is_known: bool, full_refresh: bool) -> Await:
    """Wait for joins; `is_known` tells whether anything was made of the node before."""
    verb = "refresh" if is_known else "analyze"
    reason = Reason.INPUT_CHANGED if is_known else Reason.NEW
    return Await(node.name, node.kind.value, verb, (reason,), joins, full_refresh)


@dataclass(frozen=True, slots=True)
class Await:
    """A node reads what a join of this plan is about to write: it is planned again after that.

    `joins` are the nodes to wait for. `kind` is the node's kind.
    """

    node: str
    kind: str
    verb: str
    reasons: tuple[Reason, ...]
    joins: tuple[str, ...]
    full_refresh: bool = False

    @property
    def symbol(self) -> str:
        """The sign of the verb."""
        return SYMBOLS[self.verb]

    @property
    def notes(self) -> tuple[str, ...]:
        """What it waits for."""
        named = " and ".join(f"'{name}'" for name in self.joins)
        return (f"reads the result of {named}, and is planned in detail once that is there",)
