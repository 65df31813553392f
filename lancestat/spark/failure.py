"""Why a Spark job failed, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lancestat.errors import LancestatError, RunError
from lancestat.lake.clean import clean, secret_values
from lancestat.spark.work import TableScan
from lancestat.spark.worker_error import carried_error

_LOST_TASK = re.compile(r"most recent failure: [^\n]*?\): ([^\n]+)")
_CANCELLED = re.compile(r"\bcancell?ed\b|SparkContext was shut down|killed intentionally", re.I)
_CRASHED = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|OutOfMemory|exit code 137"
)


def explain(
    error: Exception, table: TableScan, storage_options: Mapping[str, str]
) -> LancestatError:
    """The error that a user should see for a job over `table` that raised `error` on the driver.

    What a worker raised comes back as it was; anything else becomes a RunError: LS512 when the
    job was cancelled, else LS511 with the cause of the last failed task.
    """
    text = str(error)
    carried = carried_error(text)
    if carried is not None:
        return carried
    lost = _LOST_TASK.search(text)
    cause = lost.group(1) if lost else _first_line(error)
    if lost is None and _CANCELLED.search(text):
        return RunError("LS512", f"reading {table.work.uri} was cancelled")
    hint = None
    if _CRASHED.search(text):
        hint = "a worker ran out of memory or was killed: give it more, or let fewer run at once"
    cause = clean(cause, secret_values(storage_options))
    return RunError("LS511", f"the Spark job over {table.work.uri} failed: {cause}", hint=hint)


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else f"{type(error).__name__}: {error}"
    return text.strip().splitlines()[0]
