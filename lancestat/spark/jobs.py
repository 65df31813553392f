"""Runs Python functions as Spark jobs, in classic sessions and in those of Spark Connect."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pyspark.accumulators import AccumulatorParam

from lancestat.spark.versions import (
    cancel_jobs,
    cancel_until,
    is_connect,
    own_python,
    thread_target,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession


_GROUP = "spark.jobGroup.id"
_PROPERTIES = (_GROUP, "spark.job.tags", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Put jobs that this thread starts within the block into a group, by which to cancel them.

    Where the caller has put the thread into a group, the jobs stay in that, so that cancelling it
    ends them too, and have the name as a tag. Afterwards the thread has the group that it had
    before: jobs of others must not be of one that may have been cancelled for good.
    """
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    if before[_GROUP] is None:
        context.setJobGroup(group, description, interruptOnCancel=True)
    else:
        context.addJobTag(group)
        context.setLocalProperty("spark.job.description", description)
        context.setLocalProperty("spark.job.interruptOnCancel", "true")
    try:
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")
Value = TypeVar("Value")
Result = TypeVar("Result")
Report = TypeVar("Report")
# Each result of a task comes with reports of progress, which the listener of the job receives.
Task = Callable[[Iterable[Item]], Iterator[tuple[Result, Sequence[Report]]]]
Listener = Callable[[Sequence[Report]], None]


class ListAccumulatorParam(AccumulatorParam[list[T]], Generic[T]):  # type: ignore[misc]
    """Passes the reports of finished tasks to a listener on the driver, once for each task."""

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


@dataclass(frozen=True, slots=True)
class Merging(Generic[Value, Result, Report]):
    """A second step of a job, over the numbered values that the first step returned.

    `merge` combines two values of one of the numbers below `groups`, in any order; `task` then runs
    on each merged value.
    """

    groups: int
    merge: Callable[[Value, Value], Value]
    task: Task[tuple[int, Value], Result, Report]


