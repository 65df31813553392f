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


# The Python form of a value of Spark's: null, boolean and integer as they are, a list for an array,
# a tuple of its fields for a struct, a list of pairs for a map, and text for everything else.
ResultValue = bool | int | str | list["ResultValue"] | tuple["ResultValue", ...] | None

ARRAY, MAP, STRUCT = "array", "map", "struct"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value is made: `kind` is Spark's type name, such as `double`.

    `parts` are the element of an array, the key and the value of a map, the fields of a struct.
    """

    kind: str
    parts: tuple[Shape, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, type: DataType) -> Shape:
        """Return the shape of values of a type."""
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(type, ArrayType):
            return cls(ARRAY, (cls.of(type.elementType),))
        if isinstance(type, MapType):
            return cls(MAP, (cls.of(type.keyType), cls.of(type.valueType)))
        if isinstance(type, StructType):
            fields = type.fields
            return cls(STRUCT, tuple(cls.of(f.dataType) for f in fields), tuple(type.names))
        return cls(type.simpleString().partition("(")[0].partition(" ")[0])

    def decode(self, value: Any) -> Any:
        """Convert what `exact_column` gave in PySpark: rows to tuples of fields, maps to pairs."""
        if value is None or not self.parts:
            return value
        if self.kind == STRUCT:
            return tuple(part.decode(item) for item, part in zip(value, self.parts, strict=True))
        if self.kind == MAP:
            key, item = self.parts
            return [(key.decode(pair[0]), item.decode(pair[1])) for pair in value]
        return [self.parts[0].decode(item) for item in value]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column; `type` is Spark's catalog string, `shape` says how values are to be read."""

    name: str
    type: str
    shape: Shape


def exact_column(column: Column, type: DataType, *, local_time: bool) -> Column:
    """Return an expression that gives a column's values in a form that PySpark does not change.

    With `local_time`, timestamps are formatted in the session's time zone, else they are
    microseconds since the epoch.
    """
    shape = Shape.of(type)
    return _exact(column.cast(_numbered(type)) if shape.parts else column, shape, local_time)


def _exact(column: Column, shape: Shape, local_time: bool) -> Column:
    from pyspark.sql import functions as f

    def part(index: int, value: Column) -> Column:
        return _exact(value, shape.parts[index], local_time)

    match shape.kind:
        case "array":
            return f.transform(column, lambda item: part(0, item))
        case "map":
            pairs = f.map_entries(column)
            return f.transform(
                pairs,
                lambda pair: f.struct(
                    part(0, pair["key"]).alias("_0"), part(1, pair["value"]).alias("_1")
                ),
            )
        case "struct":
            fields = [part(n, column[f"_{n}"]).alias(f"_{n}") for n in range(len(shape.parts))]
            return f.when(column.isNotNull(), f.struct(*fields))
        case "tinyint" | "smallint" | "int" | "bigint" | "boolean":
            return column
        case "binary":
            return f.hex(column)
        case "timestamp" if not local_time:
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
        fields = rows.schema.fields
        # Columns of a result may share a name, which nothing but a place tells apart.
        names = [f"_{index}" for index in range(len(fields))]
        numbered = rows.toDF(*names)
        exact_rows = numbered.select(
            *[
                exact_column(numbered[name], field.dataType, local_time=local_time).alias(name)
                for name, field in zip(names, fields, strict=True)
            ]
        )
    except Exception as error:
        raise explain_failure(error, statement.text, query_context) from None
    columns = tuple(
        ResultColumn(field.name, field.dataType.simpleString(), Shape.of(field.dataType))
        for field in fields
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
    try:
        result_rows: Iterable[Any] = (
            rows.limit(limit + 1).collect()
            if limit is not None
            else rows.toLocalIterator(prefetchPartitions=True)
        )
        for row in result_rows:
            yield tuple(
                column.shape.decode(value) for value, column in zip(row, columns, strict=True)
            )
    except GeneratorExit:
        raise
    except Exception as error:
        raise explain_failure(error, statement.text, query_context) from None
