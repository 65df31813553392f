"""Row filters as values: what Spark pushes down, before it is said in Lance's words."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum


# Numbers, since Python's dates end with the years 1 and 9999 and Spark's do not.
@dataclass(frozen=True, slots=True)
class Day:
    """A date in days since 1970-01-01, in the proleptic Gregorian calendar."""

    days: int


@dataclass(frozen=True, slots=True)
class Instant:
    """A timestamp with zone, in microseconds since 1970-01-01 UTC."""

    micros: int


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A timestamp without zone, in microseconds since 1970-01-01 of its own zone."""

    micros: int


Literal = bool | int | float | Decimal | str | bytes | Day | Instant | LocalTime


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


class TextOperator(str, Enum):
    """Where in a string another is looked for."""

    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A string column that begins with a text, ends with it, or holds it somewhere."""

    column: str
    operator: TextOperator
    text: str


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


Leaf = Comparison | In | IsNull | TextMatch
Filter = Leaf | Not | And | Or
