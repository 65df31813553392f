"""The kernel: from the Arrow batches of some rows to one partial per column."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from lancestat.errors import UnexpectedBatch, UnsupportedColumn
from lancestat.tables.statistics.column_type import TO_MICROSECONDS, Kind, column_type
from lancestat.tables.statistics.partial import ColumnPartial
from lancestat.tables.statistics.quantiles import QuantileBuilder
from lancestat.tables.statistics.reducers import (
    BooleanReducer,
    BytesReducer,
    DecimalReducer,
    FloatReducer,
    IntegerReducer,
    Reducer,
)


def analyze(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, quantiles: Collection[str] = ()
) -> dict[str, ColumnPartial]:
    """Reduce batches to one partial for every column of `schema`.

    Args:
        batches: any number, none included; each is let go before the one after the next is read.
            Columns are found by name, and those that `schema` does not name are ignored.
        schema: the columns to analyze with their types, which every batch must have.
        quantiles: names of the columns, of kinds that have histograms, whose partials get them.

    Raises:
        UnsupportedColumn: a column's type cannot be analyzed.
        UnexpectedBatch: a batch lacks a column or has another type.
    """
    reducers = {field.name: _reducer(field, field.name in quantiles) for field in schema}
    for batch in batches:
        for field in schema:
            reducers[field.name].update(_column(batch, field))
    return {name: reducer.finish() for name, reducer in reducers.items()}


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise UnexpectedBatch(f"a batch has no column '{field.name}', or has it more than once")
    array = batch.column(index)
    if array.type != field.type:
        message = f"a batch has column '{field.name}' as {array.type}, not {field.type}"
        raise UnexpectedBatch(message)
    return array


_MILLISECONDS_PER_DAY = 86_400_000


def _reducer(field: pa.Field, with_quantiles: bool) -> Reducer:
    type = column_type(field.type)
    if type is None:
        raise UnsupportedColumn(f"column '{field.name}' of type {field.type} cannot be analyzed")
    stored = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if type.kind in (Kind.STRING, Kind.BINARY):
        return BytesReducer(is_text=type.kind is Kind.STRING)
    if type.kind is Kind.BOOLEAN:
        return BooleanReducer()
    quantiles = QuantileBuilder() if with_quantiles else None
    if type.kind is Kind.FLOAT:
        return FloatReducer(f"f{stored.bit_width // 8}", quantiles)
    if type.kind is Kind.DECIMAL:
        return DecimalReducer(stored.bit_width, quantiles)
    if type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ, Kind.TIME):
        divisor, factor = TO_MICROSECONDS[stored.unit]
        width = stored.bit_width // 8
        return IntegerReducer(f"i{width}", quantiles, divisor=divisor, factor=factor)
    if pa.types.is_date64(stored):
        return IntegerReducer("i8", quantiles, divisor=_MILLISECONDS_PER_DAY)
    sign = "u" if pa.types.is_unsigned_integer(stored) else "i"
    dtype = f"{sign}{stored.bit_width // 8}"
    return IntegerReducer(dtype, quantiles)
