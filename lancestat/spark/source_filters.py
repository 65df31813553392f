"""The filters that Spark hands to a Python data source, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from lancestat.lake.filter import (
    Comparison,
    Filter,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    TextMatch,
    TextOperator,
)
from lancestat.lake.filter_sql import exact_conjuncts
from lancestat.lake.snapshot import Field

_OPERATORS: Mapping[type[spark.Filter], Operator] = {
    spark.EqualTo: Operator.EQUAL,
    spark.EqualNullSafe: Operator.NULL_SAFE,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.LESS_OR_EQUAL,
    spark.GreaterThan: Operator.GREATER,
    spark.GreaterThanOrEqual: Operator.GREATER_OR_EQUAL,
}
_TEXT_OPERATORS: Mapping[type[spark.Filter], TextOperator] = {
    spark.StringStartsWith: TextOperator.STARTS_WITH,
    spark.StringEndsWith: TextOperator.ENDS_WITH,
    spark.StringContains: TextOperator.CONTAINS,
}
# PySpark multiplies decimals in Python's default context: longer ones arrive rounded.
_EXACT_DIGITS = 27


class _Unknown(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """No filter that is known here."""


def exact_filters(
    filters: Iterable[spark.Filter], fields: Mapping[str, Field]
) -> tuple[str | None, list[spark.Filter]]:
    """What of Spark's filters Lance can say exactly, and the filters that stay with Spark.

    Args:
        filters: A conjunction.
        fields: The columns of the table by name.
    """
    taken: list[Filter] = []
    left: list[spark.Filter] = []
    for each in filters:
        try:
            known = _filter(each, fields)
        except _Unknown:
            left.append(each)
            continue
        if exact_conjuncts([known], fields)[1]:
            left.append(each)
        else:
            taken.append(known)
    return exact_conjuncts(taken, fields)[0], left


def _filter(found: spark.Filter, fields: Mapping[str, Field]) -> Filter:
    match found:
        case spark.Not(child):
            return Not(_filter(child, fields))
        case spark.IsNull((column,)):
            return IsNull(column)
        case spark.IsNotNull((column,)):
            return Not(IsNull(column))
        case _ if type(found) in _TEXT_OPERATORS and len(found.attribute) == 1:
            (column,) = found.attribute
            return TextMatch(column, _TEXT_OPERATORS[type(found)], found.value)
        case spark.In((column,), values):
            kind = _type(column, fields)
            return In(column, tuple(_literal(value, kind) for value in values))
        case _ if type(found) in _OPERATORS and len(found.attribute) == 1:
            (column,) = found.attribute
            literal = _literal(found.value, _type(column, fields))
            return Comparison(column, _OPERATORS[type(found)], literal)
    raise _Unknown


def _type(column: str, fields: Mapping[str, Field]) -> str:
    found = fields.get(column)
    if found is None or found.spark_type is None:
        raise _Unknown
    return found.spark_type


def _literal(value: Any, kind: str) -> Literal | None:
    """A value in the class that literals of the Spark type have."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    if kind.startswith("decimal(") and isinstance(value, (int, Decimal)):
        number = Decimal(value)
        if len(number.as_tuple().digits) > _EXACT_DIGITS:
            raise _Unknown
        return number
    if value is None or isinstance(value, Literal):
        return value
    raise _Unknown
