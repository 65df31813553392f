"""Three-valued logic of Spark: a filter on a row is true, false or unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import eq, ge, gt, le, lt
from typing import Any

from typing_extensions import assert_never

from lancestat.query.predicates.filter import (
    And,
    Comparison,
    Day,
    Filter,
    In,
    Instant,
    IsNull,
    Literal,
    LocalTime,
    Not,
    Operator,
    Or,
    TextMatch,
    TextOperator,
    TimeOfDay,
)

Row = Mapping[str, Literal | None]

_COMPARED = {
    Operator.EQUAL: eq,
    Operator.NULL_SAFE: eq,
    Operator.LESS: lt,
    Operator.LESS_OR_EQUAL: le,
    Operator.GREATER: gt,
    Operator.GREATER_OR_EQUAL: ge,
}
_MATCHED = {
    TextOperator.STARTS_WITH: str.startswith,
    TextOperator.ENDS_WITH: str.endswith,
    TextOperator.CONTAINS: str.__contains__,
}


def selected(filter: Filter, rows: Iterable[Row]) -> list[int]:
    """The ids of the rows where the filter is true."""
    return [int(str(row["id"])) for row in rows if truth(filter, row)]


def truth(filter: Filter, row: Row) -> bool | None:
    """SQL's logic of three values; None is unknown."""
    match filter:
        case Not(operand):
            return _negation(truth(operand, row))
        case And(left, right):
            return _conjunction(truth(left, row), truth(right, row))
        case Or(left, right):
            both = _conjunction(_negation(truth(left, row)), _negation(truth(right, row)))
            return _negation(both)
        case IsNull(column):
            return row[column] is None
        case TextMatch(column, operator, text):
            value = row[column]
            return None if value is None else _MATCHED[operator](str(value), text)
        case In(column, literals):
            return _membership(row[column], literals)
        case Comparison(column, operator, literal):
            return _comparison(row[column], operator, literal)
        case _:
            assert_never(filter)


def _negation(value: bool | None) -> bool | None:
    return None if value is None else not value


def _conjunction(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _membership(value: Literal | None, literals: Iterable[Literal | None]) -> bool | None:
    verdicts = [_comparison(value, Operator.EQUAL, literal) for literal in literals]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _comparison(value: Literal | None, operator: Operator, literal: Literal | None) -> bool | None:
    if operator is Operator.NULL_SAFE and (value is None or literal is None):
        return value is None and literal is None
    if value is None or literal is None:
        return None
    return bool(_COMPARED[operator](_rank(value), _rank(literal)))


def _rank(value: Literal) -> Any:
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    match value:
        case str():
            return value.encode()
        case Day(count) | Instant(count) | LocalTime(count) | TimeOfDay(count):
            return count
    return value
