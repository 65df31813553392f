"""Filters as Spark's SQL, with literals of their columns' types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
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
    Or,
    TextMatch,
)


def spark_predicate(filter: Filter, types: Mapping[str, str]) -> str:
    """The filter as Spark's SQL; `types` are the catalog strings of the columns."""
    match filter:
        case And(left, right):
            return f"({spark_predicate(left, types)} AND {spark_predicate(right, types)})"
        case Or(left, right):
            return f"({spark_predicate(left, types)} OR {spark_predicate(right, types)})"
        case Not(operand):
            return f"(NOT {spark_predicate(operand, types)})"
        case IsNull(column):
            return f"`{column}` IS NULL"
        case TextMatch(column, operator, text):
            function = operator.value.replace("_", "")
            return f"{function}(`{column}`, {spark_literal(text, 'string')})"
        case In(column, literals):
            among = ", ".join(spark_literal(literal, types[column]) for literal in literals)
            return f"`{column}` IN ({among})"
        case Comparison(column, operator, literal):
            return f"`{column}` {operator.value} {spark_literal(literal, types[column])}"
        case _:
            assert_never(filter)


def spark_literal(value: Literal | None, type: str) -> str:
    """The literal as a foldable expression of a type."""
    match value:
        case None:
            return f"CAST(NULL AS {type})"
        case float():
            return f"CAST('{_float(value)}' AS {type})"
        case str():
            return "'" + "".join(f"\\U{ord(character):08x}" for character in value) + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case Day(days):
            return f"date_from_unix_date({days})"
        case Instant(micros):
            return f"timestamp_micros(CAST('{micros}' AS BIGINT))"
        case LocalTime(micros) if micros == -(2**63):
            # Literals that Spark cannot parse; in a session whose zone is UTC.
            return f"CAST(timestamp_micros(CAST('{micros}' AS BIGINT)) AS TIMESTAMP_NTZ)"
        case LocalTime(micros):
            seconds, rest = divmod(micros, 1_000_000)
            return f"TIMESTAMP_NTZ'{np.datetime64(seconds, 's')}.{rest:06}'"
        case Decimal():
            return f"CAST('{value:f}' AS {type})"
        case _:
            return f"CAST('{str(value).lower()}' AS {type})"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"
