"""A filter's literal in the form of a column's bounds."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from lancestat.lake.filter import Day, Instant, Literal
from lancestat.stats.bounds import Bound
from lancestat.stats.column_type import ColumnType, Kind


def literal_bound(literal: Literal, type: ColumnType) -> Bound | Fraction | None:
    """What to compare a column's bounds with, exactly; None for a literal of another type.

    A fraction is a decimal with more digits than the column has. A float is NaN for NaN.
    """
    match type.kind, literal:
        case Kind.BOOLEAN, bool():
            return int(literal)
        case (Kind.BOOLEAN | Kind.INTEGER | Kind.FLOAT | Kind.DECIMAL, bool()):
            return None
        case Kind.INTEGER, int():
            return literal
        case Kind.FLOAT, float():
            return _single(literal) if type.spark_type == "float" else literal
        case Kind.DECIMAL, (Decimal() | int()):
            return _unscaled(Decimal(literal), type.scale)
        case Kind.TIMESTAMP, Instant(micros):
            return micros
        case Kind.DATE, Day(days):
            return days
        case Kind.STRING, str():
            return _utf8(literal)
        case Kind.BINARY, bytes():
            return literal
    return None


def _single(literal: float) -> float | None:
    """The float32 that Spark compares with; None for one that it rounds to infinity."""
    import numpy as np

    with np.errstate(over="ignore"):
        rounded = float(np.float32(literal))
    return None if math.isinf(rounded) and not math.isinf(literal) else rounded


def _unscaled(literal: Decimal, scale: int) -> int | Fraction | None:
    if not literal.is_finite():
        return None
    fraction: Fraction = Fraction(literal) * 10**scale
    return int(fraction) if fraction.denominator == 1 else fraction


def _utf8(literal: str) -> bytes | None:
    try:
        return literal.encode()
    except UnicodeEncodeError:
        return None
