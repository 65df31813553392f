"""Filters as JSON objects, the form in which the JVM hands them over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from lancestat.lake.filter import (
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
)
from lancestat.lake.snapshot import Field

_OPERATORS = {operator.value: operator for operator in Operator}
_TEXT_OPERATORS = {operator.value.replace("_", ""): operator for operator in TextOperator}

Fields = Mapping[str, Field]


class _Unknown(Exception):  # noqa: N818 - no error: the filter is left out
    """No filter that is known here, or a literal that Python cannot hold."""


def read_filters(objects: Iterable[Mapping[str, Any]], fields: Fields) -> list[Filter]:
    """Filters as values; one that is not known, in any of its parts, is left out.

    Args:
        objects: `{"op": "=", "column": "c", "type": "int", "value": "1"}`, op one of `=`, `<=>`,
            `<`, `<=`, `>`, `>=`; `in` with `values`; `isnull`, `isnotnull`; `startswith`,
            `endswith` and `contains` with `value`; `and`, `or` with `left` and `right`; `not` with
            `child`. `type` is the Spark catalog string of the column. A value is null or a string:
            numbers as Java prints them, a float as the double that equals it, binary in hex, dates
            in days and timestamps in microseconds since 1970-01-01, those without zone as if they
            were UTC.
        fields: The columns of the table by name.
    """
    known = []
    for each in objects:
        try:
            known.append(_filter(each, fields))
        except (_Unknown, RecursionError):
            continue
    return known


def _filter(found: Mapping[str, Any], fields: Fields) -> Filter:
    match found:
        case {"op": "and", "left": left, "right": right}:
            return And(_filter(left, fields), _filter(right, fields))
        case {"op": "or", "left": left, "right": right}:
            return Or(_filter(left, fields), _filter(right, fields))
        case {"op": "not", "child": child}:
            return Not(_filter(child, fields))
        case {"op": "isnull", "column": column}:
            return IsNull(_name(column, fields))
        case {"op": "isnotnull", "column": column}:
            return Not(IsNull(_name(column, fields)))
        case {"op": str(op), "column": column, "value": str(text)} if op in _TEXT_OPERATORS:
            return TextMatch(_name(column, fields), _TEXT_OPERATORS[op], text)
        case {"op": "in", "column": column, "type": type, "values": [*values]}:
            name = _typed(column, type, fields)
            return In(name, tuple(_literal(value, type) for value in values))
        case {"op": str(op), "column": column, "type": type, "value": value} if op in _OPERATORS:
            name = _typed(column, type, fields)
            return Comparison(name, _OPERATORS[op], _literal(value, type))
    raise _Unknown


def _name(column: str, fields: Fields) -> str:
    if column not in fields:
        raise _Unknown
    return column


def _typed(column: str, type: str, fields: Fields) -> str:
    if fields[_name(column, fields)].spark_type != type:
        raise _Unknown
    return column


def _literal(value: object, type: str) -> Literal | None:
    if value is None:
        return None
    read = _READERS.get(type.partition("(")[0])
    if read is None or not isinstance(value, str):
        raise _Unknown
    try:
        return read(value)
    except (ValueError, OverflowError, InvalidOperation):
        raise _Unknown from None


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READERS: Mapping[str, Callable[[str], Literal]] = {
    "boolean": _boolean,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "binary": bytes.fromhex,
    "date": lambda text: Day(int(text)),
    "timestamp": lambda text: Instant(int(text)),
    "timestamp_ntz": lambda text: LocalTime(int(text)),
}
