"""How often the most frequent values of a column occur, and what that means for joins by them."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lancestat.query.pruning import bound_values
from lancestat.tables.statistics.column_type import column_type
from lancestat.tables.statistics.common_values import CommonValues

# Shares of rows by the values in them.
Shares = dict[Any, float]

# More tell little: the share of each is small.
MOST_VALUES = 200
# A common value has at most so many times the rows that it has at least.
CERTAIN = 1.5


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The values that occur more often than others, and the share of rows that each has.

    Values are in the form of a column's bounds. All others are taken to occur equally often.
    """

    shares: Mapping[Any, float]
    rest: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rest", max(0.0, 1.0 - math.fsum(self.shares.values())))

    @classmethod
    def of(cls, shares: Iterable[tuple[Any, float]]) -> Frequencies:
        """Return those of the values with the largest shares, at most 200 of them."""
        return cls(dict(sorted(shares, key=lambda each: -each[1])[:MOST_VALUES]))

    @classmethod
    def counted(cls, values: pa.Array, shares: Iterable[float]) -> Frequencies:
        """Return those of Arrow's values, without what is of no analyzable type."""
        type = column_type(values.type)
        if type is None:
            return cls({})
        bounds = bound_values(pa.chunked_array([values]), type)
        pairs = zip(bounds, shares, strict=True)
        return cls.of((value, share) for value, share in pairs if value is not None)

    @classmethod
    def kept(cls, common: CommonValues, rows: int) -> Frequencies:
        """Return those of a column's common values, of so many rows, as far as they are certain."""
        return cls.of(
            (one.values[0], (one.lower + one.upper) / 2 / rows)
            for one in common.listed
            if one.upper <= CERTAIN * one.lower
        )

    def within(self, low: float, high: float, width: float) -> float:
        """Return the share of rows between two bounds, where a share of the other values lies."""
        return min(1.0, math.fsum(self._between(low, high).values()) + self.rest * width)

    def between(self, low: float, high: float, share: float) -> Frequencies:
        """Return those of the rows between two bounds, which are a share of all."""
        inside = self._between(low, high)
        return Frequencies({value: min(1.0, rows / share) for value, rows in inside.items()})

    def _between(self, low: float, high: float) -> dict[Any, float]:
        return {
            value: rows
            for value, rows in self.shares.items()
            if not isinstance(value, (int, float)) or low <= value <= high
        }

    def shares_of(self, values: Iterable[Any], domain: float) -> Shares:
        """Return the shares of rows with some values, frequent or not, of so many distinct ones."""
        other = self.rest / _others(domain, len(self.shares))
        return {value: self.shares.get(value, other) for value in values}

    def among(self, values: Collection[Any], domain: float) -> float:
        """Return the share of rows with one of some distinct values."""
        frequent = [self.shares[value] for value in values if value in self.shares]
        others = (len(values) - len(frequent)) / _others(domain, len(self.shares))
        return math.fsum(frequent) + self.rest * min(1.0, others)


def equal_pairs(one: Frequencies, other: Frequencies, domain: float) -> float:
    """Return the share of pairs of two sides' rows that have the same value.

    `domain` is the number of distinct values of the side that has more; those of the other are
    among them.

    Source: Y. E. Ioannidis and S. Christodoulakis, Optimal histograms for limiting worst-case error
        propagation in the size of join results, TODS 18 (1993): end-biased histograms.
    """
    shares, others = _shares(one, other, domain)
    # Of a value that is frequent on one side alone, the other has its part of the rest.
    rest = math.prod(max(0.0, 1.0 - math.fsum(side.values())) for side in (shares, others))
    return math.fsum(_products(shares, others)) + rest / _others(domain, len(shares))


def of_pairs(one: Frequencies, other: Frequencies, domain: float) -> Frequencies:
    """Return the frequencies of values in the pairs of rows that have the same one."""
    total = equal_pairs(one, other, domain)
    if not total:
        return Frequencies({})
    shares, others = _shares(one, other, domain)
    pairs = zip(shares, _products(shares, others), strict=True)
    return Frequencies.of((value, rows / total) for value, rows in pairs)


def _shares(one: Frequencies, other: Frequencies, domain: float) -> tuple[Shares, Shares]:
    """Return the shares of both sides' frequent values on each side, in the same order."""
    values = list(one.shares.keys() | other.shares.keys())
    return one.shares_of(values, domain), other.shares_of(values, domain)


def _products(one: Shares, other: Shares) -> Iterable[float]:
    return map(operator.mul, one.values(), other.values())


def _others(domain: float, values: int) -> float:
    return max(1.0, domain - values)
