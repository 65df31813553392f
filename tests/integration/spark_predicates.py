"""Filters as Spark's SQL, with literals of their columns' types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

from typing_extensions import assert_never

from lancestat.lake.filter import And, Comparison, Filter, In, IsNull, Literal, Not, Or, TextMatch

_EPOCH = datetime(1970, 1, 1)


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
            return f"{function}(`{column}`, {_literal(text, 'string')})"
        case In(column, literals):
            among = ", ".join(_literal(each, types[column]) for each in literals)
            return f"`{column}` IN ({among})"
        case Comparison(column, operator, literal):
            return f"`{column}` {operator.value} {_literal(literal, types[column])}"
        case _:
            assert_never(filter)


def _literal(value: Literal | None, type: str) -> str:
    match value:
        case None:
            return f"CAST(NULL AS {type})"
        case float():
            return f"CAST('{_float(value)}' AS {type})"
        case str():
            return "'" + "".join(f"\\U{ord(character):08x}" for character in value) + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if type == "timestamp":
            micros = (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
            return f"timestamp_micros({micros})"
        case datetime() | date():
            return f"CAST('{value.isoformat()}' AS {type})"
        case Decimal():
            return f"CAST('{value:f}' AS {type})"
        case _:
            return f"CAST('{str(value).lower()}' AS {type})"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"
