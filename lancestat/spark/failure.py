"""Errors of Spark jobs: carried from workers to the driver, and explained; outages of servers."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from lancestat.errors import Cancelled, JobFailed, LancestatError, SparkNotStarted, error_class
from lancestat.formats import duration
from lancestat.redact import redact_line
from lancestat.spark.versions import python_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MARK = "lancestat-error:"
MORE_MEMORY = "a worker ran out of memory or was killed: give it more, or run fewer concurrently"


class WorkerError(Exception):
    """Raised in a worker; Spark reports its text to the driver, in whatever wrapping."""

    @classmethod
    def carrying(cls, error: LancestatError) -> WorkerError:
        """Return the exception whose text holds `error`."""
        payload = {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
        }
        return cls(_MARK + json.dumps(payload))


def carried_error(text: str) -> LancestatError | None:
    """Return the error that a `WorkerError` put into `text`, or None when there is none."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    try:
        payload, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    kind = error_class(payload["code"])
    return None if kind is None else kind(payload["message"], hint=payload["hint"])


def carried_by(error: Exception) -> LancestatError | None:
    """Return the error that an exception of PySpark carries, in its text or in its causes."""
    # The text of an AnalysisException is its message alone.
    return carried_error(f"{error}\n{getattr(error, '_stackTrace', '')}")


_LOST_TASK = re.compile(r"most recent failure: [^\n]*?\): ([^\n]+)")
# The line after the frames of a Python worker's traceback.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
_CANCELLED = re.compile(r"\bcancell?ed\b|SparkContext was shut down|killed intentionally", re.I)
_CRASHED = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|OutOfMemory|exit code 137"
    r"|\bMemoryError\b"
)


def job_error(
    error: Exception,
    doing: str,
    secrets: Iterable[str],
    *,
    job: str | None = None,
) -> LancestatError:
    """Return the error of a worker as it was, `Cancelled` for a cancelled job, else `JobFailed`.

    `doing` is followed by "was cancelled" or "failed"; `job` is what failed, where that differs.
    """
    if isinstance(error, LancestatError):
        return error
    carried = carried_error(str(error))
    if carried is not None:
        return carried
    if is_cancelled(error):
        return Cancelled(f"{doing} was cancelled")
    reason, hint = cause(error, secrets)
    explained = python_error(job or doing, reason, str(error))
    if explained is not None:
        return explained
    return JobFailed(f"{job or doing} failed: {reason}", hint=hint)


def cause(error: Exception, secrets: Iterable[str]) -> tuple[str, str | None]:
    """Return the cause of the last failed task, or the driver's, in a line; and a hint or None."""
    text = str(error)
    lost = _LOST_TASK.search(text)
    hint = MORE_MEMORY if _CRASHED.search(text) else None
    raised = _RAISED.findall(text)
    if raised:
        return redact_line(raised[-1], secrets), hint
    return redact_line(lost.group(1) if lost else _first_line(error), secrets), hint


def is_cancelled(error: Exception) -> bool:
    """Whether a job ended because someone stopped it, and not because a task failed."""
    text = str(error)
    return _LOST_TASK.search(text) is None and _CANCELLED.search(text) is not None


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else f"{type(error).__name__}: {error}"
    return text.strip().splitlines()[0]


_log = logging.getLogger("lancestat.spark")

CONNECT_TIMEOUT = timedelta(seconds=60)
_BETWEEN_LINES_SECONDS = 10.0
_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 2.0
# What PySpark's client raises after a server has restarted: the first, and later requests.
_FORGOTTEN = re.compile(
    r"INVALID_HANDLE\.(?:SESSION|OPERATION)_|incorrect server side session identifier"
    r"|\[NO_ACTIVE_SESSION\]"
)
# Failures that are further apart are of two outages: no attempt fails so late.
_APART_SECONDS = 30.0


