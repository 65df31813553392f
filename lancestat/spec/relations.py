"""What a table declares of columns together: groups, keys, references, and common values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from lancestat.formats import count, quoted
from lancestat.spec.declaration import (
    CHECK,
    FLAG,
    PUBLIC,
    Either,
    Listed,
    Nested,
    Resource,
    Text,
    key,
    resource,
    whole_number,
)

if TYPE_CHECKING:
    from lancestat.spec.document import KeyPath

MOST_GROUPS = 32
MOST_COMMON_VALUES = 1000

Columns = tuple[str, ...]

COLUMNS = Listed(
    title="a list of columns",
    definition="column_names",
    items=Text(title="the name of a column", keywords={"minLength": 1}),
    is_filled=True,
    is_unique=True,
)
GROUPS = Listed(
    title="a list of groups of columns",
    items=Listed(
        title="a list of two or more columns",
        definition="group",
        items=COLUMNS.items,
        is_unique=True,
        keywords={"minItems": 2},
    ),
)
KEYS = Listed(title="a list of keys, each a list of columns", items=COLUMNS)


@resource
class Reference:
    """Columns whose values are those of a table's columns `to`, in their order."""

    columns: Columns = key(COLUMNS, "Columns of this table.")
    table: str = key(PUBLIC, "The table that they refer to, which may be this one.")
    to: Columns = key(COLUMNS, "The columns there, one for each of 'columns', in the same order.")

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'columns', 'table' and 'to'", noun="reference"
    )

    def __str__(self) -> str:
        return f"{group_text(self.columns)} to {self.table} {group_text(self.to)}"


REFERENCES = Listed(title="a list of references", items=Nested(resource=Reference))

_LIMIT = whole_number(
    f"a whole number from 1 to {MOST_COMMON_VALUES}", minimum=1, maximum=MOST_COMMON_VALUES
)


@resource
class CommonValues:
    """The most common values that are kept: `limit` of each column and group that it `covers`.

    `show` tells whether people may see them.
    """

    limit: int = key(_LIMIT, "How many of each column and group.", default=100)
    columns: Columns | None = key(
        COLUMNS,
        "Those of these columns. By default, those of all columns that have statistics.",
        default=None,
        canonical=lambda columns: None if columns is None else tuple(sorted(columns)),
    )
    groups: tuple[Columns, ...] | None = key(
        GROUPS,
        "Those of these groups, which are among the table's. By default, those of all groups of "
        "'columns' alone.",
        default=None,
        canonical=lambda groups: None if groups is None else canonical_groups(groups),
    )
    show: bool = key(
        FLAG,
        "Whether pages, comments and 'lancestat show' may show them. Where 'show_values' is false, "
        "those of strings and binary values are never shown.",
        role=CHECK,
        default=True,
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'limit', 'columns', 'groups' and 'show'", is_filled=True
    )

    def covers(self, columns: Iterable[str]) -> bool:
        """Whether the common values of a column or a group are kept."""
        names = frozenset(columns)
        if len(names) > 1 and self.groups is not None:
            return names in map(frozenset, self.groups)
        return self.columns is None or names.issubset(self.columns)

    def includes(self, other: CommonValues | None) -> bool:
        """Whether all that `other` keeps is kept, where that is declared in place of this."""
        if other is None:
            return True
        is_as_wide = self.columns is None or (
            other.columns is not None and set(other.columns) <= set(self.columns)
        )
        has_groups = (
            (is_as_wide and self.groups is None)
            if other.groups is None
            else all(map(self.covers, other.groups))
        )
        return is_as_wide and has_groups and self.limit >= other.limit


COMMON_VALUES = Either(
    title=f"{_LIMIT.title}, or a mapping with 'limit', 'columns', 'groups' and 'show'",
    shapes=(
        replace(_LIMIT, read=lambda limit: CommonValues(limit=int(limit))),
        Nested(resource=CommonValues),
    ),
)


def group_text(columns: Iterable[str]) -> str:
    """Return columns as people read them: `(i_category, i_class)`."""
    return f"({', '.join(columns)})"


def relation_name(columns: Columns) -> str:
    """Return a column by its name, and several in parentheses."""
    return columns[0] if len(columns) == 1 else group_text(columns)


def groups_text(groups: Iterable[Columns]) -> str:
    return ", ".join(map(group_text, groups))


def references_text(references: Iterable[Reference]) -> str:
    return ", ".join(map(str, references))


def canonical_groups(declared: Iterable[Columns]) -> tuple[Columns, ...]:
    """Return groups or keys as digests have them: no order of theirs means anything."""
    return tuple(sorted(tuple(sorted(columns)) for columns in declared))


def referring_groups(references: Iterable[Reference]) -> tuple[Columns, ...]:
    """Return what a run keeps for references: the groups of the columns that refer."""
    return canonical_groups(distinct_groups(reference.columns for reference in references))


def distinct_groups(declared: Iterable[Columns]) -> tuple[Columns, ...]:
    """Return the groups of two or more columns, each set of columns once, as first spelled."""
    first: dict[frozenset[str], Columns] = {}
    for columns in declared:
        if len(columns) > 1:
            first.setdefault(frozenset(columns), columns)
    return tuple(first.values())


def relation_objections(
    groups: Sequence[Columns] = (),
    keys: Sequence[Columns] = (),
    references: Sequence[Reference] = (),
    common: CommonValues | None = None,
) -> Iterator[tuple[str, KeyPath]]:
    """Yield what is wrong with declarations whose shapes are right, and the steps to each."""
    for name, noun, declared in (("groups", "group", groups), ("keys", "key", keys)):
        for index, first in _repeated(map(frozenset, declared)):
            message = f"{noun} {group_text(declared[index])} is declared twice"
            yield f"{message}, first as item {first + 1}", (name, index)
    pairs = (
        (each.table, frozenset(zip(each.columns, each.to, strict=False))) for each in references
    )
    for index, first in _repeated(pairs):
        message = f"the reference {references[index]} is declared twice"
        yield f"{message}, first as item {first + 1}", ("references", index)
    referring = [reference.columns for reference in references]
    yield from _too_many(groups, keys, referring)
    known = set(map(frozenset, distinct_groups((*groups, *keys, *referring))))
    for index, columns in enumerate((common and common.groups) or ()):
        if frozenset(columns) not in known:
            message = f"the table has no group {group_text(columns)} to keep common values of"
            yield message, ("common_values", "groups", index)


def _repeated(items: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield the indexes of items that came before, with those of the first ones."""
    first: dict[Any, int] = {}
    for index, item in enumerate(items):
        if first.setdefault(item, index) != index:
            yield index, first[item]


def _too_many(
    groups: Sequence[Columns], keys: Sequence[Columns], referring: Sequence[Columns]
) -> Iterator[tuple[str, KeyPath]]:
    """Yield the first group beyond the most that a table may have."""
    named = (("groups", groups), ("keys", keys), ("references", referring))
    places = {columns: (name, index) for name, part in named for index, columns in enumerate(part)}
    kept = distinct_groups(places)
    if len(kept) > MOST_GROUPS:
        what = f"{len(kept)} groups of columns, those of keys and references included"
        yield f"the table has {what}; at most {MOST_GROUPS}", places[kept[MOST_GROUPS]]


def width_objection(reference: Reference) -> str | None:
    """Return why the two sides of a reference cannot be paired, None where they can."""
    if len(reference.columns) == len(reference.to):
        return None
    return (
        f"a reference to {quoted(reference.table)} has {count(len(reference.columns), 'column')} "
        f"in 'columns' and {len(reference.to)} in 'to'"
    )
