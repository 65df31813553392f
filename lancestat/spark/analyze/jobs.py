"""Analyzes tables in Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError
from lancestat.redact import secret_values
from lancestat.spark.analyze.scan_task import RangePartials, ScanPartials, ScanTask, scan_table
from lancestat.spark.analyze.work import OnProgress, TableScan, WorkItem
from lancestat.spark.session.failure import job_error
from lancestat.spark.session.jobs import ListAccumulatorParam, job_group
from lancestat.spark.session.start import task_threads

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
        spark: A classic session.
        table: What to read.
        storage_options: How to reach it; travels inside tasks only, never as a Spark property.
        group: The Spark job group, by which the reading can be cancelled.
        on_progress: Called as tasks end.

    Raises:
        LakeError: The dataset was replaced, or cannot be opened.
        FragmentNotAnalyzed: Rows cannot be read or analyzed, after Spark's own retries.
        JobFailed: The job failed otherwise.
        Cancelled: The job was cancelled.
    """
    context = spark.sparkContext

    def run(
        task: ScanTask,
        items: Sequence[WorkItem],
        listener: Callable[[Sequence[int]], None],
        description: str,
    ) -> list[RangePartials]:
        accumulator = context.accumulator([], ListAccumulatorParam(listener))

        def read(partition: Iterator[WorkItem]) -> Iterator[RangePartials]:
            for partials in task(partition):
                yield partials
                accumulator.add([partials.range.scan])

        try:
            with job_group(context, group, description):
                # Not a DataFrame: its rows, storage options included, would show in Spark's user
                # interface.
                rdd = context.parallelize(items, len(items)).mapPartitions(read)
                done: list[RangePartials] = rdd.collect()
                return done
        except Exception as error:
            raise explain(error, table, storage_options) from None

    return scan_table(
        table,
        storage_options,
        run,
        cores=context.defaultParallelism,
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
