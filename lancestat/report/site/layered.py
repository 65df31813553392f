"""Where the nodes of a graph lie: columns in the order of reading, few crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """A node's column, from 0 for those that read nothing, and its row in it."""

    column: int
    row: float


def arrange(reads: Mapping[str, Sequence[str]]) -> Mapping[str, Place]:
    """Put each node to the right of all that it reads; `reads` must be free of cycles.

    Source: the layers are longest paths, and their order is by barycentres, as in Sugiyama, Tagawa
    and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981).
    """
    known = {name: [read for read in read_by if read in reads] for name, read_by in reads.items()}
    columns = _columns(known)
    layers: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for name, column in columns.items():
        layers[column].append(name)
    read_by: dict[str, list[str]] = defaultdict(list)
    for name, inputs in known.items():
        for each in inputs:
            read_by[each].append(name)
    for _ in range(_SWEEPS):
        _order(layers, known)
        _order(layers[::-1], read_by)
    _order(layers, known)
    tallest = max(map(len, layers), default=0)
    return {
        name: Place(column, row + (tallest - len(layer)) / 2)
        for column, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }


def _columns(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name in reads:
        stack = [name]
        while stack:
            top = stack[-1]
            waiting = [each for each in reads[top] if each not in columns]
            # A node that waits for itself would wait for ever.
            waiting = [each for each in waiting if each not in stack]
            if waiting:
                stack += waiting
                continue
            columns[top] = 1 + max((columns.get(each, -1) for each in reads[top]), default=-1)
            stack.pop()
    return columns


def _order(layers: Sequence[list[str]], neighbours: Mapping[str, Sequence[str]]) -> None:
    """Sort each layer by the middle of its nodes' neighbours in the layers before."""
    rows: dict[str, float] = {}
    for layer in layers:
        before = {name: row for row, name in enumerate(layer)}

        def middle(name: str, before: Mapping[str, int] = before) -> float:
            found = [rows[each] for each in neighbours.get(name, ()) if each in rows]
            return sum(found) / len(found) if found else before[name] / max(1, len(before))

        layer.sort(key=middle)
        span = max(1, len(layer))
        rows.update({name: row / span for row, name in enumerate(layer)})
