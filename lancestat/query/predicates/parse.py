"""Reads filters as people write them, in a part of Spark's SQL, without Spark."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

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
    Or,
    TextMatch,
    TextOperator,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lancestat.lake.snapshot import Field


_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<bytes>[xX]'[^']*')
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),-])""",
    re.VERBOSE,
)
# These begin no column, unless it is quoted.
_KEYWORDS = frozenset(("and", "or", "not", "in", "is", "null", "like", "between", "true", "false"))
_EPOCH = datetime(1970, 1, 1)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?([zZ]|[+-]\d\d:\d\d)?)?")


class FilterSyntaxError(ValueError):
    """A text is no filter that can be pushed into a scan; the message completes "it ..."."""


class UnknownColumnError(FilterSyntaxError):
    """A filter names a column that the table does not have."""

    def __init__(self, column: str) -> None:
        super().__init__(f"names an unknown column '{column}'")
        self.column = column


def parse_filter(text: str, fields: Mapping[str, Field]) -> Filter:
    """Parse a filter that compares columns with literals.

    Supports AND, OR, NOT and parentheses over `=`, `<=>`, `<>`, `!=`, `<`, `<=`, `>`, `>=`,
    BETWEEN, IN, IS NULL, LIKE with `%` at its ends only, and boolean columns; literals are numbers,
    'text', true, false, null, X'00', DATE '...' and TIMESTAMP '...'. They mean what they mean in
    Spark.

    Raises:
        UnknownColumnError: it names a column that is not among `fields`.
        FilterSyntaxError: it has another form, or a literal does not suit its column.
    """
    parser = _Parser(_tokens(text), fields)
    filter = parser.disjunction(0)
    parser.end()
    return filter


# A kind and its text: a token of the filter, or a literal in it.
_Token = tuple[str, str]
_END = ("end", "")


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise FilterSyntaxError(f"cannot be read from {_shown(text[at:])} on")
        if match.lastgroup != "blank":
            tokens.append((match.lastgroup, match.group()))
        at = match.end()
    return [*tokens, _END]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:20]}...")


_SIGNS = {
    "=": Operator.EQUAL,
    "==": Operator.EQUAL,
    "<=>": Operator.NULL_SAFE,
    "<": Operator.LESS,
    "<=": Operator.LESS_OR_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_OR_EQUAL,
}


class _Parser:
    """Reads tokens from left to right; every method reads one part of the grammar."""

    def __init__(self, tokens: list[_Token], fields: Mapping[str, Field]) -> None:
        self._tokens = tokens
        self._fields = fields
        self._at = 0

    def disjunction(self, depth: int) -> Filter:
        filter = self._conjunction(depth)
        while self._took("or"):
            filter = Or(filter, self._conjunction(depth))
        return filter

    def end(self) -> None:
        if self._next is not _END:
            raise FilterSyntaxError(f"cannot be read from {_shown(self._next[1])} on")

    def _conjunction(self, depth: int) -> Filter:
        filter = self._negation(depth)
        while self._took("and"):
            filter = And(filter, self._negation(depth))
        return filter

    def _negation(self, depth: int) -> Filter:
        if depth > DEEPEST:
            raise FilterSyntaxError("is nested too deeply")
        if self._took("not"):
            return Not(self._negation(depth + 1))
        if self._took("("):
            filter = self.disjunction(depth + 1)
            self._expect(")")
            return filter
        return self._test()

    def _test(self) -> Filter:
        from pyarrow import types

        field = self._column()
        for sign, operator in _SIGNS.items():
            if self._took(sign):
                return _compared(field, operator, self._value())
        if self._took("<>") or self._took("!="):
            return Not(_compared(field, Operator.EQUAL, self._value()))
        is_nullness = self._took("is")
        is_negated = self._took("not")
        test: Filter | None = None
        if is_nullness:
            self._expect("null")
            test = IsNull(field.name)
        elif self._took("in"):
            test = self._membership(field)
        elif self._took("between"):
            low = _compared(field, Operator.GREATER_OR_EQUAL, self._value())
            self._expect("and")
            test = And(low, _compared(field, Operator.LESS_OR_EQUAL, self._value()))
        elif self._took("like"):
            test = _alike(field, self._value())
        elif not is_negated and types.is_boolean(field.type):
            test = Comparison(field.name, Operator.EQUAL, True)
        if test is None:
            raise self._unexpected("a comparison")
        return Not(test) if is_negated else test

    def _membership(self, field: Field) -> Filter:
        self._expect("(")
        values = [self._value()]
        while self._took(","):
            values.append(self._value())
        self._expect(")")
        if _narrow(field.type):
            return reduce(Or, (_compared(field, Operator.EQUAL, value) for value in values))
        literals = (None if value is None else _literal(field, value) for value in values)
        return In(field.name, tuple(literals))

    def _column(self) -> Field:
        kind, name = self._next
        if kind == "quoted":
            name = name[1:-1].replace("``", "`")
        elif kind != "word" or name.lower() in _KEYWORDS:
            raise self._unexpected("the name of a column")
        self._at += 1
        if name not in self._fields:
            raise UnknownColumnError(name)
        return self._fields[name]

    def _value(self) -> _Token | None:
        """Return a literal: its kind, and what it says; None for null."""
        is_negative = self._took("-")
        kind, text = self._next
        if is_negative and kind != "number":
            raise FilterSyntaxError("has a minus that no number follows")
        self._at += 1
        word = text.lower() if kind == "word" else ""
        if kind == "number":
            return kind, f"{'-' if is_negative else ''}{text}"
        if kind == "text":
            return kind, _unquoted(text)
        if kind == "bytes":
            return kind, text[2:-1]
        if word == "null":
            return None
        if word in ("true", "false"):
            return "boolean", word
        if word in ("date", "timestamp", "timestamp_ntz") and self._next[0] == "text":
            self._at += 1
            return word, _unquoted(self._tokens[self._at - 1][1])
        self._at -= 1
        raise self._unexpected("a literal")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _took(self, word: str) -> bool:
        kind, text = self._next
        if kind not in ("word", "sign") or text.lower() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise self._unexpected(f"'{word}'")

    def _unexpected(self, expected: str) -> FilterSyntaxError:
        seen = "its end" if self._next is _END else _shown(self._next[1])
        return FilterSyntaxError(f"has {seen} where {expected} is expected")


