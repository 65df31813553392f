"""Which columns can be analyzed, and what their values are to the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(str, Enum):
    """The type families of the YAML's `types` filter."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    STRING = "string"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """An analyzable type.

    `spark_type` is Spark's catalog string; `default_size` is `DataType.defaultSize` in bytes; `scale`
    counts the digits after a decimal's point and is 0 elsewhere.
    """

    kind: Kind
    spark_type: str
    default_size: int
    scale: int = 0

    @property
    def is_variable_width(self) -> bool:
        """Whether lengths vary: strings and binary."""
        return self.kind in (Kind.STRING, Kind.BINARY)


def column_type(arrow_type: pa.DataType) -> ColumnType | None:
    """The analyzable type of an Arrow type, or None for nested, interval, null, time and zoneless timestamps."""
    raise NotImplementedError
