"""Row filters in words, for people: short, not exact."""

from __future__ import annotations

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
    Or,
    TextMatch,
)

_LITERALS_SHOWN = 5
_LONGEST_TEXT = 40
_DEPTH_SHOWN = 20


def filter_text(filter: Filter, depth: int = 0) -> str:
    """The filter much as SQL has it; long lists, long text and deep nesting are cut short."""
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
            return f"{column} {operator.value.replace('_', ' ')} {_literal(text)}"
        case Comparison(column, operator, literal):
            return f"{column} {operator.value} {_literal(literal)}"
        case In(column, literals):
            more = ", ..." if len(literals) > _LITERALS_SHOWN else ""
            shown = ", ".join(_literal(each) for each in literals[:_LITERALS_SHOWN])
            return f"{column} in ({shown}{more})"
        case And(left, right):
            return f"({filter_text(left, depth + 1)} and {filter_text(right, depth + 1)})"
        case Or(left, right):
            return f"({filter_text(left, depth + 1)} or {filter_text(right, depth + 1)})"


def _literal(literal: Literal | None) -> str:
    match literal:
        case None:
            return "null"
        case bool():
            return str(literal).lower()
        case str():
            text = literal if len(literal) <= _LONGEST_TEXT else f"{literal[:_LONGEST_TEXT]}..."
            return "'" + text.replace("'", "''") + "'"
        case bytes():
            return f"0x{literal[:_LONGEST_TEXT].hex()}"
        case Day(days):
            return _calendar_text(days, "D")
        case Instant(micros):
            return f"{_time_text(micros)}+00:00"
        case LocalTime(micros):
            return _time_text(micros)
    return str(literal)


def _time_text(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return _calendar_text(seconds, "s") + (f".{rest:06}" if rest else "")


def _calendar_text(count: int, unit: str) -> str:
    # Of any year; Python's own dates end with the years 1 and 9999.
    import numpy as np

    return str(np.array(count).astype(f"datetime64[{unit}]")).replace("T", " ")
