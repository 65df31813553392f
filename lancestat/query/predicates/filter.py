"""Row filters as values, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

from lancestat.formats import StringEnum, string_literal
from lancestat.lake.snapshot import Field


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


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A time of day, in microseconds since midnight."""

    micros: int


Literal = bool | int | float | Decimal | str | bytes | Day | Instant | LocalTime | TimeOfDay


class Operator(StringEnum):
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


class TextOperator(StringEnum):
    """The position of a text in a string."""

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


@dataclass(frozen=True, slots=True)
class Unread:
    """A filter of which nothing is known: it may be true, false or null for any row."""


Leaf = Comparison | In | IsNull | TextMatch
Filter = Leaf | Not | And | Or | Unread

# Lance parses no filter that is nested much deeper; chains of AND or of OR are one level.
DEEPEST = 30


def flattened(filter: Filter, kind: type[And] | type[Or]) -> Iterator[Filter]:
    """Yield the operands of a chain of AND or of OR, from left to right."""
    # Spark nests long chains to one side, deeper than Python recurses.
    waiting = [filter]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kind):
            waiting += [part.right, part.left]
        else:
            yield part


def leaves(filter: Filter) -> Iterator[Leaf]:
    """Yield the tests of single columns that a filter is made of."""
    waiting = [filter]
    while waiting:
        part = waiting.pop()
        match part:
            case Not(operand):
                waiting.append(operand)
            case And(left, right) | Or(left, right):
                waiting += [left, right]
            case Unread():
                pass
            case _:
                yield part


def columns_of(filter: Filter) -> frozenset[str]:
    """Return the columns that a filter reads, as far as they are known."""
    return frozenset(leaf.column for leaf in leaves(filter))


_OPERATORS = {operator.value: operator for operator in Operator}
_TEXT_OPERATORS = {operator.value.replace("_", ""): operator for operator in TextOperator}

Fields = Mapping[str, Field]


class _Unknown(Exception):  # noqa: N818 - no error: the filter is `Unread`
    """No filter that is known here, or a literal that Python cannot hold."""


def read_filters(objects: Iterable[Mapping[str, Any]], fields: Fields) -> list[Filter]:
    """Convert each filter to a value: `Unread` where a part of it is not known.

    Args:
        objects: `{"op": "=", "column": "c", "type": "int", "value": "1"}`, op one of `=`, `<=>`,
            `<`, `<=`, `>`, `>=`; `in` with `values`; `isnull`, `isnotnull`; `startswith`,
                `endswith` and
            `contains` with `value`; `and`, `or` with a list of `operands`; `not` with `child`;
                these
            three nested at most `DEEPEST` times. `type` is the Spark catalog string of the column.
                A
            value is null or a string: numbers as Java prints them, a float as the equal double,
            binary in hex, dates in days and timestamps in microseconds since 1970-01-01, those
                without
            zone as if they were UTC.
        fields: The columns of the table by name.
    """
    filters: list[Filter] = []
    for filter_object in objects:
        try:
            filters.append(_filter(filter_object, fields, 0))
        except _Unknown:
            filters.append(Unread())
    return filters


def _filter(filter_object: Mapping[str, Any], fields: Fields, depth: int) -> Filter:
    if depth > DEEPEST:
        raise _Unknown
    match filter_object:
        case {"op": "and" | "or" as op, "operands": [_, *_] as operands}:
            parts = [_filter(operand, fields, depth + 1) for operand in operands]
            return _chain(And if op == "and" else Or, parts)
        case {"op": "not", "child": child}:
            return Not(_filter(child, fields, depth + 1))
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


def _chain(kind: type[And] | type[Or], parts: Sequence[Filter]) -> Filter:
    # In halves: a chain of a thousand is ten levels deep.
    while len(parts) > 1:
        pairs = (parts[at : at + 2] for at in range(0, len(parts), 2))
        parts = [kind(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


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


def _time_of_day(text: str) -> TimeOfDay:
    # Spark counts nanoseconds, whatever the precision.
    micros, rest = divmod(int(text), 1_000)
    if rest:
        raise ValueError(text)
    return TimeOfDay(micros)


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
    "time": _time_of_day,
}


_LITERALS_SHOWN = 5
_LONGEST_TEXT = 40
_OPERANDS_SHOWN = 20
_DEPTH_SHOWN = 20


def filter_text(filter: Filter, depth: int = 0) -> str:
    """Return the filter much as in SQL; long lists, chains and texts and deep nesting are cut."""
    if depth > _DEPTH_SHOWN:
        return "..."
    match filter:
        case Not(IsNull(column)):
            return f"{column} is not null"
        case Not(operand):
            return f"not ({filter_text(operand, depth + 1)})"
        case IsNull(column):
            return f"{column} is null"
        case TextMatch(column, operator, text):
            return f"{column} {operator.value.replace('_', ' ')} {_literal_text(text)}"
        case Comparison(column, operator, literal):
            return f"{column} {operator.value} {_literal_text(literal)}"
        case In(column, literals):
            more = ", ..." if len(literals) > _LITERALS_SHOWN else ""
            listed = ", ".join(_literal_text(literal) for literal in literals[:_LITERALS_SHOWN])
            return f"{column} in ({listed}{more})"
        case And() | Or():
            operands = islice(flattened(filter, type(filter)), _OPERANDS_SHOWN + 1)
            parts = [filter_text(operand, depth + 1) for operand in operands]
            if len(parts) > _OPERANDS_SHOWN:
                parts[-1] = "..."
            return f"({(' and ' if isinstance(filter, And) else ' or ').join(parts)})"
        case Unread():
            return "a filter that is not known"


def _literal_text(literal: Literal | None) -> str:
    match literal:
        case None:
            return "null"
        case bool():
            return str(literal).lower()
        case str():
            text = literal if len(literal) <= _LONGEST_TEXT else f"{literal[:_LONGEST_TEXT]}..."
            return string_literal(text)
        case bytes():
            return f"0x{literal[:_LONGEST_TEXT].hex()}"
        case Day(days):
            return _calendar_text(days, "D")
        case Instant(micros):
            return f"{_time_text(micros)}+00:00"
        case LocalTime(micros):
            return _time_text(micros)
        case TimeOfDay(micros):
            return _time_text(micros).partition(" ")[2]
    return str(literal)


def _time_text(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return _calendar_text(seconds, "s") + (f".{rest:06}" if rest else "")


def _calendar_text(count: int, unit: str) -> str:
    # Of any year; Python's own dates end with the years 1 and 9999.
    import numpy as np

    return str(np.array(count).astype(f"datetime64[{unit}]")).replace("T", " ")
