"""A query's result as one JSON object, a row per line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lancestat.cli.output import Printed
from lancestat.cli.sql_value import json_value

if TYPE_CHECKING:
    from lancestat.spark.query_result import QueryResult

FORMAT_VERSION = 1


def render_result(result: QueryResult) -> tuple[str, Printed]:
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
