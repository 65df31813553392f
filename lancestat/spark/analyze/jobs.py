"""Spark jobs that turn the scans of one table into partials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import LancestatError, ScanFailed
from lancestat.plan.stages import Scan
from lancestat.redact import secret_values
from lancestat.spark.analyze.scan_task import RangePartials, ScanTask
from lancestat.spark.analyze.work import TableScan, WorkItem, jobs, split
from lancestat.spark.session.failure import job_error
from lancestat.spark.session.jobs import ListAccumulatorParam, OnProgress, ScanProgress, job_group
from lancestat.spark.session.start import task_threads
from lancestat.statistics.partial import ColumnPartial, decode, merge

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ScanPartials:
    """All partials of one scan by field key."""

    scan: Scan
    partials: Mapping[str, ColumnPartial]


def analyze_table(
    spark: SparkSession,
    table: TableScan,
    storage_options: Mapping[str, str],
    *,
    group: str,
    on_progress: OnProgress | None = None,
) -> Iterator[ScanPartials]:
    """Read the scans of a table on Spark and yield the partials of each scan once.

    A table of many partials takes several jobs, one after the other, so that the driver holds only
    some of them.

    Args:
        spark: A classic session.
        table: What to read.
        storage_options: How to reach it; travels inside tasks only, never as a Spark property.
        group: The Spark job group, by which the reading can be cancelled.
        on_progress: Called as tasks end.

    Raises:
        LancestatError: What a worker raised, after Spark's own retries.
        ScanFailed: The job failed otherwise.
        Cancelled: The job was cancelled.
    """
    context = spark.sparkContext
    tally = ScanProgress(on_progress)
    names = table.column_names
    columns: dict[frozenset[str], Mapping[str, str]] = {}
    for scan in table.scans:
        columns.setdefault(scan.fields, {key: names[key] for key in sorted(scan.fields)})
    for scans in jobs(table.scans):
        items = split(scans, context.defaultParallelism)
        task = ScanTask(
            pin=table.table.pin,
            columns=tuple(columns[scan.fields] for scan in scans),
            storage_options=dict(storage_options),
            threads=task_threads(spark),
        )
        description = f"lancestat: {table.node}: {len(scans)} scans in {len(items)} tasks"
        try:
            with job_group(context, group, description):
                done = _run(context, task, items, scans, tally)
        except Exception as error:
            raise explain(error, table, storage_options) from None
        yield from _assemble(scans, done)


def _run(
    context: SparkContext,
    task: ScanTask,
    items: Sequence[WorkItem],
    scans: Sequence[Scan],
    tally: ScanProgress,
) -> list[RangePartials]:
    parts = [0] * len(scans)
    for item in items:
        for part in item.ranges:
            parts[part.scan] = part.parts
    param = ListAccumulatorParam(tally.listener(scans, parts))
    accumulator = context.accumulator([], param)

    def read(partition: Iterator[WorkItem]) -> Iterator[RangePartials]:
        for partials in task(partition):
            yield partials
            accumulator.add([partials.range.scan])

    # Not a DataFrame: its rows, storage options included, would show in Spark's user interface.
    rdd = context.parallelize(items, len(items)).mapPartitions(read)
    done: list[RangePartials] = rdd.collect()
    return done


def _assemble(scans: Sequence[Scan], done: list[RangePartials]) -> Iterator[ScanPartials]:
    by_scan: dict[int, list[RangePartials]] = defaultdict(list)
    while done:
        partials = done.pop()
        by_scan[partials.range.scan].append(partials)
    for index, scan in enumerate(scans):
        parts = by_scan.pop(index)
        yield ScanPartials(
            scan,
            {key: merge(decode(part.encoded[key]) for part in parts) for key in scan.fields},
        )


def explain(
    error: Exception, table: TableScan, storage_options: Mapping[str, str]
) -> LancestatError:
    """Return the error to show for a job over `table` that raised `error` on the driver.

    What a worker raised comes back as it was; anything else becomes `Cancelled` when the
    job was cancelled, else `ScanFailed` with the cause of the last failed task.
    """
    uri, secrets = table.table.uri, secret_values(storage_options)
    job = f"the Spark job over {uri}"
    return job_error(error, ScanFailed, f"reading {uri}", secrets, job=job)
