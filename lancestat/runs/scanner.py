"""The Spark of a run: started when it is first needed, stopped when the run ends."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from lancestat.errors import Cancelled, SparkNotStarted
from lancestat.joins.search.work import JoinWork
from lancestat.joins.spark.scratch_root import CONNECT, require_shared, scratch_root
from lancestat.query.sql.query import silent_query_logger
from lancestat.runs.stages import OnStage
from lancestat.spark.failure import (
    SessionLostError,
    abandon,
    is_forgotten,
    outages_said,
)
from lancestat.spark.start import (
    is_connect,
    remote_of,
    running_session,
    start_session,
    stop_session,
)
from lancestat.spec.catalog import UriOptions
from lancestat.spec.model import Target
from lancestat.tables.action import Scan, TableVersion
from lancestat.tables.analyze.scan_task import TableScan
from lancestat.tables.statistics.partial import ColumnPartial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lancestat.joins.spark.engine import SparkJoin

APP_NAME = "lancestat"
# A server that restarts more often may do so because of what the run asks of it.
MAX_SERVER_RESTARTS = 2


class SparkScanner:
    """Scans tables and runs joins on a target's Spark; no JVM starts before the first of them.

    A session that was there before is used as it is and left running. Call `scan` from one thread
    per table: Spark's FIFO scheduler gives free cores to the oldest job first, so tables that come
    early are through early, and a table that is being published leaves its cores to the others.
    Threads that wait for Spark return only when their jobs end, or after `cancel`.

    Args:
        target: Where Spark runs.
        on_progress: Receives a node's name with its fragments and bytes read so far.
        has_joins: Whether joins are to be run, for which the JVM takes time to optimise its code.
        session: The session to use, classic or of Spark Connect; that of the thread which enters
            the scanner, or else of the process, when None.
        ends_process: Whether the process ends next, and need not wait until Spark has stopped.
        options: How to reach tables; the target's storage options when None.
    """

    def __init__(
        self,
        target: Target,
        on_progress: Callable[[str, int, int], None] | None = None,
        *,
        has_joins: bool = False,
        session: SparkSession | None = None,
        ends_process: bool = False,
        options: UriOptions | None = None,
    ) -> None:
        self._target = target
        self._options = options or UriOptions(target.storage_options)
        self._on_progress = on_progress
        self._has_joins = has_joins
        self._ends_process = ends_process
        self._starting = threading.Lock()
        self._quiet = ExitStack()
        self._given = session
        self._session: SparkSession | None = None
        self._is_own_session = False
        self._groups: set[str] = set()
        self._is_cancelled = False
        self._failure: SparkNotStarted | None = None
        self._restarts = 0

    def __enter__(self) -> SparkScanner:
        if self._given is None and "pyspark" in sys.modules:
            # Other threads, in which nodes are worked on, do not see a session of this one.
            self._given = running_session()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._quiet.close()
        if kind is not None:
            self.cancel()
        if self._session is not None and self._is_own_session:
            stop_session(self._session, ends_process=self._ends_process)

    def scan(
        self, node: str, table: TableVersion, scans: Sequence[Scan]
    ) -> Iterator[tuple[Scan, Mapping[str, ColumnPartial]]]:
        """Read scans of a table; yield each once with its partials by field key.

        Raises:
            LakeError: The dataset was replaced, or cannot be opened.
            FragmentNotAnalyzed: Rows cannot be read or analyzed, after Spark's own retries.
            JobFailed: The Spark job failed otherwise.
            SessionLostError: The Spark Connect server restarted; read what was not yielded again.
            Cancelled: It was cancelled.
            SparkNotStarted: Spark did not start, or its server has gone. Later calls raise the same
                one at once.
        """
        if not scans:
            return
        session = self._started()
        from lancestat.tables.analyze.jobs import analyze_table

        with self._cancellable(session, f"reading {table.uri}") as group:
            for scan, partials in analyze_table(
                session,
                TableScan(node, table, tuple(scans)),
                self._options.of(table.uri),
                group=group,
                on_progress=lambda fragments, size: self._advance(node, fragments, size),
            ):
                self._refuse_when_cancelled(f"reading {table.uri}")
                yield scan, partials

    @contextmanager
    def join(self, work: JoinWork, on_stage: OnStage) -> Iterator[SparkJoin]:
        """Open a join.

        Raises:
            LakeError: A side was replaced, or cannot be opened.
            RunError: A side, the output or scratch cannot be used, a job failed or was cancelled,
                or Spark did not start; later calls raise `SparkNotStarted` at once, too.
        """
        session = self._started(needs_scratch=True)
        from lancestat.joins.spark.engine import Engine

        root = scratch_root(self._target.scratch, session)
        with self._cancellable(session, f"joining '{work.node}'") as group:
            engine = Engine(session, root, group, self._options, on_stage)
            with engine.open(work) as join:
                yield join

    @contextmanager
    def _cancellable(self, session: SparkSession, what: str) -> Iterator[str]:
        """A group of Spark jobs that `cancel` ends."""
        group = f"{APP_NAME}-{uuid.uuid4().hex}"
        self._groups.add(group)
        try:
            self._refuse_when_cancelled(what)
            yield group
        except SparkNotStarted as error:
            self._failure = self._failure or error
            raise
        except Exception as error:
            if is_connect(session) and (session is not self._session or is_forgotten(error)):
                raise self._without(session) from error
            raise
        finally:
            self._groups.discard(group)

    def _without(self, session: SparkSession) -> Exception:
        """Return the error for work on a session that its server has forgotten.

        One of the scanner's own is dropped: what comes next starts another.
        """
        with self._starting:
            if not self._is_own_session:
                self._failure = self._failure or SparkNotStarted(
                    "the Spark Connect server has restarted, and no longer knows the session",
                    hint="create a session, then run lancestat retry",
                )
            elif self._session is session:
                self._session = None
                self._restarts += 1
                abandon(session)
                if self._restarts > MAX_SERVER_RESTARTS:
                    times = f"{self._restarts} times in this run"
                    self._failure = SparkNotStarted(
                        f"the Spark Connect server has restarted {times}",
                        hint="look for the cause in the server's log, then run lancestat retry",
                    )
            return self._failure or SessionLostError("the Spark Connect server has restarted")

    def cancel(self) -> None:
        """Stop every scan and join that goes on, and refuse further ones with `Cancelled`."""
        self._is_cancelled = True
        if self._session is not None:
            from lancestat.spark.jobs import jobs_of

            jobs = jobs_of(self._session)
            for group in tuple(self._groups):
                jobs.cancel(group, lambda group=group: group not in self._groups)  # type: ignore[misc]

    def _started(self, *, needs_scratch: bool = False) -> SparkSession:
        with self._starting:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                try:
                    self._start(needs_scratch)
                except SparkNotStarted as error:
                    self._failure = error
                    raise
            assert self._session is not None
            return self._session

    def _start(self, needs_scratch: bool) -> None:
        running = self._given or running_session()
        if running is None and needs_scratch:
            is_remote = remote_of(self._target) is not None
            require_shared(self._target.scratch, CONNECT if is_remote else self._target.master)
        self._session = running or start_session(
            self._target, APP_NAME, is_short_lived=not self._has_joins
        )
        self._is_own_session = running is None
        self._quiet.enter_context(silent_query_logger())
        if running is not None and is_connect(running):
            self._quiet.enter_context(outages_said(running))

    def _refuse_when_cancelled(self, what: str) -> None:
        if self._is_cancelled:
            raise Cancelled(f"{what} was cancelled")

    def _advance(self, node: str, fragments: int, size_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(node, fragments, size_bytes)