@dataclass(frozen=True, slots=True)
class ClassicJobs:
    """Jobs over RDDs of pickled functions: a fifth faster than by Spark SQL, more in a cold JVM."""

    spark: SparkSession

    @property
    def cores(self) -> int:
        """The number of tasks that run concurrently."""
        return int(self._context.defaultParallelism)

    @property
    def application(self) -> str:
        """The id of the application, or of the session on a server of many."""
        return str(self._context.applicationId)

    def group(self, name: str, description: str) -> AbstractContextManager[None]:
        """Put jobs that this thread starts within the block into a group, to cancel them by it."""
        return job_group(self._context, name, description)

    def inherited(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that other threads may call, with this thread's group."""
        return thread_target(self.spark, function)

    def cancel(self, name: str, is_over: Callable[[], bool]) -> None:
        """Cancel the jobs of a group, and those that it starts later until `is_over`."""
        cancel_jobs(self._context, name, is_over)

    def run(
        self,
        task: Task[Item, Result, Report],
        items: Sequence[Item],
        listener: Listener[Report] | None = None,
    ) -> list[Result]:
        """Run a task for each item; return the results in the order of the items."""
        # Not a DataFrame of items: its rows would show in Spark's user interface.
        rdd = self._context.parallelize(items, len(items))
        return self._collected(rdd.mapPartitions(self._reporting(task, listener)))

    def run_merged(
        self,
        task: Task[Item, tuple[int, Value], Report],
        merging: Merging[Value, Result, Report],
        items: Sequence[Item],
        listener: Listener[Report] | None = None,
    ) -> list[Result]:
        """Run a task for each item, and another for each number; results come in any order."""

        def merged(pairs: Iterable[tuple[int, Value]]) -> Iterator[tuple[Result, Sequence[Report]]]:
            held: dict[int, Value] = {}
            for number, value in pairs:
                held[number] = merging.merge(held[number], value) if number in held else value
            return merging.task(held.items())

        rdd = self._context.parallelize(items, len(items))
        rdd = rdd.mapPartitions(self._reporting(task, listener))
        with own_python(self.spark):
            # Not `reduceByKey`: it compresses what large workers hold, and writes it to disk.
            rdd = rdd.partitionBy(merging.groups)
        return self._collected(rdd.mapPartitions(self._reporting(merged, listener)))

    def _collected(self, rdd: RDD[Result]) -> list[Result]:
        with own_python(self.spark):
            # Makes the function, and keeps it.
            _ = rdd._jrdd
        return list(rdd.collect())

    def _reporting(
        self, task: Task[Item, Result, Report], listener: Listener[Report] | None
    ) -> Callable[[Iterable[Item]], Iterator[Result]]:
        if listener is None:
            return lambda partition: (result for result, _ in task(partition))
        accumulator = self._context.accumulator([], ListAccumulatorParam(listener))

        def reporting(partition: Iterable[Item]) -> Iterator[Result]:
            for result, reports in task(partition):
                yield result
                accumulator.add(list(reports))

        return reporting

    @property
    def _context(self) -> SparkContext:
        return self.spark.sparkContext


_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")


@dataclass(frozen=True, slots=True)
class ConnectJobs:
    """`ClassicJobs` over `spark.range`, with what they are about inside the function that is run.

    So nothing of it shows in plans, in event logs and in Spark's user interface. There are no
    accumulators: a job's reports come with its results, which arrive in the order of the items
    while later ones are being worked on.
    """

    spark: SparkSession

    @property
    def cores(self) -> int:
        # The number of partitions that Spark gives a range is the default parallelism.
        plan = self.spark.range(1 << 20)._explain_string()
        splits = _SPLITS.search(plan)
        return int(splits.group(1)) if splits else 1

    @property
    def application(self) -> str:
        return f"connect-{self._session.session_id}"

    @contextmanager
    def group(self, name: str, description: str) -> Iterator[None]:
        self._session.addTag(name)
        try:
            yield
        finally:
            self._session.removeTag(name)

    def inherited(self, function: Callable[P, R]) -> Callable[P, R]:
        tags = tuple(self._session.getTags())

        def tagged(*args: P.args, **kwargs: P.kwargs) -> R:
            for tag in tags:
                self._session.addTag(tag)
            try:
                return function(*args, **kwargs)
            finally:
                for tag in tags:
                    self._session.removeTag(tag)

        return tagged

    def cancel(self, name: str, is_over: Callable[[], bool]) -> None:
        cancel_until(lambda: self._session.interruptTag(name), is_over)

    def run(
        self,
        task: Task[Item, Result, Report],
        items: Sequence[Item],
        listener: Listener[Report] | None = None,
    ) -> list[Result]:
        pickled = [pickle.dumps(item) for item in items]

        def run_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for done in task(_chosen(batches, pickled)):
                yield _binary(done)

        rows = self._range(len(items)).mapInArrow(run_items, "done binary")
        return list(_results(rows, listener))

    def run_merged(
        self,
        task: Task[Item, tuple[int, Value], Report],
        merging: Merging[Value, Result, Report],
        items: Sequence[Item],
        listener: Listener[Report] | None = None,
    ) -> list[Result]:
        pickled = [pickle.dumps(item) for item in items]

        def run_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (number, value), reports in task(_chosen(batches, pickled)):
                yield _binary((value, reports), number)

        def run_merging(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, values in groupby(_numbered(batches), lambda row: row[0]):
                value: Any = None
                steps: list[Report] = []
                for _, (more, reports) in values:
                    value = more if value is None else merging.merge(value, more)
                    steps += reports
                for result, reports in merging.task([(number, value)]):
                    yield _binary((result, [*steps, *reports]))

        rows = self._range(len(items)).mapInArrow(run_items, "number int, done binary")
        # Values of a number come to one task, one number after the other.
        rows = rows.repartition(merging.groups, "number").sortWithinPartitions("number")
        return list(_results(rows.mapInArrow(run_merging, "done binary"), listener))

    def _range(self, count: int) -> DataFrame:
        return self.spark.range(0, count, 1, max(1, count))

    @property
    def _session(self) -> Any:
        # What it has besides a classic session.
        return self.spark


Jobs = ClassicJobs | ConnectJobs


def jobs_of(spark: SparkSession) -> Jobs:
    """Return the jobs of a session, whichever kind it is of."""
    return ConnectJobs(spark) if is_connect(spark) else ClassicJobs(spark)


def _chosen(batches: Iterable[pa.RecordBatch], pickled: Sequence[bytes]) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pickle.loads(pickled[number])  # noqa: S301


def _binary(value: object, number: int | None = None) -> pa.RecordBatch:
    import pyarrow as pa

    numbers = {} if number is None else {"number": pa.array([number], pa.int32())}
    return pa.RecordBatch.from_pydict({**numbers, "done": pa.array([pickle.dumps(value)])})


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        for number, done in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield number, pickle.loads(done)  # noqa: S301


def _results(rows: DataFrame, listener: Listener[Any] | None) -> Iterator[Any]:
    for row in rows.toLocalIterator():
        result, reports = pickle.loads(bytes(row.done))  # noqa: S301
        if listener is not None:
            listener(reports)
        yield result
