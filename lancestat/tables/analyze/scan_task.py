"""Reads the scans of a table: work items in, encoded partials out, wherever the items are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lancestat.errors import FragmentNotAnalyzed, LancestatError
from lancestat.lake.open import portable
from lancestat.lake.snapshot import Pin
from lancestat.redact import redact_line, secret_values
from lancestat.spark.failure import WorkerError
from lancestat.spark.python import prepare_worker
from lancestat.state.identity import has_quantiles
from lancestat.tables.action import Scan
from lancestat.tables.analyze.work import (
    OnProgress,
    ScanProgress,
    ScanRange,
    TableScan,
    WorkItem,
    jobs,
    split,
)
from lancestat.tables.statistics.partial import ColumnPartial, decode, encode, merge


@dataclass(frozen=True, slots=True)
class RangePartials:
    """Encoded partials of one range of a scan by field key."""

    range: ScanRange
    encoded: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Reads work items of one pinned table; pickled into the Spark job.

    `columns` names the columns of every scan of the job by field key.
    """

    pin: Pin
    columns: tuple[Mapping[str, str], ...]
    storage_options: Mapping[str, str] = field(repr=False)
    threads: int = 1

    def __call__(self, items: Iterable[WorkItem]) -> Iterator[RangePartials]:
        """Yield the partials of every range of every item.

        Raises:
            WorkerError: anything went wrong; its text carries the `LancestatError` to the driver.
        """
        prepare_worker(self.threads, "lancestat.tables.statistics.kernel")
        try:
            for item in items:
                yield from map(self.read, item.ranges)
        except LancestatError as error:
            raise WorkerError.carrying(error) from None

    def read(self, part: ScanRange) -> RangePartials:
        """Return the partials of one range.

        Raises:
            LakeError: its dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: its rows cannot be read or analyzed.
        """
        import pyarrow as pa

        from lancestat.spark.fragment_reader import pinned_dataset, read_range
        from lancestat.tables.statistics.kernel import analyze

        columns = self.columns[part.scan]
        names = tuple(columns.values())
        dataset = pinned_dataset(self.pin, self.storage_options)
        try:
            batches = read_range(
                dataset, part.rows, names, self.storage_options, row_bytes=part.row_bytes
            )
            schema = pa.schema([dataset.schema.field(name) for name in names])
            quantiles = {name for key, name in columns.items() if has_quantiles(key)}
            partials = analyze(batches, schema, quantiles=quantiles)
            return RangePartials(
                part, {key: encode(partials[name]) for key, name in columns.items()}
            )
        except LancestatError:
            raise
        except Exception as error:
            secrets = secret_values(self.storage_options)
            cause = redact_line(f"{type(error).__name__}: {error}", secrets)
            subject = (
                f"fragment {part.rows.fragment_id} of {self.pin.uri} at version {self.pin.version}"
            )
            raise FragmentNotAnalyzed(f"{subject} cannot be analyzed: {cause}") from error


@dataclass(frozen=True, slots=True)
class ScanPartials:
    """All partials of one scan by field key."""

    scan: Scan
    partials: Mapping[str, ColumnPartial]


# Reads all items of a job, and tells the listener the scan of each range that has been read. What
# it yields before it fails has been read all the same.
RunItems = Callable[
    [ScanTask, Sequence[WorkItem], Callable[[Sequence[int]], None], str], Iterable[RangePartials]
]


def scan_table(
    table: TableScan,
    storage_options: Mapping[str, str],
    run: RunItems,
    *,
    cores: int,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Iterator[ScanPartials]:
    """Read the scans of a table and yield the partials of each scan once.

    A table of many partials takes several jobs, one after the other, so that the driver holds only
    some of them. The partials do not depend on where or in which order the items are read.

    Args:
        table: What to read.
        storage_options: How to reach it.
        run: Reads the items of a job; receives its description, too.
        cores: For how many cores the scans are split.
        threads: The cores of each task.
        on_progress: Called as ranges have been read.
    """
    progress = ScanProgress(on_progress)
    names = table.column_names
    columns: dict[frozenset[str], Mapping[str, str]] = {}
    for scan in table.scans:
        columns.setdefault(scan.fields, {key: names[key] for key in sorted(scan.fields)})
    for scans in jobs(table.scans):
        items = split(scans, cores)
        task = ScanTask(
            pin=table.table.pin,
            columns=tuple(columns[scan.fields] for scan in scans),
            storage_options=portable(storage_options),
            threads=threads,
        )
        parts = [0] * len(scans)
        for item in items:
            for part in item.ranges:
                parts[part.scan] = part.parts
        description = f"lancestat: {table.node}: {len(scans)} scans in {len(items)} tasks"
        done: list[RangePartials] = []
        try:
            for partials in run(task, items, progress.listener(scans, parts), description):
                done.append(partials)
        except (Exception, KeyboardInterrupt):
            yield from _assemble(scans, done)
            raise
        assert len(done) == sum(parts), "a job that succeeds has read all ranges"
        yield from _assemble(scans, done)


def _assemble(scans: Sequence[Scan], done: list[RangePartials]) -> Iterator[ScanPartials]:
    """Yield the partials of the scans all of whose ranges are done."""
    by_scan: dict[int, list[RangePartials]] = defaultdict(list)
    while done:
        partials = done.pop()
        by_scan[partials.range.scan].append(partials)
    for index, scan in enumerate(scans):
        parts = by_scan.pop(index, [])
        if not parts or len(parts) < parts[0].range.parts:
            continue
        yield ScanPartials(
            scan,
            {key: merge(decode(part.encoded[key]) for part in parts) for key in scan.fields},
        )
