"""Nodes as an audience may see them: with templates in place of hidden values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from lancestat.redact import MASK, Audience, KnownValue, Origin
from lancestat.spec.declaration import (
    Declared,
    Listed,
    Nested,
    PathOrUri,
    Settings,
    Shape,
    Text,
    key_fields,
)
from lancestat.spec.model import Node, ProjectSpec

Origins = Mapping[str, Origin]
AnyNode = TypeVar("AnyNode", bound=Node)
NO_ORIGINS: Origins = MappingProxyType({})


def redacted_node(node: AnyNode, origins: Origins, audience: Audience) -> AnyNode:
    """Return a node as an audience may see it; `origins` are the node's, by dotted key."""
    hidden = {
        key: origin.template for key, origin in origins.items() if origin.hides_from(audience)
    }
    redacted: AnyNode = _redacted(node, hidden, "")
    return redacted


def _redacted(resource: Declared, hidden: Mapping[str, str], prefix: str) -> Any:
    """Return a resource whose dotted keys start with `prefix`, with its texts as they are shown."""
    values: dict[str, object] = {}
    for declared in key_fields(type(resource)):
        value = getattr(resource, declared.name)
        for key in declared.spelled:
            value = _redacted_value(key.shape, value, hidden, f"{prefix}{key.name}")
        values[declared.name] = value
    return replace(resource, **values)


def _redacted_value(shape: Shape, value: Any, hidden: Mapping[str, str], name: str) -> Any:
    match shape:
        case Text(is_public=False):
            return hidden.get(name, value)
        case Settings():
            return dict.fromkeys(value, MASK)
        case Listed(items=Text()) if value is not None:
            return tuple(hidden.get(f"{name}.{index}", text) for index, text in enumerate(value))
        case Nested() if value is not None:
            return _redacted(value, hidden, f"{name}.")
    return value


def redacted_nodes(spec: ProjectSpec, nodes: Iterable[Node], audience: Audience) -> Iterator[Node]:
    for node in nodes:
        yield redacted_node(node, spec.origins.get(node.name, NO_ORIGINS), audience)


def named(origins: Origins, *keys: str) -> str | None:
    """Return what is shown in place of values at dotted keys or below, None if no origin is there.

    It is the template of the one value, or else the variables that gave parts of several.
    """
    parts = {
        key: origin
        for key, origin in origins.items()
        if any(key == prefix or key.startswith(f"{prefix}.") for prefix in keys)
    }
    if len(parts) == 1 and (key := next(iter(parts))) in keys:
        return parts[key].template
    variables = dict.fromkeys(
        variable for origin in parts.values() for variable in origin.variables
    )
    return ", ".join(f"{{{{ {variable} }}}}" for variable in variables) or None


def query_variables(origins: Origins, audience: Audience) -> str | None:
    """Return the variables in a node's queries whose values are hidden from an audience."""
    hidden = [
        origin
        for key, origin in origins.items()
        if key.endswith(".sql") and origin.hides_from(audience)
    ]
    names = dict.fromkeys(str(variable) for origin in hidden for variable in origin.variables)
    return " and ".join(names) or None


def hidden_locations(node: Node, origins: Origins) -> Iterator[KnownValue]:
    """Yield the paths and URIs of a node, as they are used, that messages must not show."""
    if not origins:
        return
    public = _locations(redacted_node(node, origins, Audience.PUBLIC))
    personal = _locations(redacted_node(node, origins, Audience.PERSON))
    for location, public_text, seen in zip(_locations(node), public, personal, strict=True):
        if location is not None and public_text is not None and location != public_text:
            yield KnownValue(location, public_text, is_secret=location != seen)


def _locations(resource: Declared) -> Iterator[str | None]:
    for declared in key_fields(type(resource)):
        value = getattr(resource, declared.name)
        match declared.first.shape:
            case PathOrUri():
                yield value
            case Nested() if value is not None:
                yield from _locations(value)
