"""The statistics of a column, each declared once: a new one is a field of `ColumnStatistics`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from lancestat.formats import count
from lancestat.tables.statistics.bounds import Bound, next_characters, whole_characters
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.statistics.partial import ColumnPartial

ALL_KINDS = frozenset(Kind)
# Spark uses no bounds of strings and binary.
BOUNDED_KINDS = ALL_KINDS - {Kind.STRING, Kind.BINARY}


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of a column: how it is computed, named, published and shown.

    Attributes:
        key: Its suffix in the wire format of the Lance Spark connector.
        label: Its name in tables for people, with `~` where it is an estimate.
        compute: Makes the value of a merged partial, None where it is not known.
        type: The type of its published value: `str` for a bound, which is a value of the column in
            Spark's spelling; `int` for a count, which is not below zero.
        scales_with_rows: Whether it shrinks with the rows when fewer are read, as a count of rows.
        kinds: The kinds of columns for which it is published.
        name: The field of `ColumnStatistics` that declares it.
    """

    key: str
    label: str
    compute: Callable[[ColumnPartial, ColumnType], Bound | None]
    type: type = int
    scales_with_rows: bool = False
    kinds: frozenset[Kind] = ALL_KINDS
    name: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether it is a value of the column."""
        return self.type is str

    @property
    def sql_name(self) -> str:
        """Its key in JSON and its column in SQL and CSV: `null_count` for `nullCount`."""
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.key)

    def of(self, column: ColumnStatistics[Any]) -> Any:
        """Return its value, an integer or a bound, None where it is not known."""
        return getattr(column, self.name)

    def text(self, value: Any) -> str:
        """Return a value of it for people, empty where it is not known.

        An empty string, which would look as if it were not known, is two quotes.
        """
        if value is None:
            return ""
        return count(value) if self.type is int else str(value) or '""'


# Spark orders NaN above every number. With the numbers' maximum as bound its estimates would leave
# NaN out, and with NaN as bound planning fails.
def _minimum(partial: ColumnPartial, type: ColumnType) -> Bound | None:
    if partial.nans:
        return None
    if type.kind is not Kind.STRING:
        return partial.minimum
    return whole_characters(partial.minimum) if isinstance(partial.minimum, bytes) else None


def _maximum(partial: ColumnPartial, type: ColumnType) -> Bound | None:
    if partial.nans:
        return None
    if type.kind is not Kind.STRING:
        return partial.maximum
    return next_characters(partial.maximum) if isinstance(partial.maximum, bytes) else None


def _average_length(partial: ColumnPartial, type: ColumnType) -> int:
    if not type.is_variable_width or not partial.values:
        return type.default_size
    is_text = type.kind is Kind.STRING
    total = partial.total_characters if is_text else partial.total_bytes
    return -(-total // partial.values)


def _maximum_length(partial: ColumnPartial, type: ColumnType) -> int:
    if not type.is_variable_width or not partial.values:
        return type.default_size
    return partial.max_characters if type.kind is Kind.STRING else partial.max_bytes


B = TypeVar("B", covariant=True)


@dataclass(frozen=True, slots=True)
class ColumnStatistics(Generic[B]):
    """The statistics of one column, None where not known; `B` is the form of its bounds.

    Lengths are in bytes, except that Spark's own lengths of strings count code points, and so do
    these. The order is that of tables for people.
    """

    nulls: int | None = field(
        default=None,
        metadata={
            "statistic": Statistic(
                "nullCount", "nulls", lambda partial, _: partial.nulls, scales_with_rows=True
            )
        },
    )
    distinct: int | None = field(
        default=None,
        metadata={
            "statistic": Statistic(
                "distinctCount", "distinct ~", lambda partial, _: partial.distinct
            )
        },
    )
    minimum: B | None = field(
        default=None,
        metadata={"statistic": Statistic("min", "min", _minimum, type=str, kinds=BOUNDED_KINDS)},
    )
    maximum: B | None = field(
        default=None,
        metadata={"statistic": Statistic("max", "max", _maximum, type=str, kinds=BOUNDED_KINDS)},
    )
    average_length: int | None = field(
        default=None,
        metadata={"statistic": Statistic("avgLen", "avg length", _average_length)},
    )
    maximum_length: int | None = field(
        default=None,
        metadata={"statistic": Statistic("maxLen", "max length", _maximum_length)},
    )

    def items(self) -> Iterator[tuple[Statistic, Any]]:
        """Yield all statistics with their values, in the order of tables for people."""
        return ((statistic, statistic.of(self)) for statistic in STATISTICS)

    def to_json(self) -> dict[str, Any]:
        """Return the values by their keys in JSON, bounds first."""
        return {statistic.sql_name: statistic.of(self) for statistic in BOUNDS_FIRST}


STATISTICS: tuple[Statistic, ...] = tuple(
    replace(declared.metadata["statistic"], name=declared.name)
    for declared in fields(ColumnStatistics)
)
# The order of JSON, CSV and SQL.
BOUNDS_FIRST = tuple(sorted(STATISTICS, key=lambda statistic: not statistic.is_bound))


def column_statistics_of(partial: ColumnPartial, type: ColumnType) -> ColumnStatistics[Bound]:
    """Return what Spark's `CommandUtils.computeColumnStats` would give for the same rows.

    Two things differ: the distinct count is closer to the truth, and where there are NaN, which in
    Spark is the largest value, there are no bounds. Strings and binary have bounds here and none in
    Spark; those of strings are valid UTF-8.
    """
    values = {statistic.name: statistic.compute(partial, type) for statistic in STATISTICS}
    return ColumnStatistics(**values)  # type: ignore[arg-type]
