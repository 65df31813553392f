"""Spark Connect servers that do not answer: for how long they are tried, and what is said of it.

PySpark's client tries a server again for ten minutes, for each request anew, and says nothing. Its
retry policies are asked after each failure. Those here share one clock among all requests of a
session, since a server that has gone is gone for all of them.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lancestat.errors import SparkNotStarted
from lancestat.formats import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    Args:
        timeout_seconds: For how long a server is tried; None where another policy decides.
        clock: Seconds, which only increase.
    """

    timeout_seconds: float | None
    clock: Callable[[], float] = time.monotonic
    has_given_up: bool = False
    _began: float | None = None
    _last: float = 0.0
    _said: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self) -> None:
        """Take in that a request was not answered; say so at once, and every ten seconds.

        Raises:
            SparkNotStarted: the server has not answered for so long.
        """
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
    """Say that the server of a caller's session does not answer; its own policies stay.

    Args:
        session: Of Spark Connect.
    """
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
