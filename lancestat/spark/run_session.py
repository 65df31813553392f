"""The Spark of a run: started when it is first needed, stopped when the run ends."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from lancestat.errors import Cancelled, SparkNotStarted
from lancestat.spark.failure import (
    SessionLostError,
    abandon,
    is_forgotten,
    outages_said,
    silent_query_logger,
)
from lancestat.spark.start import is_connect, running_session, start_session, stop_session
from lancestat.spec.model import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_NAME = "lancestat"
# A server that restarts more often may do so because of what the run asks of it.
MAX_SERVER_RESTARTS = 2


class RunSession:
    """The session of a run on a target's Spark; no JVM starts before it is first needed.

    A session that was there before is used as it is and left running. Threads that wait for Spark
    return only when their jobs end, or after `cancel`.

    Args:
        target: Where Spark runs.
        computes: Whether long computations are to come, for which the JVM takes time to optimise
            its code.
        session: The session to use, classic or of Spark Connect; that of the thread which enters
            this one, or else of the process, when None.
        ends_process: Whether the process ends next, and need not wait until Spark has stopped.
    """

    def __init__(
        self,
        target: Target,
        *,
        computes: bool = False,
        session: SparkSession | None = None,
        ends_process: bool = False,
    ) -> None:
        self._target = target
        self._computes = computes
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

    def __enter__(self) -> RunSession:
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

    @contextmanager
    def working(
        self, what: str, before_start: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[SparkSession, str]]:
        """Lend the session, which is started if need be, and a group of jobs that `cancel` ends.

        Args:
            what: Is being done, for the message of `Cancelled`.
            before_start: Called where a session has to be started for it.

        Raises:
            SparkNotStarted: Spark did not start, or its server has gone. Later calls raise the same
                one at once.
            SessionLostError: The Spark Connect server restarted meanwhile; what was done is lost.
            Cancelled: The run was cancelled.
        """
        session = self._started(before_start)
        with self._cancellable(session, what) as group:
            yield session, group

    @contextmanager
    def _cancellable(self, session: SparkSession, what: str) -> Iterator[str]:
        """A group of Spark jobs that `cancel` ends."""
        group = f"{APP_NAME}-{uuid.uuid4().hex}"
        self._groups.add(group)
        try:
            self.refuse_when_cancelled(what)
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

        A session that this one started is dropped: what comes next starts another.
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
        """Stop all work that goes on, and refuse more with `Cancelled`."""
        self._is_cancelled = True
        if self._session is not None:
            from lancestat.spark.jobs import jobs_of

            jobs = jobs_of(self._session)
            for group in tuple(self._groups):
                jobs.cancel(group, lambda group=group: group not in self._groups)  # type: ignore[misc]

    def _started(self, before_start: Callable[[], None]) -> SparkSession:
        with self._starting:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                try:
                    self._start(before_start)
                except SparkNotStarted as error:
                    self._failure = error
                    raise
            assert self._session is not None
            return self._session

    def _start(self, before_start: Callable[[], None]) -> None:
        running = self._given or running_session()
        if running is None:
            before_start()
        self._session = running or start_session(
            self._target, APP_NAME, is_short_lived=not self._computes
        )
        self._is_own_session = running is None
        self._quiet.enter_context(silent_query_logger())
        if running is not None and is_connect(running):
            self._quiet.enter_context(outages_said(running))

    def refuse_when_cancelled(self, what: str) -> None:
        """Raise `Cancelled` once the run is cancelled."""
        if self._is_cancelled:
            raise Cancelled(f"{what} was cancelled")
