"""What a kind of node is to plans and runs: the protocol that `tables` and `joins` implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lancestat.runs.actions import NodeFigures


class NodeType(Protocol):
    """A kind of node. `lancestat.nodes` registers one of each kind."""

    def figures_of(self, stored: Mapping[str, object]) -> NodeFigures | None:
        """Return the figures in a node's stored result, None for a kind that has none of its own.

        Raises:
            ValueError: they cannot be decoded.
        """
        ...


NodeTypes = Mapping[str, NodeType]
