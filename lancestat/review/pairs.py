"""Which node of one side is which of the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lancestat.spec.model import Node, ProjectSpec, Table
from lancestat.state.identity import canonical_uri


@dataclass(frozen=True, slots=True)
class Pair:
    """A node on both sides, None where a side has none."""

    old: Node | None
    new: Node | None

    @property
    def node(self) -> Node:
        """The node, as HEAD has it if it does."""
        node = self.new if self.new is not None else self.old
        assert node is not None
        return node

    @property
    def names(self) -> frozenset[str]:
        """What it is called on either side."""
        return frozenset(node.name for node in (self.old, self.new) if node is not None)


def pair(base: ProjectSpec, head: ProjectSpec) -> tuple[Pair, ...]:
    """All nodes of both sides, those of HEAD first.

    Nodes belong together by kind and name; and where a name came and another went, by the one
    dataset that both have alone.
    """
    old = {_name(node): node for node in base.nodes}
    new = {_name(node): node for node in head.nodes}
    went = _alone(node for name, node in old.items() if name not in new)
    came = _alone(node for name, node in new.items() if name not in old)
    renamed = {_name(came[place]): went[place] for place in came.keys() & went.keys()}
    pairs = [Pair(old.get(name) or renamed.get(name), node) for name, node in new.items()]
    taken = {_name(found.old) for found in pairs if found.old is not None}
    left = (Pair(node, None) for name, node in old.items() if name not in taken)
    return (*pairs, *left)


Key = tuple[str, str]


def _name(node: Node) -> Key:
    return node.kind.value, node.name


def _alone(nodes: Iterable[Node]) -> dict[Key, Node]:
    """Nodes by what they write to, without those that share it."""
    found: dict[Key, Node | None] = {}
    for node in nodes:
        uri = node.uri if isinstance(node, Table) else node.output_uri
        place = node.kind.value, canonical_uri(uri)
        found[place] = None if place in found else node
    return {place: node for place, node in found.items() if node is not None}
