"""The work items of an analysis: what each Spark task reads of one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lancestat.lake.row_ranges import ANALYSIS, RowRange, Span, TaskSizes
from lancestat.lake.row_ranges import split as split_spans
from lancestat.state.identity import weight
from lancestat.tables.action import Scan, TableVersion

PARTIALS_PER_JOB = 32_768

_CELL_WEIGHT = 1


@dataclass(frozen=True, slots=True)
class TableScan:
    """The scans of one table; `node` names it in Spark's user interface."""

    node: str
    table: TableVersion
    scans: tuple[Scan, ...]

    @property
    def column_names(self) -> dict[str, str]:
        """Return column names by the keys of their partials."""
        return {self.table.stored_key(field): field.name for field in self.table.fields}


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Live rows of one scan.

    `scan` is an index into the scans that were split, `row_bytes` estimates the bytes on disk of a
    row, and `parts` is the number of ranges that the scan was split into.
    """

    scan: int
    rows: RowRange
    row_bytes: int
    parts: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The ranges that one Spark task reads."""

    ranges: tuple[ScanRange, ...]
    weight: float


def weigh(scan: Scan, sizes: TaskSizes = ANALYSIS) -> int:
    """Return the cost of a scan, in bytes read from disk or their equivalent in processor time.

    Well compressed columns still cost time per cell, and tiny fragments the time to open them.
    """
    return sizes.per_fragment + scan.size_bytes + _CELL_WEIGHT * scan.rows * len(scan.fields)


def split(scans: Sequence[Scan], cores: int, sizes: TaskSizes = ANALYSIS) -> tuple[WorkItem, ...]:
    """Split heavy scans by rows and put light ones together, heaviest item first.

    Every row of every scan is in exactly one range. Taken heaviest first by idle cores, the items
    end within one item's time of each other (R. L. Graham, Bounds on Multiprocessing Timing
    Anomalies, 1969).
    """
    spans = [Span(scan.fragment_id, scan.rows, weigh(scan, sizes)) for scan in scans]
    tasks = split_spans(spans, cores, sizes)
    parts = Counter(index for task in tasks for index, _ in task)

    def scan_range(index: int, rows: RowRange) -> ScanRange:
        scan = scans[index]
        return ScanRange(index, rows, scan.size_bytes // (scan.rows or 1), parts[index])

    items = (
        WorkItem(
            tuple(scan_range(index, rows) for index, rows in task),
            sum(_share(spans[index], rows) for index, rows in task),
        )
        for task in tasks
    )
    return tuple(sorted(items, key=lambda item: -item.weight))


def _share(span: Span, rows: RowRange) -> float:
    """Return the weight of a range of a span."""
    count = span.rows - rows.offset if rows.count is None else rows.count
    return span.weight * (count / span.rows if span.rows else 1)


def jobs(scans: Sequence[Scan], limit: int = PARTIALS_PER_JOB) -> Iterator[Sequence[Scan]]:
    """Yield consecutive scans that have at most `limit` partials together, but at least one scan.

    A partial with quantiles counts as the several that it is as large as.

    A job's results are held in the driver at once; this bounds them for tables of any size.
    """
    start = count = 0
    for index, scan in enumerate(scans):
        if count and count + weight(scan.fields) > limit:
            yield scans[start:index]
            start, count = index, 0
        count += weight(scan.fields)
    if start < len(scans):
        yield scans[start:]


# Fragments and bytes of one table read so far; called from a thread of the engine's.
OnProgress = Callable[[int, int], None]


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
            # Spark's scheduler waits for this thread: a failing listener must not stop the run.
            self._on_progress = None
