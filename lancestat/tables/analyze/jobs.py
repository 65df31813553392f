"""Analyzes tables in Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError
from lancestat.redact import secret_values
from lancestat.spark.failure import job_error
from lancestat.spark.jobs import jobs_of
from lancestat.spark.session import task_threads
from lancestat.tables.analyze.scan_task import (
    OnProgress,
    RangePartials,
    ScanPartials,
    ScanTask,
    TableScan,
    WorkItem,
    scan_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analyze_table(
    spark: SparkSession,
    table: TableScan,
    storage_options: Mapping[str, str],
    *,
    group: str,
    on_progress: OnProgress | None = None,
) -> Iterator[ScanPartials]:
    """Read the scans of a table on Spark and yield the partials of each scan once.

    Args:
        spark: A session, classic or of Spark Connect.
        table: What to read.
        storage_options: How to reach it; travels inside tasks only, never as a Spark property.
        group: The group of jobs, by which the reading can be cancelled.
        on_progress: Called as tasks end.

    Raises:
        LakeError: The dataset was replaced, or cannot be opened.
        FragmentNotAnalyzed: Rows cannot be read or analyzed, after Spark's own retries.
        JobFailed: The job failed otherwise.
        Cancelled: The job was cancelled.
    """
    jobs = jobs_of(spark)

    def run(
        task: ScanTask,
        items: Sequence[WorkItem],
        listener: Callable[[Sequence[int]], None],
        description: str,
    ) -> list[RangePartials]:
        def read(partition: Iterable[WorkItem]) -> Iterator[tuple[RangePartials, list[int]]]:
            for partials in task(partition):
                yield partials, [partials[0].scan]

        try:
            with jobs.group(group, description):
                return jobs.run(read, items, listener)
        except Exception as error:
            raise explain(error, table, storage_options) from None

    return scan_table(
        table,
        storage_options,
        run,
        cores=jobs.cores,
        threads=task_threads(spark),
        on_progress=on_progress,
    )


def explain(
    error: Exception, table: TableScan, storage_options: Mapping[str, str]
) -> LancestatError:
    """Return the error to show for a job over `table` that raised `error` on the driver.

    What a worker raised comes back as it was; anything else becomes `Cancelled` when the
    job was cancelled, else `JobFailed` with the cause of the last failed task.
    """
    uri, secrets = table.table.uri, secret_values(storage_options)
    job = f"the Spark job over {uri}"
    return job_error(error, f"reading {uri}", secrets, job=job)
