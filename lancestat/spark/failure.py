"""Errors of Spark jobs: carried from workers to the driver, and explained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from lancestat.errors import Cancelled, JobFailed, LancestatError, error_class
from lancestat.redact import redact_line
from lancestat.spark.python import python_error

_MARK = "lancestat-error:"
MORE_MEMORY = "a worker ran out of memory or was killed: give it more, or let fewer run at once"


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

    Args:
        error: What was raised on the driver.
        doing: What the job was for, to go on with "was cancelled" or "failed".
        secrets: Values that must not be shown.
        job: What failed, where that is not what it was doing.
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
    """Return the cause of the last failed task, or the driver's, in a line; and a hint or None.

    Args:
        error: What Spark raised on the driver.
        secrets: Values that must not be shown.
    """
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
