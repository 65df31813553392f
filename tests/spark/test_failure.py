from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import pyspark
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancestat.errors import (
    InvalidProject,
    JobFailed,
    LancestatError,
    OtherPython,
    SparkNotStarted,
    WorkersLackPackage,
    error_classes,
)
from lancestat.joins.spark import job as worker
from lancestat.spark import session as module
from lancestat.spark.failure import (
    MORE_MEMORY,
    Outage,
    SessionLostError,
    WorkerError,
    carried_error,
    is_forgotten,
    job_error,
)
from lancestat.spark.session import MAX_SERVER_RESTARTS, RunSession
from lancestat.spec.model import Target


def explained(error: Exception, *secrets: str) -> LancestatError:
    """Return the error to show for a job over a table."""
    uri = "s3://bucket/orders.lance"
    return job_error(error, f"reading {uri}", secrets, job=f"the Spark job over {uri}")


ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed "
    "4 times, most recent failure: Lost task 0.3 in stage 4.0 (TID 9) (10.0.0.7 executor 2): {}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:593)\n"
)


@pytest.fixture
def remote_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No local Spark, as an earlier test of this process may have left one running."""
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)


@pytest.mark.usefixtures("remote_workers")
def test_workers_without_lancestat_are_named_as_such() -> None:
    raised = (
        "Traceback (most recent call last):\n  in load\nModuleNotFoundError: No module named '{}'\n"
    )

    own, foreign = (explained(Exception(raised.format(name))) for name in ("lancestat", "pandas"))

    assert (type(own), type(foreign)) == (WorkersLackPackage, JobFailed)
    assert "No module named 'lancestat'" in own.message
    assert own.hint is not None and "lancestat package" in own.hint


@pytest.mark.usefixtures("remote_workers")
@pytest.mark.parametrize(
    "versions",
    [
        pytest.param("different version (3, 9) than that in driver 3.11", id="Spark 3.5"),
        pytest.param("different version: 3.9 than that in driver: 3.11", id="Spark 4"),
    ],
)
def test_workers_of_another_minor_version_are_named_as_such(versions: str) -> None:
    raised = (
        "Traceback (most recent call last):\n  in main\npyspark.errors.exceptions.base."
        f"PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has {versions}, PySpark "
        "cannot run with different minor versions.\n"
    )

    error = explained(Exception(ABORTED.format(raised)))

    assert isinstance(error, OtherPython)
    assert "Spark's workers run Python 3.9, lancestat runs in Python" in error.message
    assert error.hint is not None and "lancestat package" in error.hint


@given(
    st.sampled_from([kind for kind in error_classes() if kind is not InvalidProject]),
    st.text(),
    st.none() | st.text(),
)
@settings(deadline=None)
def test_an_error_of_a_worker_is_restored(
    kind: type[LancestatError], message: str, hint: str | None
) -> None:
    raised = kind(message, hint=hint)
    wrapped = ABORTED.format(f"Traceback:\n  {WorkerError.carrying(raised)}\n\n\tat x")
    restored = carried_error(wrapped)

    assert type(restored) is kind
    assert restored is not None
    assert (restored.code, restored.message, restored.hint) == (kind.code, message, hint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a plain error",
        "lancestat-error:",
        "lancestat-error:{cut",
        'lancestat-error:{"code": "LS999"}',
    ],
)
def test_other_texts_contain_no_error(text: str) -> None:
    assert carried_error(text) is None


def test_a_crash_names_the_last_cause_without_the_jvms_stack() -> None:
    text = ABORTED.format("org.apache.spark.SparkException: Python worker exited unexpectedly")
    shown = explained(RuntimeError(text))

    assert shown.code == "LS511"
    assert shown.message == (
        "the Spark job over s3://bucket/orders.lance failed: "
        "org.apache.spark.SparkException: Python worker exited unexpectedly"
    )
    assert shown.hint is not None
    assert "memory" in shown.hint


def test_a_cancelled_job_is_not_a_failure_of_the_table() -> None:
    text = "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled part of group"
    assert explained(RuntimeError(text)).code == "LS512"


def test_any_other_error_is_cut_to_its_first_line_and_shows_no_secret() -> None:
    error = RuntimeError("cannot sign with hunter2hunter2\n  at line 1")
    shown = explained(error, "hunter2hunter2")

    assert shown.code == "LS511"
    assert shown.message.endswith("RuntimeError: cannot sign with ***")


def test_an_error_outside_the_task_is_reported_without_its_traceback() -> None:
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 4184, in invoke_udf\n'
        "    setup_spark_files(init_info)\n\n"
        "MemoryError: no room for secret\n\n\tat org.apache.spark.X(X.scala)\n"
    )
    message = f"An exception was thrown from the Python worker:\n{traceback}"
    for text in (
        message,
        ABORTED.format(f"org.apache.spark.api.python.PythonException: {traceback}"),
    ):
        shown = explained(RuntimeError(text), "secret")

        assert shown.message == (
            "the Spark job over s3://bucket/orders.lance failed: MemoryError: no room for ***"
        )
        assert shown.hint is not None


def test_a_join_task_without_memory_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "prepare_worker", lambda *_: None)
    with pytest.raises(WorkerError) as caught, worker.worker_task(1, {}, worker.SEARCHING):
        raise MemoryError("Unable to allocate 64.0 MiB")
    error = carried_error(str(caught.value))
    assert error is not None
    assert error.message == (
        "searching for neighbours failed: MemoryError: Unable to allocate 64.0 MiB"
    )
    assert error.hint == MORE_MEMORY


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


TARGET = Target("far")


@dataclass(eq=False)
class Session:
    """What the run asks of a session whose server has gone."""

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


def work(run: RunSession) -> None:
    with run.working("reading"):
        raise RuntimeError("[NO_ACTIVE_SESSION] No active Spark session found.")


def test_an_own_session_is_replaced_twice_and_spark_given_up_then(started: list[Session]) -> None:
    run = RunSession(TARGET)
    for _ in range(MAX_SERVER_RESTARTS):
        with pytest.raises(SessionLostError):
            work(run)
    for _ in range(2):
        with pytest.raises(SparkNotStarted, match="has restarted 3 times in this run"):
            work(run)
    assert [session.is_stopped for session in started] == [True] * 3


def test_the_callers_session_is_not_replaced(started: list[Session]) -> None:
    theirs = Session()
    run = RunSession(TARGET, session=theirs)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(SparkNotStarted, match="no longer knows the session"):
            work(run)
    assert not theirs.is_stopped
    assert not started
