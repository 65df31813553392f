"""Filters in Lance's SQL that select exactly the rows that Spark would, or none at all.

An expression is built for where a filter is true and, under a negation, for where it is false.
Unknown counts as not selected in both, so Lance needs no three-valued logic. Lance casts a literal
to the column's type before comparing, and truncates: so literals are written in the column's own
unit, and what lies between two of its values is rounded here, in the direction that keeps the
meaning.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lancestat.formats import string_literal
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
    Unread,
    flattened,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lancestat.lake.snapshot import Field


# Lance parses every filter anew for each fragment, and no deeper than fifty parentheses.
_LITERALS = 1_000
_SEPARATE_MEMBERS = 50
# Names that Lance means something else by.
_SYSTEM_NAMES = ("_row", "_distance", "_score", "_relevance", "_fragment", "_frag")


class _Inexact(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """Lance cannot express this part exactly."""


def to_lance(filter: Filter, fields: Mapping[str, Field]) -> str | None:
    """Return a filter in Lance's SQL that is true for exactly the rows where Spark's is true.

    It is false or null for all other rows. `fields` are the columns of the table by name, and
    literals have their Spark types. None where there is no exact one: for types that Lance compares
    differently, literals that the column cannot hold exactly, and filters that are too large to be
    parsed for every fragment.
    """
    if _size(filter) > _LITERALS:
        return None
    try:
        return _expression(filter, True, fields)
    except _Inexact:
        return None


def exact_conjuncts(
    filters: Sequence[Filter], fields: Mapping[str, Field]
) -> tuple[str | None, list[Filter]]:
    """Split a conjunction into an expression of what Lance applies exactly, and the other filters.

    Nested conjunctions are split, too. The expression is None where Lance applies nothing.
    """
    expressions: list[str] = []
    left: list[Filter] = []
    for conjunct in (part for filter in filters for part in flattened(filter, And)):
        expression = to_lance(conjunct, fields)
        if expression is None:
            left.append(conjunct)
        else:
            expressions.append(expression)
    joined = _joined(expressions, " AND ") if expressions else None
    return joined, left


def _size(filter: Filter, depth: int = 0) -> int:
    """Return the number of literals; another leaf counts as one, and too deep is too many."""
    if depth > DEEPEST:
        return _LITERALS + 1
    match filter:
        case Not(operand):
            return _size(operand, depth + 1)
        case And() | Or():
            return sum(_size(part, depth + 1) for part in flattened(filter, type(filter)))
        case In(_, literals):
            return len(literals)
    return 1


def _expression(filter: Filter, outcome: bool, fields: Mapping[str, Field]) -> str:
    match filter:
        case Not(operand):
            return _expression(operand, not outcome, fields)
        case And() | Or():
            parts = flattened(filter, type(filter))
            both = isinstance(filter, And) == outcome
            return _joined(
                [_expression(part, outcome, fields) for part in parts], " AND " if both else " OR "
            )
        case Comparison(column, Operator.NULL_SAFE, None):
            return _nullness(_column(column, fields), outcome)
        case Comparison(column, Operator.NULL_SAFE, literal):
            equal = _compared(_column(column, fields), "=" if outcome else "<>", literal)
            if outcome:
                return equal
            return f"({equal} OR {_nullness(_column(column, fields), True)})"
        case Comparison(column, comparison, literal):
            sign = comparison.value if outcome else OPPOSITE[comparison.value]
            return _compared(_column(column, fields), sign, literal)
        case In(column, literals):
            return _membership(_column(column, fields), literals, outcome)
        case IsNull(column):
            return _nullness(_column(column, fields), outcome)
        case TextMatch():
            return _matched(_column(filter.column, fields), filter, outcome)
        case Unread():
            raise _Inexact
        case _:
            assert_never(filter)


def _joined(parts: Sequence[str], conjunction: str) -> str:
    return parts[0] if len(parts) == 1 else f"({conjunction.join(parts)})"


# A column as Lance spells it, and how its values compare.
_Column = tuple[str, "Domain"]


def _column(name: str, fields: Mapping[str, Field]) -> _Column:
    field = fields.get(name)
    if field is None or not name or "`" in name or name.lower().startswith(_SYSTEM_NAMES):
        raise _Inexact
    column_domain = domain(field.type)
    if column_domain is None:
        raise _Inexact
    return f"`{name}`", column_domain


def _compared(column: _Column, sign: str, literal: Literal | None) -> str:
    if literal is None:
        return NEVER
    name, column_domain = column
    return _exact(column_domain.compare(name, sign, literal))


def _membership(column: _Column, literals: Sequence[Literal | None], outcome: bool) -> str:
    if not literals:
        # Whether null is in nothing depends on Spark's configuration.
        raise _Inexact
    if None in literals and not outcome:
        return NEVER
    name, column_domain = column
    sign, conjunction, among = ("=", " OR ", "IN") if outcome else ("<>", " AND ", "NOT IN")
    members: dict[str, None] = {}
    parts: dict[str, None] = {}
    for literal in literals:
        member = None if literal is None else column_domain.member(literal)
        if member is None:
            parts[_compared(column, sign, literal)] = None
        else:
            members[member] = None
    neutral = NEVER if outcome else f"{name} IS NOT NULL"
    parts.pop(neutral, None)
    if len(parts) > _SEPARATE_MEMBERS:
        raise _Inexact
    if members:
        parts[f"{name} {among} ({', '.join(members)})"] = None
    return _joined(list(parts) or [neutral], conjunction)


def _nullness(column: _Column, outcome: bool) -> str:
    return f"{column[0]} IS {'' if outcome else 'NOT '}NULL"


def _matched(column: _Column, match: TextMatch, outcome: bool) -> str:
    name, column_domain = column
    if not isinstance(column_domain, Strings):
        raise _Inexact
    # Lance's functions have the operators' names.
    test = f"{match.operator.value}({name}, {_exact(exact_string_literal(match.text))})"
    return test if outcome else f"NOT {test}"


def _exact(expression: str | None) -> str:
    if expression is None:
        raise _Inexact
    return expression


NEVER = "false"

# The negation of each comparison, over values that are not null.
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

_LARGEST_LONG = 2**63 - 1
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class Domain:
    """The comparisons of a column's type; this base class supports null checks only."""

    __slots__ = ()

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        """Return a boolean expression over the quoted column, None where none is exact."""
        member = self.member(literal)
        return None if member is None else f"{column} {sign} {member}"

    def member(self, literal: Literal) -> str | None:
        """Return the literal as a member of an IN list, None where that is not equality."""
        return None


