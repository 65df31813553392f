"""What a run with a budget does now, and what it defers: by bytes in a plan, by time in the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lancestat.formats import duration, size
from lancestat.runs.actions import (
    Action,
    Deferred,
    Figures,
    Plan,
    Reason,
    is_pending,
    needs_spark,
    own_figures,
    table_figures,
)
from lancestat.spec.budget import NO_BUDGET, Budget, minutes_text
from lancestat.spec.model import Node


@dataclass(slots=True)
class Allowance:
    """What is left of a budget. Time counts from when it is made; threads may share it.

    `start_seconds` is how long Spark takes to start, which the first action that needs it pays.
    """

    budget: Budget = NO_BUDGET
    bytes_taken: int = 0
    start_seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _seconds_taken: float = 0.0
    _began: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds_left(self) -> float | None:
        """How much time is left, None where it is not bounded."""
        minutes = self.budget.minutes
        if minutes is None:
            return None
        return max(0.0, minutes * 60 - (self.clock() - self._began) - self._seconds_taken)

    def take(self, action: Action) -> Action:
        """Return an action, its part, or nothing of it, as fits into what is left, and take that.

        Time is taken as it is estimated, as if nothing ran side by side.
        """
        with self._lock:
            action = self._by_bytes(self.by_time(action))
            if is_pending(action):
                self._seconds_taken += sum(self._seconds(action))
                self.start_seconds = 0.0 if needs_spark(action) else self.start_seconds
        return action

    def _by_bytes(self, action: Action) -> Action:
        wanted = bytes_of(action)
        if self.budget.bytes is None or not is_pending(action) or not wanted:
            return action
        left = self.budget.bytes - self.bytes_taken
        if wanted > left:
            rest = f"{size(left)} left of the budget of {size(self.budget.bytes)}"
            why = f"no part of the {size(wanted)} to be read fits into {rest}"
            if Reason.FULL_REFRESH in action.reasons:
                why = f"{size(wanted)} are to be read, and not in parts, with {rest}"
            action = action.part(left) or deferred(action, why)
        self.bytes_taken += bytes_of(action)
        return action

    def _seconds(self, action: Action) -> tuple[float, float]:
        """Return how long an action takes as far as that is known, and Spark's start before it."""
        figures = own_figures(action)
        seconds = figures.estimated_seconds if figures else None
        return seconds or 0.0, self.start_seconds if needs_spark(action) else 0.0

    def by_time(self, action: Action) -> Action:
        """Return an action unless it is known to take longer than what is left."""
        left = self.seconds_left
        if left is None or not is_pending(action):
            return action
        assert self.budget.minutes is not None
        budget = f"the budget of {minutes_text(self.budget.minutes)}"
        if not left:
            return deferred(action, f"{budget} is used up")
        seconds, start = self._seconds(action)
        if seconds + start <= left:
            return action
        what = "it takes" if seconds else "Spark's start takes"
        needed, rest = duration(seconds + start), duration(left)
        return deferred(action, f"{what} about {needed}, with {rest} left of {budget}")


def bytes_of(action: Action) -> int:
    """Return how many bytes an action reads of a table."""
    figures = table_figures(action)
    return figures.bytes_scanned if figures else 0


def deferred(action: Action, why: str) -> Deferred:
    """Return what defers an action, of whose table nothing is read."""
    figures = action.figures
    if isinstance(figures, Figures):
        figures = replace(figures, fragments_scanned=0, rows_scanned=0, bytes_scanned=0)
    return Deferred(action.node, action.kind, action.reasons, figures, why)


def within_budget(
    plan: Plan,
    budget: Budget,
    nodes: Sequence[Node],
    uses: Callable[[], Mapping[str, int]],
    start_seconds: float = 0.0,
) -> Plan:
    """Return a plan with what its budget defers, and the ranks of its nodes.

    Nodes come first by the priority that is declared, then by how many queries have used them, then
    by the share of their rows that changed; each after those that it reads.

    Args:
        budget: What the run may read, and how long it may take.
        nodes: Those of the plan.
        uses: Returns by node how many queries are known to have used it.
        start_seconds: How long Spark takes to start.
    """
    if not budget:
        return plan
    used, priorities = uses(), {node.name: getattr(node, "priority", None) or 0 for node in nodes}

    def rank(action: Action) -> tuple[float, ...]:
        name = action.node
        return -priorities.get(name, 0), -used.get(name, 0), -_share_changed(action)

    allowance, taken = Allowance(budget, start_seconds=start_seconds), dict[str, Action]()
    actions = {action.node: action for action in plan.actions}

    def take(action: Action) -> None:
        if action.node in taken:
            return
        # Nodes that read each other in a cycle come in any order.
        taken[action.node] = action
        for name in action.dependencies:
            if name in actions:
                take(actions[name])
        del taken[action.node]
        taken[action.node] = allowance.take(_after(action, taken))

    for action in sorted(plan.actions, key=rank):
        take(action)
    ranks = {name: place for place, name in enumerate(taken)}
    in_order = tuple(taken[action.node] for action in plan.actions)
    return replace(plan, actions=in_order, budget=budget, ranks=ranks)


def _after(action: Action, taken: Mapping[str, Action]) -> Action:
    """Return an action, deferred where one that it depends on is."""
    for name in action.dependencies:
        if isinstance(taken.get(name), Deferred):
            return deferred(action, f"it reads the result of '{name}', which is deferred")
    return action


def _share_changed(action: Action) -> float:
    figures = table_figures(action)
    return 1.0 if figures is None else figures.rows_scanned / max(1, figures.rows_total)