def _unquoted(text: str) -> str:
    if "\\" in text:
        raise FilterSyntaxError("has a backslash in a text, whose meaning depends on settings")
    return text[1:-1].replace("''", "'")


def _compared(field: Field, operator: Operator, value: _Token | None) -> Filter:
    if value is None:
        if operator is Operator.NULL_SAFE:
            return Comparison(field.name, operator, None)
        # Unknown for every row, as a membership in nothing but null is.
        return In(field.name, (None,))
    literal = _literal(field, value)
    dtype = _narrow(field.type)
    if dtype is None or not isinstance(literal, float):
        return Comparison(field.name, operator, literal)
    return _narrowed(field.name, operator, literal, dtype)


def _narrowed(column: str, operator: Operator, literal: float, dtype: str) -> Filter:
    """Compare a narrow float, which Spark widens to double, with a double between two of them."""
    import numpy as np

    kind = np.dtype(dtype).type
    with np.errstate(over="ignore"):
        below = kind(literal)
    if float(below) == literal or math.isnan(literal):
        return Comparison(column, operator, literal)
    if float(below) > literal:
        below = np.nextafter(below, kind(-np.inf))
    at_most = Comparison(column, Operator.LESS_OR_EQUAL, float(below))
    above = Comparison(column, Operator.GREATER, float(below))
    if operator in (Operator.LESS, Operator.LESS_OR_EQUAL):
        return at_most
    if operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL):
        return above
    never = And(at_most, above)
    return And(never, Not(IsNull(column))) if operator is Operator.NULL_SAFE else never


def _narrow(type: pa.DataType) -> str | None:
    """Return NumPy's name for a float type that is narrower than double; None for other types."""
    from pyarrow import types

    if types.is_float32(type):
        return "f4"
    return "f2" if types.is_float16(type) else None


def _alike(field: Field, value: _Token | None) -> Filter:
    if value is None or value[0] != "text" or not isinstance(_literal(field, value), str):
        raise FilterSyntaxError("has LIKE without a text")
    pattern = value[1]
    inner = pattern.strip("%")
    if "%" in inner or "_" in inner or not inner:
        raise FilterSyntaxError(
            f"has LIKE {_shown(pattern)}, but '%' may only be at the ends of a text without '_'"
        )
    match pattern.startswith("%"), pattern.endswith("%"):
        case True, True:
            return TextMatch(field.name, TextOperator.CONTAINS, inner)
        case True, False:
            return TextMatch(field.name, TextOperator.ENDS_WITH, inner)
        case False, True:
            return TextMatch(field.name, TextOperator.STARTS_WITH, inner)
    return Comparison(field.name, Operator.EQUAL, inner)


def _literal(field: Field, value: _Token) -> Literal:
    try:
        literal = _converted(field.type, value)
    except (ValueError, ArithmeticError):
        literal = None
    if literal is None:
        kind, text = value
        shown = text if kind in ("number", "boolean") else f"'{text}'"
        raise FilterSyntaxError(
            f"compares '{field.name}', which is of type {field.type}, with {shown}"
        )
    return literal


def _converted(type: pa.DataType, value: _Token) -> Literal | None:
    from pyarrow import types

    kind, text = value
    if types.is_dictionary(type):
        type = type.value_type
    if types.is_boolean(type):
        return text == "true" if kind == "boolean" else None
    if types.is_integer(type) and kind == "number":
        number = Decimal(text)
        return int(number) if number == number.to_integral_value() else None
    if types.is_floating(type) and kind == "number":
        return float(text)
    if types.is_decimal(type) and kind == "number":
        return Decimal(text)
    if (types.is_string(type) or types.is_large_string(type)) and kind == "text":
        return text
    if (types.is_binary(type) or types.is_fixed_size_binary(type)) and kind == "bytes":
        return bytes.fromhex(text)
    if types.is_date32(type) and kind in ("date", "text"):
        return Day((date.fromisoformat(text) - _EPOCH.date()).days)
    if types.is_timestamp(type) and kind in ("timestamp", "timestamp_ntz", "text"):
        return _moment(type, text)
    return None


def _moment(type: pa.DataType, text: str) -> Literal | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, time, part, zone = match.groups()
    zone = "+00:00" if zone in ("Z", "z") else zone
    # Python 3.10 reads three or six digits, and no Z.
    fraction = part.ljust(7, "0") if part else ""
    read = datetime.fromisoformat(f"{day}T{time or '00:00:00'}{fraction}{zone or ''}")
    if type.tz is None:
        return LocalTime(_micros(read)) if zone is None else None
    if zone is None:
        # What time that is depends on the session.
        return None
    return Instant(_micros(read.astimezone(timezone.utc).replace(tzinfo=None)))


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
