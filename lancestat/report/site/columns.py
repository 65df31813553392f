"""The columns of a table, as its page lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lancestat.plan.format import count
from lancestat.report.site.distribution import Distribution, distribution
from lancestat.report.site.text import shorten
from lancestat.report.site.words import NOTHING, share
from lancestat.report.values import TableReport
from lancestat.spec.model import ColumnPattern, ColumnSelection
from lancestat.stats.wire import PublishedColumn

_LONGEST_BOUND = 32
_DATE = re.compile(r"[+-]?\d{4,}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A column with statistics; `null_share` is of all rows, None where it is not known.

    `minimum` and `maximum` are short, `full_minimum` and `full_maximum` as they are published.
    """

    name: str
    minimum: str
    maximum: str
    full_minimum: str | None
    full_maximum: str | None
    nulls: str
    null_share: float | None
    null_words: str
    distinct: str
    lengths: str
    distribution: Distribution | None


def column_rows(report: TableReport) -> tuple[ColumnRow, ...]:
    """The columns that have statistics, in the order of the schema."""
    if report.shown is None:
        return ()
    rows = report.shown.rows
    return tuple(_row(report, name, column, rows) for name, column in report.shown.columns.items())


def _row(report: TableReport, name: str, column: PublishedColumn, rows: int) -> ColumnRow:
    histogram = report.histograms.get(name)
    part = None
    if column.nulls is not None and rows:
        part = min(1.0, column.nulls / rows)
    return ColumnRow(
        name,
        _bound(column.minimum),
        _bound(column.maximum),
        column.minimum,
        column.maximum,
        _number(column.nulls),
        part,
        share(part) if part else "",
        _number(column.distinct),
        _lengths(column),
        distribution(histogram, _kind(column.minimum)) if histogram else None,
    )


def _number(value: int | None) -> str:
    return NOTHING if value is None else count(value)


def _bound(value: str | None) -> str:
    return NOTHING if value is None else shorten(value, _LONGEST_BOUND)


def _lengths(column: PublishedColumn) -> str:
    average, longest = column.average_length, column.maximum_length
    if average is None and longest is None:
        return NOTHING
    return (
        f"{_number(average)}" if average == longest else f"{_number(average)} / {_number(longest)}"
    )


def _kind(bound: str | None) -> str:
    """Whether a histogram counts days or microseconds: its column's bounds are written so."""
    if bound is None or not (found := _DATE.match(bound)):
        return "number"
    return "date" if found.end() == len(bound) else "timestamp"


def selection_words(columns: ColumnSelection) -> str:
    """Which columns are declared to have statistics."""
    parts = ["all that can have them"] if columns.all else []
    for rule in columns.rules:
        text = _names(rule.include)
        if rule.types is not None:
            text += f" of type {' or '.join(sorted(rule.types))}"
        if rule.exclude:
            text += f" but {_names(rule.exclude)}"
        parts.append(text)
    words = "; ".join(parts) or "none"
    return f"{words}; without {_names(columns.exclude)}" if columns.exclude else words


def _names(patterns: Iterable[ColumnPattern]) -> str:
    return ", ".join(pattern.text for pattern in patterns)
