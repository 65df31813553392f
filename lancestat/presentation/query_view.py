"""The view of a query's result: its values as JSON has them and as people read them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import cast

from lancestat.formats import visible
from lancestat.presentation.views import QueryColumn, QueryView
from lancestat.query.sql.query import ARRAY, QueryResult, ResultValue, Shape

_EPOCH = datetime(1970, 1, 1)
_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def json_value(value: ResultValue, shape: Shape) -> object:
    """The value as JSON holds it.

    Integers and finite floats are numbers, decimals strings, as are NaN and the infinities; dates
    and timestamps are ISO 8601 with six digits of a second, those with a zone in UTC with a `Z`;
    binary is base64. A struct is an object, or a list of its values where fields share a name; a
    map is a list of `[key, value]`.
    """
    if isinstance(value, tuple):
        members = [json_value(*cell) for cell in zip(value, shape.parts, strict=True)]
        names = shape.names
        is_ambiguous = len(set(names)) < len(names)
        return members if is_ambiguous else dict(zip(names, members, strict=True))
    if isinstance(value, list):
        if shape.kind == ARRAY:
            return [json_value(item, shape.parts[0]) for item in value]
        return [
            list(map(json_value, cast(Sequence[ResultValue], pair), shape.parts)) for pair in value
        ]
    return None if value is None else _scalar(value, shape.kind)


def text_value(value: ResultValue, shape: Shape) -> str:
    """The value as a cell: top-level text bare, what is made of values as compact JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return json.dumps(json_value(value, shape), ensure_ascii=False)
    if shape.kind == "binary":
        return f"0x{value}"
    return str(value)


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


_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def query_view(result: QueryResult) -> QueryView:
    """Return the view of a query's result, whose rows are read when a format prints them."""
    columns = tuple(
        QueryColumn(column.name, column.type, column.shape.kind in _NUMBERS)
        for column in result.columns
    )
    view = QueryView(columns, iter(()), iter(()))
    rows, shapes = _counted(result, view), [column.shape for column in result.columns]
    view.values = ([json_value(*cell) for cell in zip(row, shapes, strict=True)] for row in rows)
    view.cells = (
        [visible(text_value(*cell)) for cell in zip(row, shapes, strict=True)] for row in rows
    )
    return view


def _counted(result: QueryResult, view: QueryView) -> Iterator[tuple[ResultValue, ...]]:
    """Yield rows up to the limit, and record in the view how many there were."""
    for row in result.rows:
        if view.printed == result.limit:
            view.is_complete = False
            return
        view.printed += 1
        yield row
