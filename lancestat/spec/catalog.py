"""Catalogs of a target, and the names of their tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar
from urllib.parse import quote, unquote

from lancestat.errors import LakeError
from lancestat.redact import is_secret_name
from lancestat.spec.declaration import PUBLIC, SETTINGS, Resource, Text, key, resource

SCHEME = "catalog://"
"""The scheme of what stands for a catalog's table until its catalog reports its URI."""

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a catalog: the catalog's name, and the identifier, namespaces first."""

    catalog: str
    identifier: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(map(_quoted, (self.catalog, *self.identifier)))

    @property
    def uri(self) -> str:
        """The URI that stands for the table until its catalog reports the dataset's location."""
        parts = (quote(part, safe="") for part in (self.catalog, *self.identifier))
        return SCHEME + "/".join(parts)


def parse_table_name(text: str) -> TableName:
    """Return the table of a name, which may have backticks as in SQL; ValueError says why not."""
    parts, position = [], 0
    while True:
        part = _PART.match(text, position)
        if part is None:
            raise ValueError("must be a name such as catalog.namespace.table")
        quoted, plain = part.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        position = part.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise ValueError("must be a name such as catalog.namespace.table")
        position += 1
    if len(parts) == 1:
        raise ValueError("names no table: it starts with a catalog, as in catalog.namespace.table")
    return TableName(parts[0], tuple(parts[1:]))


def table_name_of(uri: str) -> TableName | None:
    """Return the table that a URI stands for, None for the URI of a dataset."""
    if not uri.startswith(SCHEME):
        return None
    catalog, *identifier = map(unquote, uri[len(SCHEME) :].split("/"))
    return TableName(catalog, tuple(identifier))


def shown_uri(uri: str) -> str:
    """Return a URI as people read it: the name of a table in place of what stands for it."""
    name = table_name_of(uri)
    return uri if name is None else str(name)


def _quoted(part: str) -> str:
    plain = _PART.fullmatch(part)
    return part if plain is not None and plain[2] is not None else f"`{part.replace('`', '``')}`"


@resource
class Catalog:
    """A catalog as a target declares it; `properties` may be secret: `repr` omits them."""

    impl: str = key(
        PUBLIC,
        "dir for a folder of tables, rest for a server, or the class of another implementation, "
        "such as one of the package lance-namespace-impls.",
        title="dir, rest, or the name of a class",
    )
    properties: Mapping[str, str] = key(
        SETTINGS,
        "Properties of the implementation, such as `root` of dir and `uri` of rest. Take secrets "
        "from {{ env_var('X') }}.",
        title="a mapping of properties",
        default_factory=dict,
        repr=False,
    )

    @property
    def secret_properties(self) -> dict[str, str]:
        """The properties that no text may show."""
        return hidden_properties(self.properties)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'impl' and 'properties'",
        "A catalog whose tables are named by `catalog.namespace.table`.",
        noun="catalog",
        definition="catalog",
    )


def hidden_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog that no text may show.

    They are those whose names say that they are secret, and all options of stores and headers of
    requests. Others are names of databases and the like, which errors and pages are full of.
    """
    return {
        name: text
        for name, text in properties.items()
        if is_secret_name(name) or name.startswith(_SECRET_PROPERTIES)
    }


_SECRET_PROPERTIES = ("storage.", "header.", "headers.")


TABLE_NAME = Text(
    title="the name of a table in a catalog, such as catalog.namespace.table",
    keywords={"minLength": 1},
)


class UriOptions:
    """The storage options with which datasets are opened: a table's own, else the target's."""

    def __init__(
        self,
        default: Mapping[str, str],
        declared: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.default = default
        self._declared = declared
        self._located: dict[str, Mapping[str, str] | LakeError] = {}

    def __repr__(self) -> str:
        return "UriOptions()"

    def declared(self, uri: str) -> Mapping[str, str]:
        """Return the options that the project has for a dataset or a table of a catalog."""
        return self._declared.get(uri, self.default)

    def of(self, uri: str) -> Mapping[str, str]:
        """Return the options that open a dataset; LakeError if it could not be located."""
        located = self._located.get(uri)
        if isinstance(located, LakeError):
            raise located
        return self.declared(uri) if located is None else located

    def locate(self, uri: str, options: Mapping[str, str] | LakeError | None) -> None:
        """Take what a catalog gave for a dataset, or why it could not; None forgets it."""
        if options is None:
            self._located.pop(uri, None)
        else:
            self._located[uri] = options
