"""Row filters as values, as JSON, as text, and as people write them in a part of Spark's SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

from lancestat.formats import StringEnum, string_literal
from lancestat.lake.snapshot import Field

if TYPE_CHECKING:
    import pyarrow as pa


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
            `endswith` and `contains` with `value`; `and`, `or` with a list of `operands`; `not`
            with `child`; these three nested at most `DEEPEST` times. `type` is the Spark catalog
            string of the column. A value is null or a string: numbers as Java prints them, a float
            as the equal double, binary in hex, dates in days and timestamps in microseconds since
            1970-01-01, those without zone as if they were UTC.
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
            literals = tuple(_literal(value, type) for value in values)
            return In(_name(column, fields, type), literals)
        case {"op": str(op), "column": column, "type": type, "value": value} if op in _OPERATORS:
            name = _name(column, fields, type)
            return Comparison(name, _OPERATORS[op], _literal(value, type))
    raise _Unknown


def _chain(kind: type[And] | type[Or], parts: Sequence[Filter]) -> Filter:
    # In halves: a chain of a thousand is ten levels deep.
    while len(parts) > 1:
        pairs = (parts[at : at + 2] for at in range(0, len(parts), 2))
        parts = [kind(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _name(column: str, fields: Fields, type: str | None = None) -> str:
    if column not in fields or (type is not None and fields[column].spark_type != type):
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


def parse_filter(text: str, fields: Fields) -> Filter:
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

    def __init__(self, tokens: list[_Token], fields: Fields) -> None:
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
        literals = (None if value is None else _typed_literal(field, value) for value in values)
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
    literal = _typed_literal(field, value)
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
    if value is None or value[0] != "text" or not isinstance(_typed_literal(field, value), str):
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


def _typed_literal(field: Field, value: _Token) -> Literal:
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
