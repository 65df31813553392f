"""Analyzes tables of which little is to be read in this process, without the start of Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from types import TracebackType

from lancestat.errors import Cancelled, LancestatError
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import Target
from lancestat.spec.spark_master import LOCAL_ATTEMPTS, local_cores
from lancestat.tables.action import Scan, TableVersion
from lancestat.tables.analyze.scan_task import (
    RangePartials,
    ScanTask,
    TableScan,
    WorkItem,
    scan_table,
)
from lancestat.tables.statistics.partial import ColumnPartial

# Receives the scans of ranges that have been read.
Listener = Callable[[Sequence[int]], None]


class ProcessScanner:
    """Scans tables in threads of this process, one for each core that the target's Spark would use.

    The ranges, the kernel and the attempts are those of a job on Spark, and so are the partials.

    Args:
        target: How many cores to use.
        on_progress: Receives a node's name with its fragments and bytes read so far.
        options: How to reach the tables; the target's storage options when None.
    """

    def __init__(
        self,
        target: Target,
        on_progress: Callable[[str, int, int], None] | None = None,
        options: UriOptions | None = None,
    ) -> None:
        self._options = options or UriOptions(target.storage_options)
        self._cores = local_cores(target.master or "") or os.cpu_count() or 1
        self._on_progress = on_progress
        self._cancelled = threading.Event()
        # All tables share the cores.
        self._pool = ThreadPoolExecutor(self._cores, "lancestat-scan")

    def __enter__(self) -> ProcessScanner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.cancel()
        # The run has waited for those who end soon, see `Scheduler`.
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._pool.shutdown(wait=not is_interrupted, cancel_futures=True)

    def scan(
        self, node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        """Read scans of a table; yield each once with its partials by field key.

        Raises:
            LakeError: The dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: Rows cannot be read or analyzed, after all attempts.
            Cancelled: It was cancelled.
        """
        return scan_table(
            TableScan(node, table, tuple(scans)),
            self._options.of(table.uri),
            self._run,
            cores=self._cores,
            on_progress=lambda fragments, size: self._advance(node, fragments, size),
        )

    def _run(
        self, task: ScanTask, items: Sequence[WorkItem], listener: Listener, description: str
    ) -> Iterator[RangePartials]:
        lock = threading.Lock()
        done: list[list[RangePartials]] = [[] for _ in items]

        def read(item: WorkItem, partials: list[RangePartials]) -> None:
            self._read(task, item, partials)
            with lock:
                listener([part.scan for part, _ in partials])

        self._refuse_when_cancelled(task.pin.uri)
        futures = [self._pool.submit(read, *each) for each in zip(items, done, strict=True)]
        try:
            ended = wait(futures, return_when=FIRST_EXCEPTION).done
        finally:
            for future in futures:
                future.cancel()
        for partials in done:
            yield from tuple(partials)
        for future in ended:
            future.result()

    def _read(self, task: ScanTask, item: WorkItem, done: list[RangePartials]) -> None:
        """Add the partials of an item's ranges to those that are done."""
        for _ in range(LOCAL_ATTEMPTS - 1):
            try:
                return self._attempt(task, item, done)
            except Cancelled:
                raise
            except LancestatError:
                continue
        return self._attempt(task, item, done)

    def _attempt(self, task: ScanTask, item: WorkItem, done: list[RangePartials]) -> None:
        for part in item[len(done) :]:
            self._refuse_when_cancelled(task.pin.uri)
            done.append(task.read(part))

    def cancel(self) -> None:
        """End every scan after the ranges that are being read, and refuse further ones."""
        self._cancelled.set()

    def _refuse_when_cancelled(self, uri: str) -> None:
        if self._cancelled.is_set():
            raise Cancelled(f"reading {uri} was cancelled")

    def _advance(self, node: str, fragments: int, size_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(node, fragments, size_bytes)
