"""The search for an order of joins, compared with one that tries every tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from lancestat.query.plans import join_order
from lancestat.query.plans.facts import ColumnFacts, Facts
from lancestat.query.plans.join_order import best_order
from lancestat.query.plans.joins import joined
from lancestat.query.plans.operators import Condition
from tests.query.plans.relations import NOTHING, equal

Graph = list[tuple[int, int]]


def inputs(random: np.random.Generator, count: int, graph: Graph) -> list[Facts]:
    made = []
    for index in range(count):
        rows = float(10 ** random.uniform(1, 6))
        keys = [f"{index}.{edge}" for edge, pair in enumerate(graph) if index in pair]
        columns = {
            key: ColumnFacts(max(1.0, rows ** random.uniform(0.3, 1)), origin=(index, key))
            for key in keys
        }
        made.append(Facts(rows, rows, "", columns))
    return made


def conditions(graph: Graph) -> list[Condition]:
    return [equal(f"{a}.{edge}", f"{b}.{edge}") for edge, (a, b) in enumerate(graph)]


def members(tree: Any) -> frozenset[int]:
    if isinstance(tree, int):
        return frozenset((tree,))
    return members(tree[0]) | members(tree[1])


def splits(whole: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    first, *others = whole
    for chosen in range(2 ** len(others) - 1):
        one = [first, *(x for at, x in enumerate(others) if chosen >> at & 1)]
        yield one, [x for x in whole if x not in one]


def cheapest(
    whole: list[int], tables: Sequence[Facts], edges: Sequence[Condition]
) -> tuple[float, Facts] | None:
    """The fewest rows in all results of trees whose joins each have a condition, by recursion."""
    if len(whole) == 1:
        return 0.0, tables[whole[0]]
    best = None
    for one, other in splits(whole):
        a, b = cheapest(one, tables, edges), cheapest(other, tables, edges)
        if a is None or b is None:
            continue
        both = [
            edge
            for edge in edges
            if {edge.left, edge.right} & set(a[1].columns)
            and {edge.left, edge.right} & set(b[1].columns)
        ]
        if not both:
            continue
        made = joined(a[1], b[1], "INNER", both, NOTHING)
        cost = a[0] + b[0] + made.rows
        if best is None or cost < best[0]:
            best = cost, made
    return best


def cost(tree: Any, tables: Sequence[Facts], edges: Sequence[Condition]) -> tuple[float, Facts]:
    if isinstance(tree, int):
        return 0.0, tables[tree]
    a, b = (cost(part, tables, edges) for part in tree)
    both = [
        edge
        for edge in edges
        if (edge.left in a[1].columns) != (edge.right in a[1].columns)
        and (edge.left in b[1].columns) != (edge.right in b[1].columns)
    ]
    made = joined(a[1], b[1], "INNER", both, NOTHING)
    return a[0] + b[0] + made.rows, made


GRAPHS: dict[str, Graph] = {
    "chain": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "star": [(0, 1), (0, 2), (0, 3), (0, 4)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)],
    "snowflake": [(0, 1), (1, 2), (0, 3), (3, 4)],
}


# In a cycle the rows of a join depend a little on which of its conditions was applied first.
@pytest.mark.parametrize("graph", [name for name in GRAPHS if name != "cycle"])
def test_no_tree_has_fewer_rows_on_the_way(graph: str) -> None:
    edges = conditions(GRAPHS[graph])
    for seed in range(20):
        tables = inputs(np.random.default_rng(seed), 5, GRAPHS[graph])
        # Not in a hurry.
        with patch.object(join_order, "BUDGET_SECONDS", 100.0):
            tree = best_order(tables, edges, NOTHING)
        assert members(tree) == frozenset(range(5))
        best = cheapest(list(range(5)), tables, edges)
        assert best is not None
        assert cost(tree, tables, edges)[0] <= best[0] * 1.000001


@pytest.mark.parametrize("graph", GRAPHS)
def test_without_time_the_order_is_greedy_and_whole(graph: str) -> None:
    edges = conditions(GRAPHS[graph])
    tables = inputs(np.random.default_rng(1), 5, GRAPHS[graph])
    with patch.object(join_order, "BUDGET_SECONDS", -1.0):
        tree = best_order(tables, edges, NOTHING)
    assert members(tree) == frozenset(range(5))
    best = cheapest(list(range(5)), tables, edges)
    assert best is not None
    assert cost(tree, tables, edges)[0] >= best[0] * 0.999999


def test_inputs_that_no_condition_connects_are_joined_last() -> None:
    graph = [(0, 1), (2, 3)]
    tables = inputs(np.random.default_rng(2), 4, graph)
    tree = best_order(tables, conditions(graph), NOTHING)
    assert isinstance(tree, list)
    assert {members(part) for part in tree} == {frozenset((0, 1)), frozenset((2, 3))}


def test_many_inputs_are_ordered_too() -> None:
    graph = [(0, index) for index in range(1, 24)]
    tables = inputs(np.random.default_rng(3), 24, graph)
    assert members(best_order(tables, conditions(graph), NOTHING)) == frozenset(range(24))
