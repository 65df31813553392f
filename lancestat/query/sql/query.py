"""Runs a query, and returns its rows without loss, as values of Python.

PySpark's own conversion puts timestamps into the process's time zone, ends at the year 9999, widens
floats and knows no intervals of months.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lancestat.query.sql.statement import NO_CONTEXT, QueryContext, Statement, explain_failure
from lancestat.spark.failure import silent_query_logger
from lancestat.spark.session import (
    active,
    classic_session,
    optimizer_settings,
    running_session,
)
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def shape_of(type: DataType) -> Shape:
    """Return the shape of values of a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type, ArrayType):
        return Array(shape_of(type.elementType))
    if isinstance(type, StructType):
        return Struct(tuple((field.name, shape_of(field.dataType)) for field in type.fields))
    if isinstance(type, MapType):
        return Map(shape_of(type.keyType), shape_of(type.valueType))
    return Scalar(type.simpleString().partition("(")[0].partition(" ")[0])


def exact_column(column: Column, type: DataType, *, local_time: bool) -> Column:
    """Return an expression that gives a column's values in a form that PySpark does not change.

    With `local_time`, timestamps are formatted in the session's time zone, else they are
    microseconds since the epoch.
    """
    shape = shape_of(type)
    if not isinstance(shape, Scalar):
        column = column.cast(_numbered(type))
    return _exact(column, shape, local_time)


def decode_value(value: Any, shape: Shape) -> Any:
    """Convert what `exact_column` gave in PySpark: rows to tuples of fields, maps to pairs."""
    if value is None:
        return None
    match shape:
        case Array(element):
            return [decode_value(item, element) for item in value]
        case Map(key, value_shape):
            return [
                (decode_value(pair[0], key), decode_value(pair[1], value_shape)) for pair in value
            ]
        case Struct(fields):
            return tuple(
                decode_value(item, field) for item, (_, field) in zip(value, fields, strict=True)
            )
    return value


def _exact(column: Column, shape: Shape, local_time: bool) -> Column:
    from pyspark.sql import functions as f

    match shape:
        case Array(element):
            return f.transform(column, lambda item: _exact(item, element, local_time))
        case Map(key, value):
            return f.transform(
                f.map_entries(column),
                lambda pair: f.struct(
                    _exact(pair["key"], key, local_time).alias("_0"),
                    _exact(pair["value"], value, local_time).alias("_1"),
                ),
            )
        case Struct(fields):
            parts = [
                _exact(column[f"_{index}"], field, local_time).alias(f"_{index}")
                for index, (_, field) in enumerate(fields)
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
    """Return the type with its fields named by their places: names may be the same but for case."""
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


# The Python form of a value of Spark's: null, boolean and integer as they are, a list for an array,
# a tuple of its fields for a struct, a list of pairs for a map, and text for everything else.
ResultValue = bool | int | str | list["ResultValue"] | tuple["ResultValue", ...] | None


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column; `type` is Spark's catalog string, `shape` says how values are to be read."""

    name: str
    type: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is not made of others; `kind` is Spark's type name, such as `double`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one shape."""

    element: Shape


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs of key and value."""

    key: Shape
    value: Shape


Shape = Scalar | Array | Struct | Map


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Columns and rows; rows are streamed and can be read once.

    There is one row more than `limit`, unless it is None, if there are more rows than that.
    """

    columns: tuple[ResultColumn, ...]
    rows: Iterator[tuple[ResultValue, ...]]
    limit: int | None


APP_NAME = "lancestat sql"


@contextmanager
def query_session(target: Target) -> Iterator[SparkSession]:
    """A session for queries, with the cost-based optimizer on unless the target decides otherwise.

    If the process has a session, a new one beside it is used, with its own views and settings, and
    Spark goes on running.

    Raises:
        SparkConnectSession: the target or the process has a session without a JVM.
        RunError: Spark does not start.
    """
    running = running_session()
    session = classic_session(target, APP_NAME)
    session = session.newSession() if running else session
    try:
        for key, value in optimizer_settings(target.spark_conf).items():
            session.conf.set(key, value)
        with silent_query_logger(), active(session):
            yield session
    finally:
        if running is None:
            session.stop()


def run_query(
    spark: SparkSession,
    statement: Statement,
    query_context: QueryContext = NO_CONTEXT,
    *,
    limit: int | None = None,
    local_time: bool = False,
) -> QueryResult:
    """Run a statement; without a limit, rows are computed as they are read.

    Args:
        spark: The session with what the statement names.
        statement: From `parse` with the same session.
        query_context: The tables and views that errors may name.
        limit: Compute one row more than this, which shows whether there are more.
        local_time: See `exact_column`.

    Raises:
        LancestatError: Spark refuses the query, here or when rows are read (see `explain_failure`).
    """
    try:
        rows = spark.sql(statement.text.text)
        schema = rows.schema
        # Columns of a result may share a name, which nothing but a place tells apart.
        numbered = rows.toDF(*[f"_{index}" for index in range(len(schema.fields))])
        exact_rows = numbered.select(
            *[
                exact_column(numbered[f"_{index}"], field.dataType, local_time=local_time).alias(
                    f"_{index}"
                )
                for index, field in enumerate(schema.fields)
            ]
        )
    except Exception as error:
        raise explain_failure(error, statement.text, query_context) from None
    columns = tuple(
        ResultColumn(field.name, field.dataType.simpleString(), shape_of(field.dataType))
        for field in schema.fields
    )
    return QueryResult(columns, _rows(exact_rows, columns, statement, limit, query_context), limit)


def _rows(
    rows: DataFrame,
    columns: tuple[ResultColumn, ...],
    statement: Statement,
    limit: int | None,
    query_context: QueryContext,
) -> Iterator[tuple[ResultValue, ...]]:
    if not columns:
        return
    shapes = [column.shape for column in columns]
    try:
        result_rows: Iterable[Any] = (
            rows.limit(limit + 1).collect()
            if limit is not None
            else rows.toLocalIterator(prefetchPartitions=True)
        )
        for row in result_rows:
            yield tuple(
                decode_value(value, shape) for value, shape in zip(row, shapes, strict=True)
            )
    except GeneratorExit:
        raise
    except Exception as error:
        raise explain_failure(error, statement.text, query_context) from None
