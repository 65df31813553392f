"""Lays out the nodes of a graph: columns in the order of reading, few crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from lancestat.report.values import NodeReport, ProjectReport

_SWEEPS = 4


def arrange(reads: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[int, float]]:
    """Return each node's column, right of those of all that it reads, and its row in it.

    `reads` must be free of cycles.
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
        for source in inputs:
            read_by[source].append(name)
    for _ in range(_SWEEPS):
        _order(layers, known)
        _order(layers[::-1], read_by)
    _order(layers, known)
    tallest = max(map(len, layers), default=0)
    return {
        name: (column, row + (tallest - len(layer)) / 2)
        for column, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }


def _columns(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for name in reads:
        stack = [name]
        while stack:
            top = stack[-1]
            waiting = [source for source in reads[top] if source not in columns]
            # A node that reads itself would never get a column.
            waiting = [source for source in waiting if source not in stack]
            if waiting:
                stack += waiting
                continue
            columns[top] = 1 + max((columns.get(source, -1) for source in reads[top]), default=-1)
            stack.pop()
    return columns


def _order(layers: Sequence[list[str]], neighbours: Mapping[str, Sequence[str]]) -> None:
    """Sort each layer by the middle of its nodes' neighbours in the layers before."""
    rows: dict[str, float] = {}
    for layer in layers:
        before = {name: row for row, name in enumerate(layer)}

        def middle(name: str, before: Mapping[str, int] = before) -> float:
            positions = [
                rows[neighbour] for neighbour in neighbours.get(name, ()) if neighbour in rows
            ]
            return (
                sum(positions) / len(positions) if positions else before[name] / max(1, len(before))
            )

        layer.sort(key=middle)
        span = max(1, len(layer))
        rows.update({name: row / span for row, name in enumerate(layer)})


WIDTH, HEIGHT = 208, 30
_COLUMN, _ROW = 288, 42
_MARGIN = 12

# A node with the upper left corner of its box.
Box = tuple[NodeReport, float, float]
# The node that is read, the one that reads it, and a curve between them.
Edge = tuple[str, str, str]


def draw(report: ProjectReport) -> tuple[list[Box], list[Edge], float, float]:
    """Return the boxes and edges of all nodes that read or are read, their width and height.

    Each connected part is laid out by itself, the largest first, one below the other.
    """
    nodes = {node.spec.name: node for node in report.nodes}
    drawn: dict[str, Box] = {}
    edges: list[Edge] = []
    top = float(_MARGIN)
    for part in _parts(nodes, report.reads):
        places = arrange(part)
        for name, (column, row) in places.items():
            drawn[name] = nodes[name], _MARGIN + column * _COLUMN, top + row * _ROW
        edges += [
            (read, name, _curve(drawn[read], drawn[name]))
            for name, inputs in part.items()
            for read in inputs
        ]
        top = max(drawn[name][2] for name in places) + _ROW + _ROW / 2
    width = max((x + WIDTH for _, x, _ in drawn.values()), default=0) + _MARGIN
    return [*drawn.values()], edges, width, top


def _parts(
    nodes: Mapping[str, NodeReport], reads: Mapping[str, Sequence[str]]
) -> list[dict[str, list[str]]]:
    """The connected parts of the graph but lone nodes, each with what its nodes read."""
    known = {name: [source for source in reads.get(name, ()) if source in nodes] for name in nodes}
    linked: dict[str, set[str]] = defaultdict(set)
    for name, inputs in known.items():
        for source in inputs:
            linked[name].add(source)
            linked[source].add(name)
    parts: list[dict[str, list[str]]] = []
    seen: set[str] = set()
    for name in known:
        if name in seen or name not in linked:
            continue
        waiting, members = [name], {name}
        while waiting:
            more = linked[waiting.pop()] - members
            members |= more
            waiting += more
        seen |= members
        parts.append({member: inputs for member, inputs in known.items() if member in members})
    return sorted(parts, key=len, reverse=True)


def _curve(start: Box, end: Box) -> str:
    x0, y0 = start[1] + WIDTH, start[2] + HEIGHT / 2
    x1, y1 = end[1], end[2] + HEIGHT / 2
    bend = min(60.0, abs(x1 - x0) / 2)
    return f"M{x0:g} {y0:g}C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
