"""Sources: folders and catalogs whose tables become nodes without being declared one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, field, replace
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote

from lancestat.errors import Location
from lancestat.redact import Origin
from lancestat.spec.catalog import TableName
from lancestat.spec.column_selection import ColumnSelection
from lancestat.spec.declaration import (
    CHECK,
    LABEL,
    MEANING,
    NAME,
    PUBLIC,
    Listed,
    Nested,
    PathOrUri,
    Resource,
    Text,
    key,
    resource,
    same_key,
)
from lancestat.spec.monitors import Monitor
from lancestat.spec.names import PUNCTUATION, is_name, render
from lancestat.spec.relations import CommonValues
from lancestat.spec.table import Freshness, NodeKind, Policy, Publish, Table
from lancestat.spec.template import TemplateScope

SCHEME = "source://"
"""The scheme of what stands for a source, or for a table that it should have."""

DEFAULT_NAME = "{% if namespace %}{{ namespace }}_{% endif %}{{ table }}"
WORDS = ("namespace", "table", "catalog")

_TABLE_PATTERNS = Listed(
    title="a list of patterns of table names",
    description="Patterns with * and ? of whole names such as sales.orders, matched with case; "
    "* matches dots too.",
    definition="table_patterns",
    items=Text(
        title="a pattern of table names such as sales.* or *_tmp",
        definition="table_pattern",
        keywords={"pattern": r"^[^.\s]+(\.[^.\s]+)*$(?!\n)"},
    ),
    is_unique=True,
)


@resource
class SourceDefaults:
    """What the tables of a source have, as if each of them were declared with it."""

    tags: tuple[str, ...] = same_key(Table, "tags")
    owner: str | None = same_key(Table, "owner")
    priority: int | None = same_key(Table, "priority")
    columns: ColumnSelection = same_key(Table, "columns")
    policy: Policy = same_key(Table, "policy")
    publish: Publish = same_key(Table, "publish")
    histogram: bool = same_key(Table, "histogram")
    common_values: CommonValues | None = same_key(Table, "common_values")
    freshness: Freshness | None = same_key(Table, "freshness")
    monitors: tuple[Monitor, ...] = same_key(Table, "monitors")
    show_values: bool = same_key(Table, "show_values")

    declares: ClassVar[Resource] = Resource(
        "a mapping of keys of tables", "Keys of every table that the source finds."
    )


@resource
class Source:
    """A catalog or a folder whose tables are nodes; one of `catalog` and `uri` is set.

    `origins` are those of the nodes' values, by dotted key of a table; `scope` is what `name` is
    rendered in.
    """

    _: KW_ONLY
    catalog: str | None = key(
        PUBLIC,
        "One of the target's catalogs. All of its namespaces are searched.",
        role=MEANING,
        default=None,
    )
    uri: str | None = key(
        PathOrUri(title="a folder or an object-store URI", keywords={"minLength": 1}),
        "A folder of Lance datasets, or the root of a directory catalog.",
        role=MEANING,
        default=None,
    )
    include: tuple[str, ...] = key(
        replace(_TABLE_PATTERNS, definition="filled_table_patterns", is_filled=True),
        "The tables that become nodes.",
        role=MEANING,
        default=("*",),
    )
    exclude: tuple[str, ...] = key(
        _TABLE_PATTERNS, "The tables that do not.", role=MEANING, default=()
    )
    name: str = key(
        Text(title="a template of the names of nodes", keywords={"minLength": 1}),
        "A template of the names of nodes over `namespace` (the parts joined by _), `table` and "
        "`catalog`. By default, namespace and table joined by _.",
        role=LABEL,
        default=DEFAULT_NAME,
    )
    defaults: SourceDefaults = key(
        Nested(resource=SourceDefaults, is_inline=True, title="a mapping of keys of tables"),
        "Keys for all tables that are found. A declared table has its own keys instead.",
        role=CHECK,
        default_factory=SourceDefaults,
    )
    location: Location
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    scope: TemplateScope = field(default_factory=TemplateScope, compare=False, repr=False)

    # The kind of the nodes.
    lists: ClassVar[NodeKind] = NodeKind.TABLE
    declares: ClassVar[Resource] = Resource(
        "a mapping with 'catalog' or 'uri'",
        "A catalog or a folder whose tables become nodes without being declared one by one.",
        noun="source",
        definition="source",
        one_of=("catalog", "uri"),
    )

    @property
    def label(self) -> str:
        """What selectors call the source: its catalog, or the last part of its URI."""
        if self.catalog is not None:
            return self.catalog
        return (self.uri or "").rstrip("/").rpartition("/")[2]

    @property
    def catalog_name(self) -> str:
        """The catalog of its tables' names; a folder is one that is called by its URI."""
        return self.catalog or (self.uri or "").rstrip("/")

    def matches(self, table: TableName) -> bool:
        if table.catalog != self.catalog_name:
            return False
        text = ".".join(table.identifier)
        return _is_any(text, self.include) and not _is_any(text, self.exclude)

    def unused(self, tables: Iterable[TableName]) -> list[str]:
        """The patterns of `include` that match none of some tables."""
        texts = [".".join(table.identifier) for table in tables]
        return [
            pattern
            for pattern in self.include
            if not any(_pattern(pattern).fullmatch(text) for text in texts)
        ]

    def node_name(self, table: TableName) -> str:
        """Return the name of a table's node; ValueError where the template gives none."""
        *namespace, name = table.identifier
        if self.name == DEFAULT_NAME:
            text = "_".join(table.identifier)
        else:
            words = {"namespace": "_".join(namespace), "table": name, "catalog": self.label}
            text = str(render(self.name, replace(self.scope, words=words), self.location).value)
        if not is_name(text, PUNCTUATION["lancestat-name"]) or len(text) > _MOST_LETTERS:
            raise ValueError(text)
        return text

    def node(self, name: str, table: TableName) -> Table:
        given = self.defaults
        return Table(
            name,
            table.uri,
            self.location,
            tags=given.tags,
            owner=given.owner,
            priority=given.priority,
            columns=given.columns,
            policy=given.policy,
            publish=given.publish,
            histogram=given.histogram,
            common_values=given.common_values,
            freshness=given.freshness,
            monitors=given.monitors,
            show_values=given.show_values,
            source=self.label,
        )

    def stand_in(self) -> Table:
        """Return a node in place of the source's tables, where these are not known."""
        catalog = quote(self.catalog_name, safe="/:")
        node = self.node(f"source:{self.label}", TableName(self.catalog_name, ("*",)))
        return replace(node, uri=f"{SCHEME}{catalog}")


_MOST_LETTERS: int = NAME.keywords["maxLength"]


def _is_any(text: str, patterns: Iterable[str]) -> bool:
    return any(_pattern(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = (
        {"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", pattern)
    )
    return re.compile("".join(parts), re.DOTALL)
