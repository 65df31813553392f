"""Nodes as an audience may see them: with templates in place of what it must not see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from lancestat.redact import MASK, Audience, Known, Origin
from lancestat.spec.model import KnnSide, Node, ProjectSpec, Table

Origins = Mapping[str, Origin]
NO_ORIGINS: Origins = MappingProxyType({})

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


def disclosed_nodes(spec: ProjectSpec, nodes: Iterable[Node], audience: Audience) -> Iterator[Node]:
    """Nodes of a project as an audience may see them."""
    for node in nodes:
        yield disclosed(node, spec.origins.get(node.name, NO_ORIGINS), audience)


def named(origins: Origins, *keys: str) -> str | None:
    """What is shown in place of values at dotted keys, or below them, if the environment gave any.

    It is the template where that is the whole of one value, else it names the variables.
    """
    found = {
        key: origin
        for key, origin in origins.items()
        if any(key == wanted or key.startswith(f"{wanted}.") for wanted in keys)
    }
    if len(found) == 1 and (key := next(iter(found))) in keys:
        return found[key].shown
    variables = dict.fromkeys(each for origin in found.values() for each in origin.variables)
    return ", ".join(f"{{{{ {variable} }}}}" for variable in variables) or None


def named_parts(origins: Origins, key: str) -> dict[str, str]:
    """What is shown in place of each value right below a dotted key, if the environment gave it."""
    start = f"{key}."
    below = (at.removeprefix(start) for at in origins if at.startswith(start))
    return {part: origins[f"{start}{part}"].shown for part in below}


def query_variables(origins: Origins, audience: Audience) -> str | None:
    """The variables that gave a part of a node's queries which an audience must not see."""
    hidden = [
        origin
        for key, origin in origins.items()
        if key.endswith(".sql") and origin.hides_from(audience)
    ]
    names = dict.fromkeys(str(each) for origin in hidden for each in origin.variables)
    return " and ".join(names) or None


def resolved_places(node: Node, origins: Origins) -> Iterator[Known]:
    """What messages may tell of a node: its places as they are used."""
    public = _places(disclosed(node, origins, Audience.PUBLIC))
    personal = _places(disclosed(node, origins, Audience.PERSON))
    for place, shown, seen in zip(_places(node), public, personal, strict=True):
        if place is not None and shown is not None and place != shown:
            yield Known(place, shown, is_secret=place != seen)


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
