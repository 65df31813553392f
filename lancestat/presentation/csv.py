"""The format `csv`: rows for other programs, as RFC 4180 has them but for the line ends.

Null is nothing at all, the empty string a pair of quotes. Values are those of the JSON output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from lancestat.formats import format_instant
from lancestat.presentation.terminal import CONSOLE
from lancestat.presentation.views import Format, HistoryView, Page, QueryView, ShowView

_ROWS_PER_WRITE = 1000
_NEEDS_QUOTES = frozenset('",\r\n')


def _write(lines: Iterable[str]) -> None:
    rest = iter(lines)
    while batch := [*islice(rest, _ROWS_PER_WRITE)]:
        CONSOLE.csv("\n".join(batch))


FORMAT: Format[Iterable[str]] = Format(_write)


@FORMAT.renders(ShowView)
def _show(view: ShowView, page: Page) -> Iterator[str]:
    """Yield a line per column with all figures, as `lancestat.statistics` has them in SQL."""
    return _rows(view)


@FORMAT.renders(HistoryView)
def _history(view: HistoryView, page: Page) -> Iterator[str]:
    """Yield a line per run and column with all figures, as `lancestat.history` has them in SQL."""
    return _rows(view)


def _rows(view: ShowView | HistoryView) -> Iterator[str]:
    yield _line(view.names)
    for row in view.rows:
        yield _line(_text(row.get(name)) for name in view.names)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return format_instant(value) if isinstance(value, datetime) else json.dumps(value)


@FORMAT.renders(QueryView)
def _query(view: QueryView, page: Page) -> Iterator[str]:
    """Yield a line of names, then a line per row; what is made of values is JSON."""
    if view.columns:
        yield _line(column.name for column in view.columns)
        for row in view.values:
            yield _line(
                value
                if value is None or isinstance(value, str)
                else json.dumps(value, ensure_ascii=False)
                for value in row
            )


def _line(cells: Iterable[str | None]) -> str:
    return ",".join("" if cell is None else _quoted(cell) for cell in cells)


def _quoted(cell: str) -> str:
    # A line that starts with colons would be an order to GitHub's runner.
    if cell and _NEEDS_QUOTES.isdisjoint(cell) and not cell.lstrip().startswith("::"):
        return cell
    return '"' + cell.replace('"', '""') + '"'
