"""Runs Spark jobs: named groups, progress, and Python functions over Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.accumulators import AccumulatorParam

from lancestat.plan.stages import Scan

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


# Fragments and bytes of one table read so far; called from a thread of Spark's.
OnProgress = Callable[[int, int], None]


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


class ScanProgress:
    """Fragments and bytes read so far of one table."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._fragments: set[int] = set()
        self._bytes = 0

    def listener(
        self, scans: Sequence[Scan], parts: Sequence[int]
    ) -> Callable[[Sequence[int]], None]:
        """Return a listener for the finished parts of one job; `parts` is their number per scan."""
        left = list(parts)

        def add(done: Sequence[int]) -> None:
            for index in done:
                left[index] -= 1
                self._bytes += scans[index].size_bytes // parts[index]
                if left[index] == 0:
                    self._fragments.add(scans[index].fragment_id)
            self._report()

        return add

    def _report(self) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(len(self._fragments), self._bytes)
        except Exception:
            # Spark's scheduler waits for this thread, so a failing listener must not stop the run.
            self._on_progress = None


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
