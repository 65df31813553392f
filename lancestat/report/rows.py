"""Rows of what is known, and the types of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.formats import StringEnum

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, object]


class CellType(StringEnum):
    """The type of a column's cells, spelled as in Spark; any cell may be null."""

    TEXT = "string"
    TEXTS = "array<string>"
    COUNT = "bigint"
    NUMBER = "double"
    FLAG = "boolean"
    INSTANT = "timestamp"


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of some rows, in their order, each with the type of its cells."""

    columns: Mapping[str, CellType]

    def table(self, rows: Iterable[Row]) -> pa.Table:
        """Rows as an Arrow table; instants are microseconds in UTC."""
        import pyarrow as pa

        types = {
            CellType.TEXT: pa.string(),
            CellType.TEXTS: pa.list_(pa.string()),
            CellType.COUNT: pa.int64(),
            CellType.NUMBER: pa.float64(),
            CellType.FLAG: pa.bool_(),
            CellType.INSTANT: pa.timestamp("us", "UTC"),
        }
        schema = pa.schema([pa.field(name, types[type]) for name, type in self.columns.items()])
        return pa.Table.from_pylist(list(rows), schema)
