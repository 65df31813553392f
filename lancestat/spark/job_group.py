"""Names the jobs of a thread for as long as they are ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Jobs that this thread starts within the block are of a group, by which to cancel them.

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
