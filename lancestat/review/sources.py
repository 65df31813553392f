"""Sources in a diff: the keys of their tables, their patterns, and what these match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lancestat.errors import LakeError
from lancestat.formats import count
from lancestat.plan.discover import list_sources
from lancestat.review.evidence import has_same_options
from lancestat.review.mask import Mask
from lancestat.review.values import Property, PropertyChange
from lancestat.spec.catalog import TableName
from lancestat.spec.model import ProjectSpec, Source, Table

_MOST_NAMED = 10

Named = Mapping[str, Source]


def with_sources(spec: ProjectSpec) -> ProjectSpec:
    """Return a project with a node for each source, as its tables are declared: nothing is opened.

    So the columns, the policy and the risks of a source are compared as those of a table are.
    """
    nodes: list[Table] = []
    origins = dict(spec.origins)
    for name, source in named_sources(spec).items():
        nodes.append(replace(source.stand_in(), name=name))
        if source.origins:
            origins[name] = source.origins
    return replace(spec, nodes=(*spec.nodes, *nodes), origins=origins)


def named_sources(spec: ProjectSpec) -> dict[str, Source]:
    """Return the sources by what a diff calls them: further ones of a label are numbered."""
    named: dict[str, Source] = {}
    for source in spec.sources:
        name, number = f"source:{source.label}", 1
        while name in named:
            number += 1
            name = f"source:{source.label}:{number}"
        named[name] = source
    return named


def pattern_changes(base: ProjectSpec, head: ProjectSpec, mask: Mask) -> Iterator[PropertyChange]:
    """Yield what changes in the patterns and the names of sources."""
    old, new = named_sources(base), named_sources(head)
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        for key in ("include", "exclude", "name"):
            sides = [_property(source, key, mask) for source in (before, after)]
            values = [None if side is None else side.value for side in sides]
            if values[0] != values[1]:
                yield PropertyChange(f"{name}.{key}", *sides)


def _property(source: Source | None, key: str, mask: Mask) -> Property | None:
    if source is None:
        return None
    value = getattr(source, key)
    if key == "name":
        return Property(value, mask.text(value), mask.text(value))
    texts = [mask.text(text) for text in value]
    return Property(list(value), ", ".join(texts), list(texts)) if value else None


def match_notes(base: ProjectSpec, head: ProjectSpec, mask: Mask) -> Iterator[str]:
    """Yield sentences on the tables that sources of HEAD match and those of BASE do not.

    Only catalogs and folders are asked of which BASE has a source, with BASE's own options.
    """
    old = named_sources(base)
    trusted = {source.catalog_name for source in base.sources}
    for name, source in named_sources(head).items():
        before = old.get(name)
        if before is not None and _matches_same(before, source):
            continue
        if source.catalog_name not in trusted or not has_same_options(base, head):
            reason = "BASE has no source there, or other options or catalogs"
            yield f"what {mask.line(name)} matches is not looked up: {reason}"
            continue
        yield from _compared(base, name, before, source, mask)
    for name in old.keys() - named_sources(head).keys():
        yield f"the tables of {mask.line(name)} are nodes no more, unless they are declared"


def _matches_same(before: Source, after: Source) -> bool:
    keys = ("catalog", "uri", "include", "exclude")
    return all(getattr(before, key) == getattr(after, key) for key in keys)


def _compared(
    base: ProjectSpec, name: str, before: Source | None, after: Source, mask: Mask
) -> Iterator[str]:
    sources = [after] if before is None else [after, before]
    listings = list_sources(base, sources)
    tables: list[set[TableName]] = []
    for listing in listings:
        if isinstance(listing, LakeError):
            message = mask.line(listing.message)
            yield f"{mask.line(name)} cannot be looked up: {listing.code} {message}"
            return
        tables.append(set(listing))
    now, then = tables[0], tables[1] if len(tables) > 1 else set[TableName]()
    yield (
        f"{mask.line(name)} matches {count(len(now), 'table')}{_named(', new', now - then, mask)}"
        f"{_named(', no longer', then - now, mask)}"
    )


def _named(what: str, tables: set[TableName], mask: Mask) -> str:
    if not tables:
        return ""
    names = sorted(".".join(table.identifier) for table in tables)
    rest = len(names) - _MOST_NAMED
    more = f" and {count(rest)} more" if rest > 0 else ""
    return f"{what}: {mask.line(', '.join(names[:_MOST_NAMED]))}{more}"
