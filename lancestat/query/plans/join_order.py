"""The order of inner joins that gives the fewest rows on the way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lancestat.query.plans.facts import Facts, Kept
from lancestat.query.plans.joins import joined
from lancestat.query.plans.operators import Condition

# An index of an input, or a pair of trees.
Tree = int | list[Any]

# A search through all orders stops for a greedy one when it has taken so long.
BUDGET_SECONDS = 0.04


class _Planned:
    """The cheapest join of some inputs: its rows, the rows of all joins in it, and its tree."""

    __slots__ = ("cost", "facts", "tree")

    def __init__(self, facts: Facts, cost: float, tree: Tree) -> None:
        self.facts, self.cost, self.tree = facts, cost, tree


def _pair(one: _Planned, other: _Planned, made: Facts) -> _Planned:
    # Spark builds the smaller side either way; the larger one first reads as people write.
    first, second = (one, other) if one.facts.rows >= other.facts.rows else (other, one)
    return _Planned(made, one.cost + other.cost + made.rows, [first.tree, second.tree])


class _OutOfTime(Exception):  # noqa: N818 - no error: a greedy search follows
    """The search takes longer than it may."""


def best_order(inputs: Sequence[Facts], conditions: Sequence[Condition], kept: Kept) -> Tree | None:
    """Return the order of joins with the fewest rows in all results; None if it is not known.

    All orders of connected inputs are compared, bushy ones too, while there is time; then the two
    inputs whose join has the fewest rows are joined first, again and again. Inputs that no
    condition connects are joined last.

    Source: G. Moerkotte and T. Neumann, Analysis of two existing and one new dynamic programming
        algorithm for the generation of optimal bushy join trees without cross products, VLDB 2006.
    """
    search = _Search(inputs, conditions, kept)
    try:
        return search.exhaustive()
    except _OutOfTime:
        return search.greedy()


class _Search:
    def __init__(
        self, inputs: Sequence[Facts], conditions: Sequence[Condition], kept: Kept
    ) -> None:
        self._kept = kept
        self._single = [_Planned(facts, 0.0, index) for index, facts in enumerate(inputs)]
        where = {id: 1 << index for index, facts in enumerate(inputs) for id in facts.columns}
        self._conditions = [
            (sum({where.get(id, 0) for id in condition.columns}), condition)
            for condition in conditions
        ]
        self._neighbours = [0] * len(inputs)
        for mask, condition in self._conditions:
            if condition.is_equality:
                for index in range(len(inputs)):
                    if mask >> index & 1:
                        self._neighbours[index] |= mask & ~(1 << index)

    def exhaustive(self) -> Tree | None:
        """Compare all orders by subsets of growing size; raises `_OutOfTime`."""
        deadline = time.monotonic() + BUDGET_SECONDS
        count = len(self._single)
        best = {1 << index: planned for index, planned in enumerate(self._single)}
        facts = {mask: planned.facts for mask, planned in best.items()}
        for whole in range(3, 1 << count):
            if whole & (whole - 1) == 0 or not self._is_connected(whole):
                continue
            part = (whole - 1) & whole
            while part > whole ^ part:
                rest = whole ^ part
                if part in best and rest in best and self._touches(part, rest):
                    if time.monotonic() > deadline:
                        raise _OutOfTime
                    self._offer(best, facts, whole, part, rest)
                part = (part - 1) & whole
        everything = (1 << count) - 1
        if everything in best:
            return best[everything].tree
        return self.greedy()

    def _offer(
        self, best: dict[int, _Planned], facts: dict[int, Facts], whole: int, one: int, other: int
    ) -> None:
        if whole not in facts:
            facts[whole] = self._join(facts[one], facts[other], one, other)
        made = facts[whole]
        a, b = best[one], best[other]
        cost = a.cost + b.cost + made.rows
        if whole not in best or cost < best[whole].cost:
            best[whole] = _pair(a, b, made)

    def _join(self, left: Facts, right: Facts, one: int, other: int) -> Facts:
        whole = one | other
        applied = [
            condition
            for mask, condition in self._conditions
            if mask & whole == mask and mask & one and mask & other
        ]
        return joined(left, right, "INNER", applied, self._kept)

    def _is_connected(self, whole: int) -> bool:
        reached = whole & -whole
        while True:
            more = reached
            for index, neighbours in enumerate(self._neighbours):
                if reached >> index & 1:
                    more |= neighbours & whole
            if more == reached:
                return reached == whole
            reached = more

    def _touches(self, one: int, other: int) -> bool:
        return any(
            neighbours & other
            for index, neighbours in enumerate(self._neighbours)
            if one >> index & 1
        )

    def greedy(self) -> Tree | None:
        """Join the two whose result is smallest, again and again."""
        parts = {1 << index: planned for index, planned in enumerate(self._single)}
        made_of: dict[tuple[int, int], Facts] = {}
        while len(parts) > 1:
            masks = list(parts)
            pairs = [
                (one, other)
                for at, one in enumerate(masks)
                for other in masks[at + 1 :]
                if self._touches(one, other)
            ]
            if not pairs:
                one, other = sorted(masks, key=lambda mask: parts[mask].facts.rows)[:2]
                pairs = [(one, other)]
            for one, other in pairs:
                if (one, other) not in made_of:
                    left, right = parts[one].facts, parts[other].facts
                    made_of[one, other] = self._join(left, right, one, other)
            one, other = min(pairs, key=lambda pair: made_of[pair].rows)
            made = made_of[one, other]
            parts[one | other] = _pair(parts.pop(one), parts.pop(other), made)
        [planned] = parts.values()
        return planned.tree
