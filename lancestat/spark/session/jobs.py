"""Runs Spark jobs: named groups, progress, and Python functions over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Put jobs that this thread starts within the block into a group, by which to cancel them.

    Afterwards the thread has the group that it had before: jobs of others must not be of one that
    may have been cancelled for good.
    """
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    context.setJobGroup(group, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


T = TypeVar("T")


class ListAccumulatorParam(AccumulatorParam[list[T]], Generic[T]):  # type: ignore[misc]
    """Passes the reports of finished tasks to a listener.

    Spark applies a task's updates once, when the task succeeds, whatever retries it took. On the
    driver `listener` receives them at that moment; it does not travel to the workers.
    """

    def __init__(self, listener: Callable[[Sequence[T]], None] | None = None) -> None:
        self.listener = listener

    def __reduce__(self) -> tuple[type[ListAccumulatorParam[T]], tuple[()]]:
        return ListAccumulatorParam, ()

    def zero(self, value: list[T]) -> list[T]:
        """Return an empty list."""
        return []

    def addInPlace(self, value1: list[T], value2: list[T]) -> list[T]:  # noqa: N802
        """Join two lists; on the driver the listener gets the second instead."""
        if self.listener is None:
            value1.extend(value2)
        else:
            self.listener(value2)
        return value1


Function = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def map_in_arrow(rows: DataFrame, function: Function, schema: str) -> DataFrame:
    """Apply a function to the batches of each partition.

    PySpark asks for pandas in `mapInArrow`, which neither its workers nor the function use; this
    builds the same plan without asking.

    Args:
        rows: A DataFrame of a classic session.
        function: Pickled, and called once for each partition.
        schema: What it yields, as DDL.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(rows[name] for name in rows.columns))
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)