@dataclass(slots=True)
class Outage:
    """The time that the server of one session has not answered; threads may share it.

    A server is tried for `timeout_seconds`; None where another policy decides.
    """

    timeout_seconds: float | None
    clock: Callable[[], float] = time.monotonic
    has_given_up: bool = False
    _began: float | None = None
    _last: float = 0.0
    _said: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self) -> None:
        """Take in that a request was not answered; SparkNotStarted once the time is over."""
        with self._lock:
            now = self.clock()
            if self._began is None or now - self._last > _APART_SECONDS:
                self._began, self.has_given_up = now, False
                self._say(now, 0.0)
            elapsed, self._last = now - self._began, now
            if self.timeout_seconds is None or elapsed < self.timeout_seconds:
                if now - self._said >= _BETWEEN_LINES_SECONDS:
                    self._say(now, elapsed)
                return
            self.has_given_up = True
        raise SparkNotStarted(
            "the Spark Connect server has not answered for "
            f"{duration(self.timeout_seconds)}, and is not tried any longer",
            hint="check that the server runs, then run lancestat retry; `connect_timeout` in the "
            "target's spark section says for how long a server is tried",
        )

    def _say(self, now: float, elapsed: float) -> None:
        self._said = now
        since = f" for {duration(elapsed)}" if elapsed else ""
        until = ""
        if self.timeout_seconds is not None:
            until = f" for {duration(max(0.0, self.timeout_seconds - elapsed))}"
            until = f"; it is tried{until}{' more' if elapsed else ''}"
        _log.warning("the Spark Connect server does not answer%s%s", since, until)


def limit_retries(session: SparkSession, timeout: timedelta) -> None:
    """Let a session of lancestat's own try its server for so long, and no longer."""
    from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

    outage = Outage(timeout.total_seconds())

    class State(RetryPolicyState):  # type: ignore[misc,unused-ignore]
        def next_attempt(self, exception: BaseException | None = None) -> int:
            """Return the milliseconds to wait."""
            outage.failed()
            wait_seconds = getattr(self, "wait_seconds", _FIRST_WAIT_SECONDS)
            self.wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
            return int(1000 * wait_seconds)

    class Policy(DefaultPolicy):  # type: ignore[misc,unused-ignore]
        lancestat_outage = outage

        def to_state(self) -> State:
            return State(self)

    _client(session).set_retry_policies([Policy()])


@contextmanager
def outages_said(session: SparkSession) -> Iterator[None]:
    """Say that the server of a caller's Connect session does not answer; its own policies stay."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    outage = Outage(None)

    class Watching(DefaultPolicy):  # type: ignore[misc,unused-ignore]
        def can_retry(self, e: BaseException) -> bool:
            """Leave every decision to the policies that follow."""
            if super().can_retry(e):
                outage.failed()
            return False

    client = _client(session)
    policies = client.get_retry_policies()
    client.set_retry_policies([Watching(), *policies])
    try:
        yield
    finally:
        client.set_retry_policies(policies)


def has_gone(session: SparkSession) -> bool:
    """Whether the server of a session of lancestat's own has been given up."""
    policies = _client(session).get_retry_policies()
    outages = (getattr(policy, "lancestat_outage", None) for policy in policies)
    return any(outage is not None and outage.has_given_up for outage in outages)


class SessionLostError(Exception):
    """A server has restarted without a session of lancestat's own; another one takes its place."""


def abandon(session: SparkSession) -> None:
    """Stop a session whose server has gone or forgotten it, without asking it to release it."""
    session.release_session_on_close = False  # type: ignore[attr-defined,unused-ignore]
    session.stop()


def is_forgotten(error: Exception) -> bool:
    """Whether a server answered that it does not know the session, as after its restart."""
    return _FORGOTTEN.search(str(error)) is not None


def _client(session: SparkSession) -> Any:
    # What a session of Spark Connect has besides a classic one.
    return session.client


_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def silent_query_logger() -> Iterator[None]:
    """Silence the loggers by which PySpark prints every error of a query as JSON to stderr.

    For the whole of a command or a run: blocks that overlap on several threads would leave the
    loggers off.
    """
    loggers = [_query_logger(name) for name in _QUERY_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def _query_logger(name: str) -> logging.Logger:
    """Return a logger of PySpark's class: PySpark fails to log errors to one of another."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        # Spark before 4.0 has neither the class nor the loggers.
        return logging.getLogger(name)
    return cast(logging.Logger, PySparkLogger.getLogger(name))
