"""What is measured of estimates: q-errors, P-errors and broadcasts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from accuracy.plans import Block, Operator, alias_of, aliases
from accuracy.sides import Expected
from accuracy.truths import MOST, Truths

# Beyond so many relations the best order of joins is not searched.
MOST_RELATIONS = 8
# A search counts no further than the first of these that its cheapest tree is within.
_STEPS = (100_000, 1_000_000, 10_000_000, MOST)
# The index of an item, or a pair of trees.
Tree = int | list[Any]


@dataclass(frozen=True)
class Compared:
    """Expected and true rows of an operator, each at least one."""

    query: str
    expected: Expected
    rows: float
    true: float
    # The largest q-error of the operators below it.
    inherited: float

    @property
    def kind(self) -> str:
        """Which kind of operator it is."""
        return self.expected.operator.kind

    @property
    def q_error(self) -> float:
        """By which factor the estimate is wrong: max(expected / true, true / expected)."""
        return max(self.rows / self.true, self.true / self.rows)

    @property
    def own(self) -> float:
        """The q-error in excess of what was wrong below it already."""
        return self.q_error / self.inherited


def compare(query: str, plan: Iterable[Expected], truths: Truths) -> list[Compared]:
    """Return the operators of a plan whose true rows can be counted, with these."""
    made: list[Compared] = []
    # Those below an operator come before it.
    for expected in sorted(plan, key=lambda expected: -expected.operator.place):
        operator = expected.operator
        if operator.sql is None:
            continue
        true = truths.rows(operator.sql)
        if true > MOST:
            continue
        inherited = [
            below.q_error for below in made if below.expected.operator.place < operator.end
        ]
        made.append(
            Compared(
                query, expected, max(expected.rows, 1), max(true, 1), max(inherited, default=1)
            )
        )
    return made[::-1]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least of the values that at least a share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def under(compared: Iterable[Compared], factor: float) -> float:
    """Return the share of operators that have more than `factor` times the expected rows."""
    return _mean(each.true > factor * each.rows for each in compared)


def over(compared: Iterable[Compared], factor: float) -> float:
    """Return the share of operators of which more than `factor` times the rows are expected."""
    return _mean(each.rows > factor * each.true for each in compared)


def _mean(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed) if listed else math.nan


def p_error(operators: Sequence[Operator], truths: Truths) -> float | None:
    """Return the cost of a plan's order of joins over that of the best order; None if not known.

    The cost is C_out (Moerkotte, Neumann, Steidl: Preventing Bad Plans by Bounding the Impact of
    Cardinality Estimation Errors, 2009): the true rows of all inner joins, added up. The best order
    is the cheapest of all trees without cross products, searched for each maximal group of inner
    joins. Rows are at least one.
    """
    cost, least = 0, 0
    for region, joins in regions(operators):
        best = cheapest(region, truths)
        if best is None:
            return None
        cost += sum(max(1, truths.rows(join.sql or "")) for join in joins)
        least += best
    return cost / least if least else None


def regions(operators: Sequence[Operator]) -> Iterator[tuple[Block, list[Operator]]]:
    """Yield maximal groups of inner joins, each as the block of all with its joins."""
    inner = {operator.place: operator for operator in operators if operator.block}
    below: set[int] = set()
    # A join comes before those below it.
    for place in sorted(inner):
        block = inner[place].block
        if block is None or place in below:
            continue
        below |= block.joins
        yield block, [inner[join] for join in sorted(block.joins)]


def cheapest(block: Block, truths: Truths) -> int | None:
    """Return the least C_out of a block's joins, or None where there are too many to search."""
    found = cheapest_tree(block, [{alias_of(source)} for source in block.sources], truths)
    return None if found is None else found[0]


def cheapest_tree(
    block: Block, items: Sequence[AbstractSet[str]], truths: Truths
) -> tuple[int, Tree] | None:
    """Return the least C_out of joins of items, aliases of a block each, and its tree.

    None where there are too many to search, or no condition connects some of them. What is larger
    than the cheapest tree is no part of it, and is not counted further.
    """
    if len(items) > MOST_RELATIONS:
        return None
    for most in _STEPS:
        found = _cheapest_within(block, items, truths, most)
        if found is not None and found[0] <= most:
            return found
    return found


def _cheapest_within(
    block: Block, items: Sequence[AbstractSet[str]], truths: Truths, most: int
) -> tuple[int, Tree] | None:
    """Return the cheapest tree, None where each has more than so many rows: but for `MOST`."""
    edges = [aliases(condition) & frozenset().union(*items) for condition in block.conditions]

    def names(part: Iterable[int]) -> frozenset[str]:
        return frozenset().union(*(items[index] for index in part))

    best: dict[frozenset[int], tuple[int, Tree]] = {
        frozenset({index}): (0, index) for index in range(len(items))
    }
    for size in range(2, len(items) + 1):
        for chosen in combinations(range(len(items)), size):
            part = frozenset(chosen)
            below = [
                (best[left][0] + best[part - left][0], left)
                for left in _subsets(chosen)
                if left in best
                and part - left in best
                and _connects(edges, names(left), names(part - left))
            ]
            if below:
                cost, left = min(below, key=lambda pair: pair[0])
                rows = max(1, truths.rows(restricted(block, names(part)).rows, most))
                if cost + rows <= most or most == MOST:
                    best[part] = cost + rows, [best[left][1], best[part - left][1]]
    return best.get(frozenset(range(len(items))))


def _subsets(chosen: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield the proper subsets that have the first index, so that no split comes twice."""
    first, *others = chosen
    for size in range(len(others)):
        for more in combinations(others, size):
            yield frozenset({first, *more})


def _connects(edges: Iterable[set[str]], left: frozenset[str], right: frozenset[str]) -> bool:
    return any(edge & left and edge & right and edge <= left | right for edge in edges)


def restricted(block: Block, names: frozenset[str]) -> Block:
    """Return the part of a block that has some of its sources, and the conditions on them."""
    known = {alias_of(source) for source in block.sources}
    return Block(
        tuple(source for source in block.sources if alias_of(source) in names),
        tuple(part for part in block.conditions if aliases(part) & known <= names),
    )


@dataclass
class Broadcasts:
    """Joins with keys, and how many were planned otherwise than true sizes would have them."""

    joins: int = 0
    # A side is broadcast that is larger than the threshold.
    wrong: int = 0
    # No side is broadcast, and one that may be is within the threshold.
    missed: int = 0

    def add(self, expected: Expected, threshold: int, truths: Truths) -> None:
        """Count a join in, unless its sides cannot be counted."""
        sides, planned = expected.operator.sides, expected.broadcast
        if sides is None or planned is None:
            return
        sizes = {place: truths.rows(sides[place]) * size for place, size in planned.widths.items()}
        self.joins += 1
        if planned.build is None:
            self.missed += any(size <= threshold for size in sizes.values())
        else:
            self.wrong += sizes[planned.build] > threshold
