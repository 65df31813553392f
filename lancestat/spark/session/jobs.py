"""Runs Spark jobs: named groups and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import SparkContext

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
