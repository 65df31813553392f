"""Comparisons of a column with literals in Lance's SQL, true for exactly the rows Spark means.

Lance brings a literal to the column's type before it compares, and cuts off what does not fit: so
literals are spelled in the column's own unit, and what lies between two of its values is rounded
here, to the side that keeps the meaning. Nothing here is ever true for a null.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from lancestat.query.predicates.filter import Day, Instant, Literal, LocalTime, string_literal

if TYPE_CHECKING:
    import pyarrow as pa

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
        return None

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

    days = _Discrete(-(2**31), 2**31 - 1, _days, lambda n: f"arrow_cast({n}, 'Date32')")
    return (
        (types.is_boolean, _Booleans()),
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
class _Booleans(Domain):
    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        if not isinstance(literal, bool):
            return None
        values = [value for value in (False, True) if _holds(value, sign, literal)]
        if len(values) == 2:
            return f"{column} IS NOT NULL"
        return f"{column} = {str(values[0]).lower()}" if values else NEVER

    def member(self, literal: Literal) -> str | None:
        return str(literal).lower() if isinstance(literal, bool) else None


def _holds(value: bool, sign: str, literal: bool) -> bool:
    return {
        "=": value == literal,
        "<>": value != literal,
        "<": value < literal,
        "<=": value <= literal,
        ">": value > literal,
        ">=": value >= literal,
    }[sign]


@dataclass(frozen=True, slots=True)
class _Discrete(Domain):
    """Types whose values are integers of some unit, from `low` to `high`.

    `units` is a literal in that unit, exact, None for a literal of another type; `spell` writes an
    integer of the unit as Lance reads it.
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


def _days(literal: Literal) -> Fraction | None:
    return Fraction(literal.days) if isinstance(literal, Day) else None


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

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        """See `Domain`."""
        text = self.member(literal)
        return None if text is None else f"{column} {sign} {text}"

    def member(self, literal: Literal) -> str | None:
        """See `Domain`."""
        return exact_string_literal(literal) if isinstance(literal, str) else None


@dataclass(frozen=True, slots=True)
class _Bytes(Domain):
    """Compared byte by byte, unsigned; `width` is that of all values, None where it varies."""

    width: int | None

    def compare(self, column: str, sign: str, literal: Literal) -> str | None:
        if isinstance(literal, bytes) and sign in ("=", "<>") and not self._fits(literal):
            return NEVER if sign == "=" else f"{column} IS NOT NULL"
        text = self.member(literal)
        return None if text is None else f"{column} {sign} {text}"

    def member(self, literal: Literal) -> str | None:
        if not isinstance(literal, bytes) or not self._fits(literal):
            return None
        return f"X'{literal.hex()}'"

    def _fits(self, literal: bytes) -> bool:
        return self.width is None or len(literal) == self.width
