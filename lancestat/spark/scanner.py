"""Spark as a run sees it: started when something must be read, stopped when the run ends."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from lancestat.errors import RunError
from lancestat.plan.actions import Scan, TableWork
from lancestat.spark.work import TableScan
from lancestat.spec.model import Target
from lancestat.stats.partial import ColumnPartial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_NAME = "lancestat"


class SparkScanner:
    """Scans tables on a target's Spark; no JVM starts before the first scan.

    A session that was there before is used as it is and left running. Call `scan` from one thread
    per table: Spark's FIFO scheduler gives free cores to the oldest job first, so tables that come
    early are through early, and a table that is being published leaves its cores to the others.
    Threads that wait for Spark return only when their jobs end, or after `cancel`.

    Args:
        target: Where Spark runs.
        on_progress: Receives a node's name with its fragments and bytes read so far.
    """

    def __init__(
        self, target: Target, on_progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        self._target = target
        self._on_progress = on_progress
        self._starting = threading.Lock()
        self._session: SparkSession | None = None
        self._is_own_session = False
        self._groups: set[str] = set()
        self._is_cancelled = False

    def __enter__(self) -> SparkScanner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.cancel()
        if self._session is not None and self._is_own_session:
            self._session.stop()

    def scan(
        self, node: str, work: TableWork
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        """Read the scans of a table; yields each once with its partials by field key.

        Raises:
            LancestatError: What reading a fragment raised, after Spark's own retries; LS511 when
                the Spark job failed otherwise, LS512 when it was cancelled, LS520 to LS523 when
                Spark did not start.
        """
        from lancestat.spark.partials_job import analyze_table

        if not work.scans:
            return
        session = self._started()
        group = f"{APP_NAME}-{uuid.uuid4().hex}"
        self._groups.add(group)
        try:
            self._refuse_when_cancelled(work)
            for scanned in analyze_table(
                session,
                TableScan(node, work),
                self._target.storage_options,
                group=group,
                on_progress=lambda fragments, size: self._advance(node, fragments, size),
            ):
                self._refuse_when_cancelled(work)
                yield scanned.scan, scanned.partials
        finally:
            self._groups.discard(group)

    def cancel(self) -> None:
        """Stop every scan that goes on, and refuse further ones with LS512."""
        self._is_cancelled = True
        if self._session is not None:
            context = self._session.sparkContext._jsc.sc()
            for group in tuple(self._groups):
                context.cancelJobGroupAndFutureJobs(group)

    def _started(self) -> SparkSession:
        from lancestat.spark.session import running_session, start_session

        with self._starting:
            if self._session is None:
                running = running_session()
                self._session = running or start_session(
                    self._target, APP_NAME, is_short_lived=True
                )
                self._is_own_session = running is None
            return self._session

    def _refuse_when_cancelled(self, work: TableWork) -> None:
        if self._is_cancelled:
            raise RunError("LS512", f"reading {work.uri} was cancelled")

    def _advance(self, node: str, fragments: int, size_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(node, fragments, size_bytes)
