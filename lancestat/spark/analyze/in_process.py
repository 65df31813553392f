"""Analyzes tables of which little is to be read in this process, without the start of Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from lancestat.errors import Cancelled, LancestatError
from lancestat.plan.actions import TableVersion
from lancestat.plan.stages import Scan
from lancestat.spark.analyze.scan_task import RangePartials, ScanTask, scan_table
from lancestat.spark.analyze.work import TableScan, WorkItem
from lancestat.spec.model import Target
from lancestat.spec.spark_master import LOCAL_ATTEMPTS, local_cores
from lancestat.statistics.partial import ColumnPartial


class ProcessScanner:
    """Scans tables in threads of this process, one for each core that the target's Spark would use.

    The ranges, the kernel and the attempts are those of a job on Spark, and so are the partials.

    Args:
        target: How to reach the tables, and how many cores to use.
        on_progress: Receives a node's name with its fragments and bytes read so far.
    """

    def __init__(
        self, target: Target, on_progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        self._options = target.storage_options
        self._cores = local_cores(target.master or "") or os.cpu_count() or 1
        self._on_progress = on_progress
        self._cancelled = threading.Event()
        # All tables share the cores.
        self._pool = ThreadPoolExecutor(self._cores, "lancestat-scan")

    def __enter__(self) -> ProcessScanner:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def scan(
        self, node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        """Read scans of a table; yield each once with its partials by field key.

        Raises:
            LancestatError: What reading a fragment raised, after as many attempts as on Spark;
                `Cancelled` when it was cancelled.
        """
        uri = table.uri

        def read(task: ScanTask, item: WorkItem, listener: _Listener) -> list[RangePartials]:
            for attempt in range(1, LOCAL_ATTEMPTS + 1):
                try:
                    done = []
                    for part in item.ranges:
                        self._refuse_when_cancelled(uri)
                        done.append(task.read(part))
                    break
                except Cancelled:
                    raise
                except LancestatError:
                    if attempt == LOCAL_ATTEMPTS:
                        raise
            listener([partials.range.scan for partials in done])
            return done

        def run(
            task: ScanTask, items: Sequence[WorkItem], listener: _Listener, _: str
        ) -> list[RangePartials]:
            lock = threading.Lock()

            def one_at_a_time(scans_done: Sequence[int]) -> None:
                with lock:
                    listener(scans_done)

            self._refuse_when_cancelled(uri)
            futures = [self._pool.submit(read, task, item, one_at_a_time) for item in items]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                return [partials for future in futures for partials in future.result()]
            finally:
                for future in futures:
                    future.cancel()

        for scanned in scan_table(
            TableScan(node, table, tuple(scans)),
            self._options,
            run,
            cores=self._cores,
            on_progress=lambda fragments, size: self._advance(node, fragments, size),
        ):
            self._refuse_when_cancelled(uri)
            yield scanned.scan, scanned.partials

    def cancel(self) -> None:
        """End every scan after the ranges that are being read, and refuse further ones."""
        self._cancelled.set()

    def _refuse_when_cancelled(self, uri: str) -> None:
        if self._cancelled.is_set():
            raise Cancelled(f"reading {uri} was cancelled")

    def _advance(self, node: str, fragments: int, size_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(node, fragments, size_bytes)


_Listener = Callable[[Sequence[int]], None]
