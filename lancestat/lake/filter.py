"""Row filters as values: what Spark pushes down, before it is said in Lance's words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum

# A timestamp with zone is an aware datetime, one without is naive. Microseconds are exact.
Literal = bool | int | float | Decimal | str | bytes | date | datetime


class Operator(str, Enum):
    """Comparisons of a column with a literal; `NULL_SAFE` is Spark's `<=>`."""

    EQUAL = "="
    NULL_SAFE = "<=>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Comparison:
    """A top-level column against a literal; only `NULL_SAFE` takes None."""

    column: str
    operator: Operator
    literal: Literal | None


@dataclass(frozen=True, slots=True)
class In:
    """A column against any of some literals; None among them follows SQL's three-valued logic."""

    column: str
    literals: tuple[Literal | None, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is null."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A string column that begins with a prefix."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class EndsWith:
    """A string column that ends with a suffix."""

    column: str
    suffix: str


@dataclass(frozen=True, slots=True)
class Contains:
    """A string column that holds a part somewhere."""

    column: str
    part: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation, which of unknown is unknown."""

    operand: Filter


@dataclass(frozen=True, slots=True)
class And:
    """Both sides."""

    left: Filter
    right: Filter


@dataclass(frozen=True, slots=True)
class Or:
    """Either side."""

    left: Filter
    right: Filter


Leaf = Comparison | In | IsNull | StartsWith | EndsWith | Contains
Filter = Leaf | Not | And | Or
