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

_COLUMNS = Listed(
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
        items=_COLUMNS.items,
        is_unique=True,
        keywords={"minItems": 2},
    ),
)
KEYS = Listed(title="a list of keys, each a list of columns", items=_COLUMNS)


@resource
class Reference:
    """Columns whose values are those of a table's columns `to`, in their order."""

    columns: Columns = key(_COLUMNS, "Columns of this table.")
    table: str = key(PUBLIC, "The table that they refer to, which may be this one.")
    to: Columns = key(_COLUMNS, "The columns there, one for each of 'columns', in the same order.")

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'columns', 'table' and 'to'", noun="reference"
    )

    def __str__(self) -> str:
        return f"{group_text(self.columns)} to {self.table} {group_text(self.to)}"


REFERENCES = Listed(title="a list of references", items=Nested(resource=Reference))

_SIZE = whole_number(
    f"a whole number from 1 to {MOST_COMMON_VALUES}", minimum=1, maximum=MOST_COMMON_VALUES
)


@resource
class CommonValues:
    """The most common values that are kept: `size` of each column and group that it `covers`.

    `show` tells whether people may see them.
    """

    size: int = key(_SIZE, "How many of each column and group.", default=100)
    columns: Columns | None = key(
        _COLUMNS,
        "Those of these columns, and of groups of these columns alone. By default, those of all "
        "columns that have statistics, and of all groups.",
        default=None,
        canonical=lambda columns: None if columns is None else tuple(sorted(columns)),
    )
    show: bool = key(
        FLAG,
        "Whether pages, comments and 'lancestat show' may show them. Where 'show_values' is false, "
        "those of strings and binary values are never shown.",
        role=CHECK,
        default=True,
    )

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'size', 'columns' and 'show'", is_filled=True
    )

    def covers(self, columns: Iterable[str]) -> bool:
        """Whether the common values of a column or a group are kept."""
        return self.columns is None or set(columns) <= set(self.columns)

    def includes(self, other: CommonValues | None) -> bool:
        """Whether all that `other` keeps is kept, where that is declared in place of this."""
        if other is None:
            return True
        is_as_wide = self.covers(other.columns) if other.columns else self.columns is None
        return is_as_wide and self.size >= other.size


COMMON_VALUES = Either(
    title=f"{_SIZE.title}, or a mapping with 'size', 'columns' and 'show'",
    shapes=(
        replace(_SIZE, read=lambda size: CommonValues(size=int(size))),
        Nested(resource=CommonValues),
    ),
)


def group_text(columns: Iterable[str]) -> str:
    """Return columns as people read them: `(i_category, i_class)`."""
    return f"({', '.join(columns)})"


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
    groups: Sequence[Columns], keys: Sequence[Columns], references: Sequence[Reference]
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
    yield from _too_many(groups, keys, [reference.columns for reference in references])


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
