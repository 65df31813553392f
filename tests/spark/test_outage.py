"""For how long a Spark Connect server that does not answer is tried, and what is said of it."""

from __future__ import annotations

import pytest

from lancestat.errors import SparkNotStarted
from lancestat.spark.failure import Outage, is_forgotten


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call."""
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_an_outage_is_said_at_once_and_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(60.0, clock)
    outage.failed()
    assert lines(caplog) == ["the Spark Connect server does not answer; it is tried for 1 min"]
    clock.now += 9
    outage.failed()
    assert lines(caplog) == []
    clock.now += 2
    outage.failed()
    assert lines(caplog) == [
        "the Spark Connect server does not answer for 11 s; it is tried for 49 s more"
    ]


def test_a_server_is_given_up_after_the_timeout_and_for_every_request() -> None:
    clock = Clock()
    outage = Outage(60.0, clock)
    for _ in range(6):
        outage.failed()
        clock.now += 10
    for _ in range(2):
        with pytest.raises(SparkNotStarted, match="has not answered for 1 min"):
            outage.failed()
        assert outage.has_given_up


def test_another_outage_has_its_own_time() -> None:
    clock = Clock()
    outage = Outage(5.0, clock)
    outage.failed()
    clock.now += 5
    with pytest.raises(SparkNotStarted):
        outage.failed()
    clock.now += 100
    outage.failed()
    assert not outage.has_given_up


def test_the_outage_of_a_callers_session_never_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(None, clock)
    outage.failed()
    clock.now += 20
    outage.failed()
    assert lines(caplog) == [
        "the Spark Connect server does not answer",
        "the Spark Connect server does not answer for 20 s",
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the server", True),
        ("[INVALID_HANDLE.SESSION_CHANGED] The handle 3f is invalid. SQLSTATE: HY000", True),
        ("Received incorrect server side session identifier for request. Please create", True),
        ("[NO_ACTIVE_SESSION] No active Spark session found.", True),
        ("[DIVIDE_BY_ZERO] Division by zero.", False),
        ("INVALID_HANDLE.FORMAT", False),
    ],
)
def test_a_restarted_server_is_known_by_what_it_answers(message: str, expected: bool) -> None:
    assert is_forgotten(RuntimeError(message)) is expected
