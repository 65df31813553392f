"""How large rows are once decoded, which is what a broadcast costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lancestat.lake.snapshot import Field
from lancestat.stats.column_type import column_type

if TYPE_CHECKING:
    import pyarrow as pa

# What Spark adds per row, whatever its columns (`EstimationUtils.getSizePerRow`).
ROW_OVERHEAD = 8
_UNKNOWN_WIDTH = 20


def decoded_size(rows: int, fields: Iterable[Field], average_lengths: Mapping[str, int]) -> int:
    """Estimated bytes of the decoded columns: rows times the sum of average widths.

    Args:
        rows: Live rows.
        fields: The columns that are read.
        average_lengths: Known average lengths in bytes by column name; a column without one
            counts with its type's default size.
    """
    width = sum(average_lengths.get(field.name, _default_width(field.type)) for field in fields)
    return rows * (ROW_OVERHEAD + width)


def _default_width(type: pa.DataType) -> int:
    import pyarrow as pa

    known = column_type(type)
    if known is not None:
        return known.default_size
    if pa.types.is_fixed_size_list(type):
        return int(type.list_size) * _default_width(type.value_type)
    if pa.types.is_struct(type):
        return sum(_default_width(type.field(i).type) for i in range(type.num_fields))
    try:
        return -(-int(type.bit_width) // 8)
    except ValueError:
        return _UNKNOWN_WIDTH
