"""Runs a query and gives its rows as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lancestat.spark.plain import plain, shape_of, to_plain
from lancestat.spark.query_failure import NOTHING_AROUND, Surroundings, explain_failure
from lancestat.spark.query_logger import silent_query_logger
from lancestat.spark.query_result import Plain, QueryResult, ResultColumn
from lancestat.spark.session import active, optimizer_settings, running_session, start_session
from lancestat.spark.statement import Statement
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP_NAME = "lancestat sql"


@contextmanager
def query_session(target: Target) -> Iterator[SparkSession]:
    """A session for queries, with the cost-based optimizer on unless the target decides otherwise.

    Where the process has a session already, a new one beside it is used, so that neither sees the
    other's views and settings, and Spark goes on running.

    Raises:
        RunError: Spark does not start (LS520 to LS523).
    """
    running = running_session()
    session = running.newSession() if running else start_session(target, APP_NAME)
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
    surroundings: Surroundings = NOTHING_AROUND,
    *,
    limit: int | None = None,
    local_time: bool = False,
) -> QueryResult:
    """Run a statement; rows are computed as they are asked for where no limit is given.

    Args:
        spark: The session with what the statement names.
        statement: From `parse` with the same session.
        surroundings: What errors speak of.
        limit: Compute one row more than these, so that it is seen whether there are more.
        local_time: See `plain`.

    Raises:
        LancestatError: Spark refuses the query, here or when rows are read (see `explain_failure`).
    """
    try:
        rows = spark.sql(statement.text.text)
        schema = rows.schema
        # Columns of a result may share a name, which nothing but a place tells apart.
        numbered = rows.toDF(*[f"_{index}" for index in range(len(schema.fields))])
        wanted = numbered.select(
            *[
                plain(numbered[f"_{index}"], field.dataType, local_time=local_time).alias(
                    f"_{index}"
                )
                for index, field in enumerate(schema.fields)
            ]
        )
    except Exception as error:
        raise explain_failure(error, statement.text, surroundings) from None
    columns = tuple(
        ResultColumn(field.name, field.dataType.simpleString(), shape_of(field.dataType))
        for field in schema.fields
    )
    return QueryResult(columns, _rows(wanted, columns, statement, limit, surroundings), limit)


def _rows(
    rows: DataFrame,
    columns: tuple[ResultColumn, ...],
    statement: Statement,
    limit: int | None,
    surroundings: Surroundings,
) -> Iterator[tuple[Plain, ...]]:
    if not columns:
        return
    shapes = [column.shape for column in columns]
    try:
        found: Iterable[Any] = (
            rows.limit(limit + 1).collect()
            if limit is not None
            else rows.toLocalIterator(prefetchPartitions=True)
        )
        for row in found:
            yield tuple(to_plain(value, of) for value, of in zip(row, shapes, strict=True))
    except GeneratorExit:
        raise
    except Exception as error:
        raise explain_failure(error, statement.text, surroundings) from None
