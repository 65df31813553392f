"""What a query gave, as values that no library has rounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# What stands for a value of Spark's: null, boolean and integer as they are, a list for an array, a
# tuple of its fields for a struct, a list of pairs for a map, and text for everything else.
Plain = bool | int | str | list["Plain"] | tuple["Plain", ...] | None


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column; `type` is Spark's catalog string, `shape` says how values are to be read."""

    name: str
    type: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is not made of others; `kind` is Spark's type name, such as `double`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one shape."""

    element: Shape


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs of key and value."""

    key: Shape
    value: Shape


Shape = Scalar | Array | Struct | Map


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Columns and rows; rows come as Spark finds them and can be read once.

    There are `limit` rows at most, None where all were asked for, and one more where there are more
    than that.
    """

    columns: tuple[ResultColumn, ...]
    rows: Iterator[tuple[Plain, ...]]
    limit: int | None
