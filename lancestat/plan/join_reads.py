"""Which nodes read what a join writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from lancestat.plan.join_columns import Place
from lancestat.plan.join_side import datasets_of, side_of
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table
from lancestat.state.identity import canonical_uri

SIDES = ("left", "right")


def read_uris(spec: ProjectSpec, node: Node) -> tuple[str, ...]:
    """What a node reads: datasets, folders, patterns of files."""
    if isinstance(node, Table):
        return (node.uri,)
    return tuple(dict.fromkeys(uri for name in SIDES for uri in side_uris(spec, node, name)))


def lance_uris(spec: ProjectSpec, node: Node) -> tuple[str, ...]:
    """The URIs of the Lance datasets that a node reads."""
    if isinstance(node, Table):
        return (node.uri,)
    sides = (side_of(node, name) for name in SIDES)
    return tuple(dataset.uri for side in sides for dataset in datasets_of(spec, side))


def side_uris(spec: ProjectSpec, join: KnnJoin, name: str) -> tuple[str, ...]:
    """What a side of a join reads."""
    side = side_of(join, name)
    named = (spec.node(ref) for ref in side.refs)
    return (
        *(dataset.uri for dataset in datasets_of(spec, side)),
        *((side.uri,) if side.uri is not None else ()),
        *(other.output_uri for other in named if isinstance(other, KnnJoin)),
    )


def awaited_joins(spec: ProjectSpec, nodes: Iterable[Node]) -> Mapping[str, tuple[str, ...]]:
    """By node, the joins of `nodes` whose results it reads, however their URIs are written."""
    nodes = tuple(nodes)
    writers = {canonical_uri(n.output_uri): n.name for n in nodes if isinstance(n, KnnJoin)}
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        uris = map(canonical_uri, read_uris(spec, node))
        named = dict.fromkeys(writers[uri] for uri in uris if uri in writers)
        found[node.name] = tuple(name for name in named if name != node.name)
    return found


def in_order(
    joins: Sequence[KnnJoin], awaited: Mapping[str, tuple[str, ...]]
) -> tuple[KnnJoin, ...]:
    """Joins, each after those whose results it reads."""
    by_name = {join.name: join for join in joins}
    done: dict[str, KnnJoin] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in done or name in trail:
            return
        for other in awaited[name]:
            visit(other, (*trail, name))
        done[name] = by_name[name]

    for join in joins:
        visit(join.name, ())
    return tuple(done.values())


def check_output(spec: ProjectSpec, join: KnnJoin) -> None:
    """See that a join does not write to what it reads.

    Raises:
        UsageError: LS453 the result would lie in, on or around an input.
    """
    output = canonical_uri(join.output_uri)
    for name in SIDES:
        for uri in side_uris(spec, join, name):
            read = canonical_uri(uri)
            nested = f"{output}/".startswith(f"{read}/") or f"{read}/".startswith(f"{output}/")
            if nested or fnmatchcase(join.output_uri, uri):
                place = Place(join, name)
                raise place.error(
                    "LS453",
                    f"the result of knn join '{join.name}' would be written to what {place} reads",
                    "give the output a place of its own",
                )
