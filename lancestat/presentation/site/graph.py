"""Lays out the nodes of a graph: columns in the order of reading, few crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lancestat.presentation.site.text import shorten
from lancestat.report.values import NodeReport, ProjectReport

_SWEEPS = 4


@dataclass(frozen=True, slots=True)
class LayerPosition:
    """A node's column, from 0 for those that read nothing, and its row in it."""

    column: int
    row: float


def arrange(reads: Mapping[str, Sequence[str]]) -> Mapping[str, LayerPosition]:
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
        for source in inputs:
            read_by[source].append(name)
    for _ in range(_SWEEPS):
        _order(layers, known)
        _order(layers[::-1], read_by)
    _order(layers, known)
    tallest = max(map(len, layers), default=0)
    return {
        name: LayerPosition(column, row + (tallest - len(layer)) / 2)
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


_WIDTH, _HEIGHT = 208, 30
_COLUMN, _ROW = 288, 42
_MARGIN = 12
_LONGEST = 26


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A box; `x` and `y` are of its upper left corner."""

    name: str
    label: str
    kind: str
    health: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A curve from the node that is read to the one that reads it."""

    start: str
    end: str
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """All nodes that read or are read, in a box of `width` by `height`."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    width: float
    height: float
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def draw(report: ProjectReport) -> Drawing:
    """Lay each connected part out by itself, the largest first, one below the other."""
    nodes = {node.spec.name: node for node in report.nodes}
    drawn: list[DrawnNode] = []
    edges: list[DrawnEdge] = []
    top = float(_MARGIN)
    for part in _parts(nodes, report.reads):
        boxes, bottom = _boxes(part, nodes, top)
        drawn += boxes.values()
        edges += [
            DrawnEdge(read, name, _curve(boxes[read], boxes[name]))
            for name, inputs in part.items()
            for read in inputs
        ]
        top = bottom + _ROW / 2
    width = max((node.x + _WIDTH for node in drawn), default=0) + _MARGIN
    return Drawing(tuple(drawn), tuple(edges), width, top)


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


def _boxes(
    part: Mapping[str, Sequence[str]], nodes: Mapping[str, NodeReport], top: float
) -> tuple[dict[str, DrawnNode], float]:
    boxes = {}
    for name, position in arrange(part).items():
        report = nodes[name]
        boxes[name] = DrawnNode(
            name,
            shorten(name, _LONGEST),
            report.spec.kind.value,
            report.health.value,
            _MARGIN + position.column * _COLUMN,
            top + position.row * _ROW,
        )
    return boxes, max(box.y for box in boxes.values()) + _ROW


def _curve(start: DrawnNode, end: DrawnNode) -> str:
    x0, y0 = start.x + _WIDTH, start.y + _HEIGHT / 2
    x1, y1 = end.x, end.y + _HEIGHT / 2
    bend = min(60.0, abs(x1 - x0) / 2)
    return f"M{x0:g} {y0:g}C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
