"""Spark's values in a form that survives the way to Python: text, integers and lists of them.

PySpark's own conversion puts timestamps into the process's time zone, ends at the year 9999, widens
floats and knows no intervals of months.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lancestat.spark.query_result import Array, Map, Scalar, Shape, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def shape_of(type: DataType) -> Shape:
    """The shape of values of a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type, ArrayType):
        return Array(shape_of(type.elementType))
    if isinstance(type, StructType):
        return Struct(tuple((field.name, shape_of(field.dataType)) for field in type.fields))
    if isinstance(type, MapType):
        return Map(shape_of(type.keyType), shape_of(type.valueType))
    return Scalar(type.simpleString().partition("(")[0].partition(" ")[0])


def plain(column: Column, type: DataType, *, local_time: bool) -> Column:
    """An expression that gives a column's values in their plain form.

    Args:
        column: Of the type.
        type: Spark's type.
        local_time: Timestamps as the session's time zone shows them, else as microseconds since
            the epoch.
    """
    shape = shape_of(type)
    if not isinstance(shape, Scalar):
        column = column.cast(_numbered(type))
    return _plain(column, shape, local_time)


def to_plain(value: Any, shape: Shape) -> Any:
    """What PySpark made of a plain form: rows as tuples of their fields, maps as pairs."""
    if value is None:
        return None
    match shape:
        case Array(element):
            return [to_plain(each, element) for each in value]
        case Map(key, of):
            return [(to_plain(pair[0], key), to_plain(pair[1], of)) for pair in value]
        case Struct(fields):
            return tuple(to_plain(each, of) for each, (_, of) in zip(value, fields, strict=True))
    return value


def _plain(column: Column, shape: Shape, local_time: bool) -> Column:
    from pyspark.sql import functions as f

    match shape:
        case Array(element):
            return f.transform(column, lambda each: _plain(each, element, local_time))
        case Map(key, value):
            return f.transform(
                f.map_entries(column),
                lambda pair: f.struct(
                    _plain(pair["key"], key, local_time).alias("_0"),
                    _plain(pair["value"], value, local_time).alias("_1"),
                ),
            )
        case Struct(fields):
            parts = [
                _plain(column[f"_{index}"], of, local_time).alias(f"_{index}")
                for index, (_, of) in enumerate(fields)
            ]
            return f.when(column.isNotNull(), f.struct(*parts))
    return _scalar(column, shape.kind, local_time)


def _scalar(column: Column, kind: str, local_time: bool) -> Column:
    from pyspark.sql import functions as f

    if kind in _INTEGERS or kind == "boolean":
        return column
    if kind == "binary":
        return f.hex(column)
    if kind == "timestamp" and not local_time:
        return f.unix_micros(column)
    return column.cast("string")


def _numbered(type: DataType) -> DataType:
    """The type with its fields named by their places: names may be the same but for case."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(type, ArrayType):
        return ArrayType(_numbered(type.elementType), type.containsNull)
    if isinstance(type, MapType):
        return MapType(_numbered(type.keyType), _numbered(type.valueType), type.valueContainsNull)
    if isinstance(type, StructType):
        return StructType(
            [
                StructField(f"_{index}", _numbered(field.dataType), field.nullable)
                for index, field in enumerate(type.fields)
            ]
        )
    return type
