"""The filters that Spark hands to a Python data source, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from lancestat.lake.snapshot import Field
from lancestat.query.predicates.filter import (
    DEEPEST,
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
    TextMatch,
    TextOperator,
)
from lancestat.query.predicates.filter_sql import exact_conjuncts

# By the names of Spark's classes, which Spark 4.0 does not have.
_OPERATORS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.NULL_SAFE,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
}
_TEXT_OPERATORS = {
    "StringStartsWith": TextOperator.STARTS_WITH,
    "StringEndsWith": TextOperator.ENDS_WITH,
    "StringContains": TextOperator.CONTAINS,
}
# PySpark multiplies decimals in Python's default context: longer ones arrive rounded.
_EXACT_DIGITS = 27
# Java's replacement where a string is not Unicode: the literal may stand for other bytes.
_REPLACEMENT = "\ufffd"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
# On its way a date or an instant is a `java.sql` object. Such objects lack the ten days that the
# calendar of 1582 left out, and the days that a time zone skipped when it changed sides of the date
# line, so a literal arrives as a neighbour.
_GREGORIAN_SINCE = (date(1583, 1, 1).toordinal() - _EPOCH_DAY) * _DAY_MICROS
_SHIFT_BEFORE = 12 * _DAY_MICROS
_SHIFT_SINCE = 2 * _DAY_MICROS


class _Unknown(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """No filter that is known here."""


def pushed_filters(
    filters: Iterable[spark.Filter], fields: Mapping[str, Field]
) -> tuple[str | None, list[spark.Filter]]:
    """Return the SQL of the filters that Lance applies, and the filters that stay with Spark.

    Lance applies exactly those filters that do not stay with Spark. A comparison with a date or an
    instant does stay, and Lance applies a wider one, since the literal may have been shifted on its
    way.

    Args:
        filters: A conjunction.
        fields: The columns of the table by name.
    """
    taken: list[Filter] = []
    left: list[spark.Filter] = []
    for filter in filters:
        try:
            known = _filter(filter, fields, 0)
        except _Unknown:
            left.append(filter)
            continue
        wider = _widened(known)
        if exact_conjuncts([wider], fields)[1]:
            left.append(filter)
            continue
        taken.append(wider)
        if wider is not known:
            left.append(filter)
    return exact_conjuncts(taken, fields)[0], left


def _filter(filter: spark.Filter, fields: Mapping[str, Field], depth: int) -> Filter:
    if depth > DEEPEST:
        raise _Unknown
    name = type(filter).__name__
    match filter:
        case spark.Not(child):
            operand = _filter(child, fields, depth + 1)
            if _widened(operand) is not operand:
                raise _Unknown
            return Not(operand)
        case spark.IsNull((column,)):
            return IsNull(column)
        case spark.IsNotNull((column,)):
            return Not(IsNull(column))
        case _ if name in _TEXT_OPERATORS and len(filter.attribute) == 1:
            (column,) = filter.attribute
            text = _literal(filter.value, _type(column, fields))
            if not isinstance(text, str):
                raise _Unknown
            return TextMatch(column, _TEXT_OPERATORS[name], text)
        case spark.In((column,), values):
            kind = _type(column, fields)
            return In(column, tuple(_literal(value, kind) for value in values))
        case _ if name in _OPERATORS and len(filter.attribute) == 1:
            (column,) = filter.attribute
            literal = _literal(filter.value, _type(column, fields))
            return Comparison(column, _OPERATORS[name], literal)
    raise _Unknown


def _type(column: str, fields: Mapping[str, Field]) -> str:
    field = fields.get(column)
    if field is None or field.spark_type is None:
        raise _Unknown
    return field.spark_type


def _literal(value: Any, kind: str) -> Literal | None:
    """Convert a value to the class that literals of the Spark type have."""
    match value:
        case datetime() if value.tzinfo is not None:
            local = value.astimezone(timezone.utc).replace(tzinfo=None)
            return Instant((local - _EPOCH) // timedelta(microseconds=1))
        case datetime():
            return LocalTime((value - _EPOCH) // timedelta(microseconds=1))
        case date():
            return Day(value.toordinal() - _EPOCH_DAY)
        case int() | Decimal() if kind.startswith("decimal("):
            number = Decimal(value)
            if len(number.as_tuple().digits) > _EXACT_DIGITS:
                raise _Unknown
            return number
        case str() if _REPLACEMENT in value:
            raise _Unknown
    if value is None or isinstance(value, Literal):
        return value
    raise _Unknown


def _widened(filter: Filter) -> Filter:
    """Return the filter, or one that is true for every literal that may have been shifted to it."""
    match filter:
        case Comparison(column, operator, Day() | Instant() as literal):
            low, high = _shifted(literal, -1), _shifted(literal, 1)
            if operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL):
                return Comparison(column, Operator.GREATER_OR_EQUAL, low)
            if operator in (Operator.LESS, Operator.LESS_OR_EQUAL):
                return Comparison(column, Operator.LESS_OR_EQUAL, high)
            return _between(column, low, high)
        case In(column, literals):
            dates = [value for value in literals if isinstance(value, Day | Instant)]
            if dates:
                low = min((_shifted(value, -1) for value in dates), key=_count)
                high = max((_shifted(value, 1) for value in dates), key=_count)
                return _between(column, low, high)
    return filter


def _between(column: str, low: Day | Instant, high: Day | Instant) -> Filter:
    return And(
        Comparison(column, Operator.GREATER_OR_EQUAL, low),
        Comparison(column, Operator.LESS_OR_EQUAL, high),
    )


def _shifted(literal: Day | Instant, sign: int) -> Day | Instant:
    """Return the furthest value of a literal before Java's calendar may have shifted it."""
    is_day = isinstance(literal, Day)
    micros = _count(literal) * (_DAY_MICROS if is_day else 1)
    micros += sign * (_SHIFT_SINCE if micros >= _GREGORIAN_SINCE else _SHIFT_BEFORE)
    return Day(micros // _DAY_MICROS) if is_day else Instant(micros)


def _count(literal: Day | Instant) -> int:
    return literal.days if isinstance(literal, Day) else literal.micros
