"""Filters in Lance's SQL, selecting exactly the rows that Spark would, or nothing at all.

An expression is built for where a filter is true and, under a negation, for where it is false. In
both, what is unknown counts as not selected, so that nulls need no logic of three values in Lance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.query.predicates.comparison_sql import (
    NEVER,
    OPPOSITE,
    Domain,
    Strings,
    domain,
    exact_string_literal,
)
from lancestat.query.predicates.filter import (
    DEEPEST,
    And,
    Comparison,
    Filter,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    Unread,
    flattened,
)

if TYPE_CHECKING:
    from lancestat.lake.snapshot import Field

# Lance parses every filter anew for each fragment, and no deeper than fifty parentheses.
_LITERALS = 1_000
_SEPARATE_MEMBERS = 50
# Names that Lance means something else by.
_SYSTEM_NAMES = ("_row", "_distance", "_score", "_relevance", "_fragment", "_frag")


class _Inexact(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """Lance cannot express this part exactly."""


def to_lance(filter: Filter, fields: Mapping[str, Field]) -> str | None:
    """Return a filter in Lance's SQL that is true for exactly the rows where Spark's is true.

    Args:
        filter: A literal has the Spark type of its column.
        fields: The columns of the table by name.

    Returns:
        A boolean expression that is false or null for all other rows, or None where that cannot be
        expressed: of types that Lance compares otherwise, of literals that the column cannot hold
        exactly, and of filters too large to be parsed for every fragment.
    """
    if sum(1 for _ in _literals(filter, 0)) > _LITERALS:
        return None
    try:
        return _expression(filter, True, fields)
    except _Inexact:
        return None


def exact_conjuncts(
    filters: Sequence[Filter], fields: Mapping[str, Field]
) -> tuple[str | None, list[Filter]]:
    """Split a conjunction into what Lance can express exactly and the other filters.

    Both sides of a filter that is itself a conjunction are split, too.

    Returns:
        An expression of all exact filters, None without any; and the other filters.
    """
    expressions: list[str] = []
    left: list[Filter] = []
    for conjunct in (part for filter in filters for part in flattened(filter, And)):
        expression = to_lance(conjunct, fields)
        if expression is None:
            left.append(conjunct)
        else:
            expressions.append(expression)
    joined = _joined(expressions, " AND ") if expressions else None
    return joined, left


def _literals(filter: Filter, depth: int) -> Iterator[None]:
    # Each literal once, and every other leaf as one; too deep counts as too many.
    if depth > DEEPEST:
        yield from (None for _ in range(_LITERALS + 1))
        return
    match filter:
        case Not(operand):
            yield from _literals(operand, depth + 1)
        case And() | Or():
            for part in flattened(filter, type(filter)):
                yield from _literals(part, depth + 1)
        case In(_, literals):
            yield from (None for _ in literals)
        case _:
            yield None


def _expression(filter: Filter, outcome: bool, fields: Mapping[str, Field]) -> str:
    """Return an expression for where the filter is true, or for where it is false."""
    match filter:
        case Not(operand):
            return _expression(operand, not outcome, fields)
        case And() | Or():
            parts = flattened(filter, type(filter))
            both = isinstance(filter, And) == outcome
            return _joined(
                [_expression(part, outcome, fields) for part in parts], " AND " if both else " OR "
            )
        case Comparison(column, Operator.NULL_SAFE, None):
            return _nullness(_column(column, fields), outcome)
        case Comparison(column, Operator.NULL_SAFE, literal):
            equal = _compared(_column(column, fields), "=" if outcome else "<>", literal)
            if outcome:
                return equal
            return f"({equal} OR {_nullness(_column(column, fields), True)})"
        case Comparison(column, operator, literal):
            sign = operator.value if outcome else OPPOSITE[operator.value]
            return _compared(_column(column, fields), sign, literal)
        case In(column, literals):
            return _membership(_column(column, fields), literals, outcome)
        case IsNull(column):
            return _nullness(_column(column, fields), outcome)
        case TextMatch(column, operator, text):
            return _matched(_column(column, fields), operator, text, outcome)
        case Unread():
            raise _Inexact
        case _:
            assert_never(filter)


def _joined(parts: Sequence[str], conjunction: str) -> str:
    return parts[0] if len(parts) == 1 else f"({conjunction.join(parts)})"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as Lance spells it, and how its values compare."""

    name: str
    domain: Domain


def _column(name: str, fields: Mapping[str, Field]) -> _Column:
    field = fields.get(name)
    if field is None or not name or "`" in name or name.lower().startswith(_SYSTEM_NAMES):
        raise _Inexact
    column_domain = domain(field.type)
    if column_domain is None:
        raise _Inexact
    return _Column(f"`{name}`", column_domain)


def _compared(column: _Column, sign: str, literal: Literal | None) -> str:
    if literal is None:
        return NEVER
    return _exact(column.domain.compare(column.name, sign, literal))


def _membership(column: _Column, literals: Sequence[Literal | None], outcome: bool) -> str:
    if not literals:
        # Whether null is in nothing depends on Spark's configuration.
        raise _Inexact
    if None in literals and not outcome:
        return NEVER
    sign, conjunction, among = ("=", " OR ", "IN") if outcome else ("<>", " AND ", "NOT IN")
    members: dict[str, None] = {}
    parts: dict[str, None] = {}
    for literal in literals:
        member = None if literal is None else column.domain.member(literal)
        if member is None:
            parts[_compared(column, sign, literal)] = None
        else:
            members[member] = None
    neutral = NEVER if outcome else f"{column.name} IS NOT NULL"
    parts.pop(neutral, None)
    if len(parts) > _SEPARATE_MEMBERS:
        raise _Inexact
    if members:
        parts[f"{column.name} {among} ({', '.join(members)})"] = None
    return _joined(list(parts) or [neutral], conjunction)


def _nullness(column: _Column, outcome: bool) -> str:
    return f"{column.name} IS {'' if outcome else 'NOT '}NULL"


def _matched(column: _Column, operator: TextOperator, text: str, outcome: bool) -> str:
    if not isinstance(column.domain, Strings):
        raise _Inexact
    # Lance's functions have the operators' names.
    test = f"{operator.value}({column.name}, {_exact(exact_string_literal(text))})"
    return test if outcome else f"NOT {test}"


def _exact(expression: str | None) -> str:
    if expression is None:
        raise _Inexact
    return expression
