"""Dependencies between nodes, and the errors that only show between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lancestat.errors import CyclicReferences, LancestatError, OverlappingOutputs, SpecError
from lancestat.spec.model import Node, NodeKind, ProjectSpec, joins_of


def dependencies(spec: ProjectSpec) -> Mapping[str, tuple[str, ...]]:
    return node_dependencies(spec.nodes)


def node_dependencies(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """As `dependencies`.

    A join reads what its sides refer to. A table whose dataset is the output of a join reads that
    join, since the join must have run before the table can be analyzed.
    """
    nodes = tuple(nodes)
    writers = {join.output_uri: join.name for join in joins_of(nodes)}
    return {
        node.name: tuple(
            dict.fromkeys(
                (*node.refs, *(writers[uri] for uri in node.input_uris if uri in writers))
            )
        )
        for node in nodes
    }


def cycle_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """One error per cycle, at its first node: each names the whole path."""
    nodes = tuple(nodes)
    locations = {node.name: node.location for node in nodes}
    errors: list[LancestatError] = []
    for cycle in _cycles(node_dependencies(nodes)):
        path = " -> ".join((*cycle, cycle[0]))
        errors.append(
            CyclicReferences(f"nodes read each other: {path}", location=locations[cycle[0]])
        )
    return errors


def _cycles(reads: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """A cycle for every edge that leads back; iterative, because chains may be long."""
    done: set[str] = set()
    for start in reads:
        trail: dict[str, None] = {}
        pending = [(start, False)]
        while pending:
            name, leaving = pending.pop()
            if leaving:
                trail.popitem()
                done.add(name)
            elif name in trail:
                path = list(trail)
                yield tuple(path[path.index(name) :])
            elif name in reads and name not in done:
                trail[name] = None
                pending.append((name, True))
                pending.extend((other, False) for other in reversed(reads[name]))


def output_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """Datasets that two nodes would write to, and results inside what is another node's."""
    nodes = tuple(nodes)
    first: dict[str, Node] = {}
    errors = _inside_errors(nodes)
    for node in nodes:
        uri = node.written_uri
        if uri is None:
            continue
        other = first.setdefault(f"{node.kind.value} {uri.rstrip('/')}", node)
        if other is not node:
            errors.append(shared_output_error(node, other))
    return errors


def _inside_errors(nodes: Iterable[Node]) -> list[LancestatError]:
    """Return errors for datasets inside a result: replacing the result would remove them."""
    nodes = tuple(nodes)
    owners = {node.dataset_uri.rstrip("/"): node for node in nodes}
    errors: list[LancestatError] = []
    for node in nodes:
        path = node.dataset_uri.rstrip("/")
        while "/" in path.strip("/"):
            path = path.rpartition("/")[0]
            owner = owners.get(path)
            if owner is not None and NodeKind.KNN_JOIN in (node.kind, owner.kind):
                errors.append(_inside(node, owner))
    return errors


def _inside(node: Node, owner: Node) -> SpecError:
    what = {NodeKind.TABLE: "table", NodeKind.KNN_JOIN: "output of knn join"}
    return OverlappingOutputs(
        f"the {what[node.kind]} '{node.name}' lies inside the {what[owner.kind]} "
        f"'{owner.name}', at {owner.location}",
        location=node.location,
        hint="give each a folder of its own, side by side",
    )


def shared_output_error(node: Node, other: Node) -> SpecError:
    """Return the error of a node that would write to the dataset of another of its kind."""
    if node.kind is NodeKind.TABLE:
        message = f"tables '{other.name}' and '{node.name}' publish to the same dataset"
        hint = "declare it once, or give one of them 'publish: none'"
    else:
        message = f"knn joins '{other.name}' and '{node.name}' write the same output"
        hint = "give each its own output"
    return OverlappingOutputs(
        f"{message}, first at {other.location}",
        location=node.location,
        hint=hint,
    )
