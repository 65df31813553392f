"""A query's result as a table, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from lancestat.cli.output import Printed
from lancestat.cli.paint import paint
from lancestat.cli.sql_value import text_value
from lancestat.redact import visible
from lancestat.spark.query_result import Scalar

if TYPE_CHECKING:
    from lancestat.spark.query_result import QueryResult, ResultColumn

_WIDEST = 60
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def render_result(result: QueryResult, *, is_whole: bool) -> tuple[list[str], Printed]:
    """Columns under each other, cells by their width on a terminal; none where there are none.

    Args:
        result: Read here, up to its limit.
        is_whole: Shorten nothing.
    """
    rows, is_complete = _read(result)
    if not result.columns:
        return [], Printed(0)
    head = [visible(column.name) for column in result.columns]
    is_shortened = not is_whole and any(cell_len(cell) > _WIDEST for row in rows for cell in row)
    if not is_whole:
        rows = [[_shortened(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    right = [_is_number(column) for column in result.columns]
    lines = [paint(_line(head, widths, right), "note")]
    lines += [_line(row, widths, right) for row in rows]
    return lines, Printed(len(rows), is_complete, is_shortened)


def render_markdown(result: QueryResult) -> tuple[list[str], Printed]:
    """A Markdown table with every value whole."""
    rows, is_complete = _read(result)
    if not result.columns:
        return [], Printed(0)
    head = [visible(column.name) for column in result.columns]
    rule = ["---:" if _is_number(column) else "---" for column in result.columns]
    lines = [_markdown_line(head), f"| {' | '.join(rule)} |", *map(_markdown_line, rows)]
    return lines, Printed(len(rows), is_complete)


def _read(result: QueryResult) -> tuple[list[list[str]], bool]:
    shapes = [column.shape for column in result.columns]
    rows: list[list[str]] = []
    for row in result.rows:
        if len(rows) == result.limit:
            return rows, False
        rows.append([visible(text_value(v, of)) for v, of in zip(row, shapes, strict=True)])
    return rows, True


def _is_number(column: ResultColumn) -> bool:
    return isinstance(column.shape, Scalar) and column.shape.kind in _NUMBERS


def _shortened(cell: str) -> str:
    if cell_len(cell) <= _WIDEST:
        return cell
    return f"{set_cell_size(cell, _WIDEST - 3).rstrip()}..."


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    padded = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if is_right else cell + space)
    return "  ".join(padded).rstrip()


def _markdown_line(cells: list[str]) -> str:
    escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
