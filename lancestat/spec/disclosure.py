"""Nodes as an audience may see them: with templates in place of what it must not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lancestat.redact import MASK, Audience, Known, Origin, secret_options
from lancestat.spec.model import KnnJoin, KnnSide, Node, Table

Origins = Mapping[str, Origin]

_SIDE_URIS = ("lance", "parquet", "path")


def disclosed(node: Node, origins: Origins, audience: Audience) -> Node:
    """A node as an audience may see it; `origins` are the node's, by dotted key."""
    hidden = {key: origin.shown for key, origin in origins.items() if origin.hides_from(audience)}
    shown: Node
    if isinstance(node, Table):
        shown = replace(node, uri=hidden.get("uri", node.uri))
    else:
        shown = replace(
            node,
            left=_side("left", node.left, hidden),
            right=_side("right", node.right, hidden),
            output_uri=hidden.get(f"output.{node.output_format}", node.output_uri),
        )
    return replace(
        shown,
        description=hidden.get("description", node.description),
        owner=hidden.get("owner", node.owner),
        tags=_listed("tags", node.tags, hidden),
    )


def resolved_places(node: Node, origins: Origins) -> Iterator[Known]:
    """What messages may tell of a node: its places as they are used, and options of its sides."""
    public = _places(disclosed(node, origins, Audience.PUBLIC))
    personal = _places(disclosed(node, origins, Audience.PERSON))
    for place, shown, seen in zip(_places(node), public, personal, strict=True):
        if place is not None and shown is not None and place != shown:
            yield Known(place, shown, is_secret=place != seen)
    if isinstance(node, KnnJoin):
        for side in (node.left, node.right):
            yield from secret_options(side.options)


def _places(node: Node) -> tuple[str | None, ...]:
    if isinstance(node, Table):
        return (node.uri,)
    return node.output_uri, node.left.uri, node.right.uri


def _side(name: str, side: KnnSide, hidden: Mapping[str, str]) -> KnnSide:
    uris = (hidden[key] for place in _SIDE_URIS if (key := f"{name}.{place}") in hidden)
    select = side.select
    return replace(
        side,
        uri=next(uris, side.uri),
        sql=hidden.get(f"{name}.sql", side.sql),
        vector=hidden.get(f"{name}.vector", side.vector),
        select=None if select is None else _listed(f"{name}.select", select, hidden),
        options=dict.fromkeys(side.options, MASK),
    )


def _listed(key: str, texts: tuple[str, ...], hidden: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(hidden.get(f"{key}.{at}", text) for at, text in enumerate(texts))
