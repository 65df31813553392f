"""Query results and statistics as CSV, for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from lancestat.presentation.output import Printed
from lancestat.presentation.sql import json_value
from lancestat.presentation.text import TextOutput

if TYPE_CHECKING:
    from lancestat.plan.table_status import Shown
    from lancestat.spark.sql.query import Plain, QueryResult, Shape

_ROWS_AT_ONCE = 1000
_NEEDS_QUOTES = frozenset('",\r\n')


class CsvOutput(TextOutput):
    """Prints rows as they come; commands that print no rows refuse the format beforehand."""

    def shown(self, shown: Shown) -> None:
        """A line per column with all figures: the rows of `lancestat.statistics`, written alike."""
        from lancestat.report.rows import STATISTICS, statistics_rows

        names = list(STATISTICS.columns)
        rows = ([_text(row.get(name)) for name in names] for row in statistics_rows(shown))
        _flush([_line(names), *map(_line, rows)])

    def queried(self, result: QueryResult) -> Printed:
        """A line of names, then a line per row, as RFC 4180 has it but for its line ends.

        Null is nothing at all, the empty string a pair of quotes. Values are those of the JSON
        output, and what is made of values is JSON.
        """
        shapes = [column.shape for column in result.columns]
        if not shapes:
            return Printed(0)
        lines = [_line(column.name for column in result.columns)]
        printed = 0
        for row in result.rows:
            if printed == result.limit:
                _flush(lines)
                return Printed(printed, is_complete=False)
            lines.append(_line(_cells(row, shapes)))
            printed += 1
            if len(lines) >= _ROWS_AT_ONCE:
                _flush(lines)
        _flush(lines)
        return Printed(printed)


def _text(value: object) -> str | None:
    """A value as the JSON output has it."""
    from lancestat.manifest.wire import format_instant

    if value is None or isinstance(value, str):
        return value
    return format_instant(value) if isinstance(value, datetime) else json.dumps(value)


def _flush(lines: list[str]) -> None:
    if lines:
        # A value keeps its escape characters, which click would take for colours.
        click.echo("\n".join(lines), color=True)
        lines.clear()


def _line(cells: Iterable[str | None]) -> str:
    return ",".join("" if cell is None else _quoted(cell) for cell in cells)


def _quoted(cell: str) -> str:
    # A line that starts with colons would be an order to GitHub's runner.
    if cell and _NEEDS_QUOTES.isdisjoint(cell) and not cell.lstrip().startswith("::"):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _cells(row: Iterable[Plain], shapes: Iterable[Shape]) -> Iterator[str | None]:
    for value, shape in zip(row, shapes, strict=True):
        found = json_value(value, shape)
        yield (
            found
            if found is None or isinstance(found, str)
            else json.dumps(found, ensure_ascii=False)
        )