def domain(arrow_type: pa.DataType) -> Domain | None:
    """Return the domain of an Arrow type, None where even nulls are not reliable."""
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return None
    if types.is_dictionary(arrow_type):
        return Strings() if types.is_string(arrow_type.value_type) else None
    if types.is_integer(arrow_type):
        return _integers(arrow_type)
    if types.is_floating(arrow_type):
        return _Floats({16: "<e", 32: "<f", 64: "<d"}[arrow_type.bit_width])
    if types.is_decimal128(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision:
        return _decimals(arrow_type.precision, arrow_type.scale)
    if types.is_timestamp(arrow_type):
        return _timestamps(arrow_type.unit, arrow_type.tz)
    if types.is_fixed_size_binary(arrow_type):
        return _Bytes(arrow_type.byte_width)
    return next((known for holds, known in _simple() if holds(arrow_type)), None)


@cache
def _simple() -> tuple[tuple[Callable[[pa.DataType], bool], Domain], ...]:
    from pyarrow import types

    days = _Discrete(
        -(2**31),
        2**31 - 1,
        lambda literal: Fraction(literal.days) if isinstance(literal, Day) else None,
        lambda number: f"arrow_cast({number}, 'Date32')",
    )
    booleans = _Discrete(
        0,
        1,
        lambda literal: Fraction(literal) if isinstance(literal, bool) else None,
        lambda number: str(bool(number)).lower(),
    )
    return (
        (types.is_boolean, booleans),
        (types.is_date32, days),
        (types.is_string, Strings()),
        (types.is_large_string, Strings()),
        # Large binary may be a blob, which filters see as a structure of where its bytes are.
        (types.is_binary, _Bytes(None)),
        (types.is_date64, Domain()),
        (types.is_time, Domain()),
        (types.is_duration, Domain()),
    )


def exact_string_literal(text: str) -> str | None:
    """Return a string literal of SQL; None for text that has no UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return None
    return string_literal(text)


@dataclass(frozen=True, slots=True)
class _Discrete(Domain):
    """Types whose values are integers of some unit, from `low` to `high`.

    `units` converts a literal to that unit, exactly, None for a literal of another type; `spell`
    writes an integer of the unit in Lance's SQL.
    """

    low: int
    high: int
    units: Callable[[Literal], Fraction | None]
    spell: Callable[[int], str]

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        units = self.units(literal)
        return None if units is None else self.against(column, sign, units)

    def against(self, column: str, sign: str, units: Fraction) -> str:
        """Return the comparison with any number of units, also between or beyond the values."""
        always = f"{column} IS NOT NULL"
        if sign in ("=", "<>"):
            if units.denominator != 1 or not self.low <= units <= self.high:
                return NEVER if sign == "=" else always
            return f"{column} {sign} {self.spell(int(units))}"
        if sign in (">", "<="):
            bound = math.floor(units)
            if not self.low <= bound < self.high:
                return always if (bound < self.low) == (sign == ">") else NEVER
        else:
            bound = math.ceil(units)
            if not self.low < bound <= self.high:
                return always if (bound > self.high) == (sign == "<") else NEVER
        return f"{column} {sign} {self.spell(bound)}"

    def member(self, literal: Literal) -> str | None:
        units = self.units(literal)
        if units is None or units.denominator != 1 or not self.low <= units <= self.high:
            return None
        return self.spell(int(units))


def _integers(arrow_type: pa.DataType) -> _Discrete:
    import pyarrow as pa

    width = arrow_type.bit_width
    if pa.types.is_unsigned_integer(arrow_type):
        return _Discrete(0, 2**width - 1, _whole, str)
    return _Discrete(-(2 ** (width - 1)), 2 ** (width - 1) - 1, _whole, _long)


def _whole(literal: Literal) -> Fraction | None:
    if isinstance(literal, bool) or not isinstance(literal, int):
        return None
    return Fraction(literal)


def _long(value: int) -> str:
    # Lance reads the digits before the sign, and as a float when they do not fit.
    return str(value) if value > -_LARGEST_LONG else f"CAST('{value}' AS BIGINT)"


def _decimals(precision: int, scale: int) -> _Discrete:
    def units(literal: Literal) -> Fraction | None:
        if isinstance(literal, Decimal) and literal.is_finite():
            return Fraction(literal) * Fraction(10) ** scale
        return None

    def spell(unscaled: int) -> str:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
        sign = "-" if unscaled < 0 else ""
        return f"CAST('{sign}{whole}.{part or '0'}' AS DECIMAL({precision}, {scale}))"

    return _Discrete(1 - 10**precision, 10**precision - 1, units, spell)


def _timestamps(unit: str, zone: str | None) -> Domain:
    def units(literal: Literal) -> Fraction | None:
        if not isinstance(literal, LocalTime if zone is None else Instant):
            return None
        return Fraction(literal.micros, _MICROS.get(unit, 1))

    # A cast from text would take the column's zone for the literal's; an instant has no zone.
    name = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[unit]
    zone_text = "None" if zone is None else 'Some("UTC")'
    discrete = _Discrete(
        -_LARGEST_LONG - 1,
        _LARGEST_LONG,
        units,
        lambda n: f"arrow_cast({_long(n)}, 'Timestamp({name}, {zone_text})')",
    )
    return _Nanoseconds(discrete) if unit == "ns" else discrete


@dataclass(frozen=True, slots=True)
class _Nanoseconds(Domain):
    """Timestamps that Spark sees floored to microseconds, each of which is a range of them."""

    nanos: _Discrete

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        micros = self.nanos.units(literal)
        if micros is None:
            return None
        first, following = micros * 1_000, (micros + 1) * 1_000
        if sign in ("=", "<>"):
            low, high, both = (">=", "<", "AND") if sign == "=" else ("<", ">=", "OR")
            from_first = self.nanos.against(column, low, first)
            return f"({from_first} {both} {self.nanos.against(column, high, following)})"
        if sign in ("<", ">="):
            return self.nanos.against(column, sign, first)
        return self.nanos.against(column, "<" if sign == "<=" else ">=", following)


@dataclass(frozen=True, slots=True)
class _Floats(Domain):
    """Spark has one NaN, equal to itself and above all else; Lance orders them by sign, and all
    others between. `layout` is the type's format in `struct`.
    """

    layout: str

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        if not isinstance(literal, float) or not self._fits(literal):
            return None
        nan = f"isnan({column})"
        if math.isnan(literal):
            return {
                "=": nan,
                ">=": nan,
                "<>": f"NOT {nan}",
                "<": f"NOT {nan}",
                "<=": f"{column} IS NOT NULL",
                ">": NEVER,
            }[sign]
        comparison = f"{column} {sign} {_float(literal)}"
        if sign in ("<", "<="):
            return f"({comparison} AND NOT {nan})"
        return f"({comparison} OR {nan})" if sign in (">", ">=", "<>") else comparison

    def member(self, literal: Literal) -> str | None:
        if not isinstance(literal, float) or math.isnan(literal) or not self._fits(literal):
            return None
        return _float(literal)

    def _fits(self, literal: float) -> bool:
        if not math.isfinite(literal):
            return True
        try:
            (stored,) = struct.unpack(self.layout, struct.pack(self.layout, literal))
        except OverflowError:
            return False
        return bool(stored == literal)


def _float(value: float) -> str:
    if math.isinf(value):
        return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)"
    # Minus zero equals zero in SQL, but not among the members of a list.
    return repr(value + 0.0)


@dataclass(frozen=True, slots=True)
class Strings(Domain):
    """Compared byte by byte in UTF-8, as in Spark."""

    def member(self, literal: Literal) -> str | None:
        return exact_string_literal(literal) if isinstance(literal, str) else None


@dataclass(frozen=True, slots=True)
class _Bytes(Domain):
    """Compared byte by byte, unsigned; `width` is that of all values, None where it varies."""

    width: int | None

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        if isinstance(literal, bytes) and sign in ("=", "<>") and not self._fits(literal):
            return NEVER if sign == "=" else f"{column} IS NOT NULL"
        return Domain.compare(self, column, sign, literal)

    def member(self, literal: Literal) -> str | None:
        if not isinstance(literal, bytes) or not self._fits(literal):
            return None
        return f"X'{literal.hex()}'"

    def _fits(self, literal: bytes) -> bool:
        return self.width is None or len(literal) == self.width
