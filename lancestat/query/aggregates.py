"""Answers aggregates of a scan from what is known exactly, so that Spark reads no row for them.

A count of rows comes from the manifest. Everything else comes from the partials of the state, which
are known to describe the content of the fragments at the version that is read: their fingerprints
are equal. The statistics in a manifest answer nothing. Their tag says for which version they are
meant, and proves neither who computed them nor from which rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lancestat.formats import StringEnum
from lancestat.query.estimates import remaining_fragments
from lancestat.query.predicates.filter import Filter
from lancestat.query.pruned_fragments import FragmentStatistics, RemainingFragments
from lancestat.query.table import PUSHDOWN, ReadSettings, ReadTable
from lancestat.tables.statistics.bound_text import DAY_MICROS
from lancestat.tables.statistics.bounds import BOUND_BYTES, Bound
from lancestat.tables.statistics.column_type import ColumnType, Kind
from lancestat.tables.statistics.partial import EMPTY_PARTIAL, ColumnPartial


class Function(StringEnum):
    """The aggregate functions that are answered."""

    COUNT = "count"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows that a scan selects; a count of no column counts rows."""

    function: Function
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function.value}({'*' if self.column is None else self.column})"


class PushDownReason(StringEnum):
    """The reasons why aggregates are answered, or left to Spark; the spelling is a contract."""

    EXACT = "exact"
    DISABLED = "disabled"
    GROUPED = "grouped"
    FILTERED = "filtered"
    UNSUPPORTED = "unsupported"
    UNPROVEN = "unproven"
    INEXACT = "inexact"


@dataclass(frozen=True, slots=True)
class PushDown:
    """The decision on the aggregates of a scan; `functions` shows them, empty where not known.

    `values` are the answers in the order of the aggregates, empty where they are left to Spark.
    They have the forms of bounds: dates in days, timestamps and times of day in microseconds,
    unscaled decimals, strings and binary as bytes; None is null.
    """

    reason: PushDownReason
    detail: str
    functions: tuple[str, ...] = ()
    values: tuple[Bound | None, ...] = ()

    @property
    def use(self) -> bool:
        """Whether the aggregates are answered."""
        return self.reason is PushDownReason.EXACT


class _Unknown(Exception):  # noqa: N818 - no error: the aggregates are left to Spark
    """An answer that is not known exactly."""

    def __init__(self, reason: PushDownReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def push_down(
    table: ReadTable,
    aggregates: Sequence[Aggregate],
    filters: Sequence[Filter],
    settings: ReadSettings,
) -> PushDown:
    """Answer all aggregates over the rows that pass some filters, or none of them.

    Args:
        table: The table at its version.
        aggregates: At least one, of columns that the table has.
        filters: A conjunction.
        settings: Of the session and the scan.
    """
    functions = tuple(map(str, aggregates))
    try:
        return PushDown(
            PushDownReason.EXACT,
            f"known of every fragment of version {table.snapshot.version}",
            functions,
            _answers(table, aggregates, filters, settings),
        )
    except _Unknown as unknown:
        return PushDown(unknown.reason, unknown.detail, functions)


def _answers(
    table: ReadTable,
    aggregates: Sequence[Aggregate],
    filters: Sequence[Filter],
    settings: ReadSettings,
) -> tuple[Bound | None, ...]:
    if not settings.pushdown:
        raise _Unknown(PushDownReason.DISABLED, f"{PUSHDOWN} is false")
    if filters and not table.fragments.covers(filters):
        raise _Unknown(PushDownReason.FILTERED, "the filters may select parts of fragments")
    remaining = remaining_fragments(table, filters)
    rows = table.snapshot.rows if remaining is None else remaining.rows
    names = dict.fromkeys(a.column for a in aggregates if a.column is not None)
    partials: Mapping[str, ColumnPartial] = dict.fromkeys(names, EMPTY_PARTIAL)
    if rows and names:
        partials = _partials(table, remaining, names, rows)
    return tuple(
        rows
        if aggregate.column is None
        else _answer(aggregate, partials[aggregate.column], table.types.get(aggregate.column))
        for aggregate in aggregates
    )


def _partials(
    table: ReadTable, remaining: RemainingFragments | None, names: Iterable[str], rows: int
) -> Mapping[str, ColumnPartial]:
    """Return the partials of columns over all rows that are left."""
    names = list(names)
    known: FragmentStatistics | RemainingFragments = remaining or table.fragments
    table.fragments.load(name for name in names if name in table.types)
    partials = {}
    for name in names:
        type = table.types.get(name)
        if type is None:
            what = f"columns of the type of '{name}' have no statistics"
            raise _Unknown(PushDownReason.UNSUPPORTED, what)
        partial = known.partial(name)
        if partial is None or partial.rows != rows:
            what = f"no state knows the content of '{name}' in all fragments of this version"
            raise _Unknown(PushDownReason.UNPROVEN, what)
        if not _fits(partial, type):
            # A query that reads them fails, and has to fail.
            what = f"'{name}' has values that Spark's {type.spark_type} cannot hold"
            raise _Unknown(PushDownReason.INEXACT, what)
        partials[name] = partial
    return partials


_BITS = {
    "tinyint": 8,
    "smallint": 16,
    "int": 32,
    "bigint": 64,
    "date": 32,
    "timestamp": 64,
    "timestamp_ntz": 64,
}


def _fits(partial: ColumnPartial, type: ColumnType) -> bool:
    """Whether Spark's type can hold every value."""
    low, high = partial.minimum, partial.maximum
    if not isinstance(low, int) or not isinstance(high, int) or type.kind is Kind.BOOLEAN:
        return True
    if type.kind is Kind.DECIMAL:
        digits = int(type.spark_type.removeprefix("decimal(").partition(",")[0])
        return bool(max(abs(low), abs(high)) < 10**digits)
    if type.kind is Kind.TIME:
        return bool(low >= 0 and high < DAY_MICROS)
    end = 2 ** (_BITS[type.spark_type] - 1)
    return bool(-end <= low and high < end)


def _answer(aggregate: Aggregate, partial: ColumnPartial, type: ColumnType | None) -> Bound | None:
    """Return the answer as Spark orders values: NaN is the greatest."""
    if aggregate.function is Function.COUNT:
        return partial.values
    if partial.values == 0:
        return None
    assert type is not None, "a column without a type has no partial"
    is_min = aggregate.function is Function.MIN
    bound = partial.minimum if is_min else partial.maximum
    if partial.nans and (not is_min or partial.nans == partial.values):
        return math.nan
    if type.kind is Kind.FLOAT and bound == 0:
        what = f"the {aggregate} is a zero, of which the sign is not known"
        raise _Unknown(PushDownReason.INEXACT, what)
    if type.is_variable_width and partial.max_bytes > BOUND_BYTES:
        what = f"'{aggregate.column}' has values of more than {BOUND_BYTES} bytes"
        raise _Unknown(PushDownReason.INEXACT, what)
    if bound is None:
        raise _Unknown(PushDownReason.INEXACT, f"the {aggregate} is not known")
    return bound
