"""A query's plain values as JSON and as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from lancestat.presentation.output import Printed
from lancestat.presentation.terminal import paint
from lancestat.redact import visible
from lancestat.spark.sql.query import Array, Map, Plain, Scalar, Shape, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lancestat.spark.sql.query import QueryResult, ResultColumn

_EPOCH = datetime(1970, 1, 1)
_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def json_value(value: Plain, shape: Shape) -> object:
    """The value as JSON holds it.

    Integers and finite floats are numbers, decimals strings, as are NaN and the infinities; dates
    and timestamps are ISO 8601 with six digits of a second, those with a zone in UTC with a `Z`;
    binary is base64. A struct is an object, or a list of its values where fields share a name; a
    map is a list of `[key, value]`.
    """
    if value is None:
        return None
    match shape:
        case Array(element):
            assert isinstance(value, list)
            return [json_value(each, element) for each in value]
        case Map(key, of):
            assert isinstance(value, list)
            return [_pair(each, key, of) for each in value]
        case Struct(fields):
            assert isinstance(value, tuple)
            return _object(value, fields)
        case Scalar(kind):
            assert not isinstance(value, (list, tuple))
            return _scalar(value, kind)


def text_value(value: Plain, shape: Shape) -> str:
    """The value as a cell: top-level text bare, what is made of values as compact JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(json_value(value, shape), ensure_ascii=False)
    if isinstance(shape, Scalar) and shape.kind == "binary":
        return f"0x{value}"
    return str(value)


def _pair(pair: Plain, key: Shape, of: Shape) -> list[object]:
    assert isinstance(pair, tuple)
    return [json_value(pair[0], key), json_value(pair[1], of)]


def _object(
    values: Sequence[Plain], fields: Sequence[tuple[str, Shape]]
) -> Mapping[str, object] | list[object]:
    found = [json_value(value, of) for value, (_, of) in zip(values, fields, strict=True)]
    names = [name for name, _ in fields]
    return found if len(set(names)) < len(names) else dict(zip(names, found, strict=True))


def _scalar(value: bool | int | str, kind: str) -> object:
    match kind:
        case "float" | "double":
            return value if value in _NOT_NUMBERS else float(value)
        case "binary":
            return base64.b64encode(bytes.fromhex(str(value))).decode("ascii")
        case "timestamp" if isinstance(value, int):
            return f"{_instant(value)}Z"
        case "timestamp_ntz":
            day, _, time = str(value).partition(" ")
            whole, _, fraction = time.partition(".")
            return f"{day}T{whole}.{fraction:0<6}"
    return value


def _instant(microseconds: int) -> str:
    """ISO 8601 in UTC; years beyond four digits carry a sign, as Spark writes them."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    except OverflowError:
        import numpy as np

        text = str(np.datetime64(microseconds, "us"))
        return text if text.startswith("-") else f"+{text}"


FORMAT_VERSION = 1


def result_json(result: QueryResult) -> tuple[str, Printed]:
    """The object, and how much of the result it holds: `complete` is false where a limit cut it."""
    shapes = [column.shape for column in result.columns]
    rows: list[str] = []
    is_complete = True
    for row in result.rows:
        if len(rows) == result.limit:
            is_complete = False
            break
        rows.append(_json([json_value(value, of) for value, of in zip(row, shapes, strict=True)]))
    head = {
        "format_version": FORMAT_VERSION,
        "command": "sql",
        "columns": [{"name": column.name, "type": column.type} for column in result.columns],
        "row_count": len(rows),
        "complete": is_complete,
    }
    members = [f"  {_json(key)}: {_json(value)}" for key, value in head.items()]
    listed = "".join(f"\n    {row}," for row in rows)[:-1]
    end = "\n  ]" if rows else "]"
    members.append(f'  "rows": [{listed}{end}')
    return "{\n" + ",\n".join(members) + "\n}", Printed(len(rows), is_complete)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


_WIDEST = 60
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def result_text(result: QueryResult, *, is_whole: bool) -> tuple[list[str], Printed]:
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
