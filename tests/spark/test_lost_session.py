"""Sessions that a restarted Spark Connect server no longer knows."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from lancestat.errors import SparkNotStarted
from lancestat.runs import scanner as module
from lancestat.runs.scanner import MAX_SERVER_RESTARTS, SparkScanner
from lancestat.spark.failure import SessionLostError
from lancestat.spec.model import Target

TARGET = Target("far")


@dataclass(eq=False)
class Session:
    """What the scanner asks of a session whose server has gone."""

    is_stopped: bool = False
    release_session_on_close: bool = True

    def stop(self) -> None:
        assert not self.release_session_on_close
        self.is_stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that are started."""
    sessions: list[Session] = []

    def start(*_: object, **__: object) -> Session:
        sessions.append(Session())
        return sessions[-1]

    monkeypatch.setattr(module, "start_session", start)
    monkeypatch.setattr(module, "running_session", lambda: None)
    monkeypatch.setattr(module, "is_connect", lambda _: True)
    monkeypatch.setattr(module, "outages_said", nullcontext)
    monkeypatch.setattr(module, "silent_query_logger", nullcontext)
    return sessions


def work(scanner: SparkScanner) -> None:
    with scanner._cancellable(scanner._started(), "reading"):
        raise RuntimeError("[NO_ACTIVE_SESSION] No active Spark session found.")


def test_an_own_session_is_replaced_twice_and_spark_given_up_then(started: list[Session]) -> None:
    scanner = SparkScanner(TARGET)
    for _ in range(MAX_SERVER_RESTARTS):
        with pytest.raises(SessionLostError):
            work(scanner)
    for _ in range(2):
        with pytest.raises(SparkNotStarted, match="has restarted 3 times in this run"):
            work(scanner)
    assert [session.is_stopped for session in started] == [True] * 3


def test_the_callers_session_is_not_replaced(started: list[Session]) -> None:
    theirs = Session()
    scanner = SparkScanner(TARGET, session=theirs)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(SparkNotStarted, match="no longer knows the session"):
            work(scanner)
    assert not theirs.is_stopped
    assert not started
