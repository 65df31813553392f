"""Why a job of a join failed, as the error that a user should see."""

from __future__ import annotations

from collections.abc import Iterable

from lancestat.errors import LancestatError, RunError
from lancestat.spark.failure import cause, is_cancelled
from lancestat.spark.worker_error import carried_error


def failed(error: Exception, what: str, secrets: Iterable[str]) -> LancestatError:
    """What a worker raised, as it was; else LS512 when the job was cancelled, LS553 otherwise.

    Args:
        error: What Spark raised on the driver.
        what: What the job was about, to go on with "was cancelled" or "failed".
        secrets: Values that must not be shown.
    """
    if isinstance(error, LancestatError):
        return error
    carried = carried_error(str(error))
    if carried is not None:
        return carried
    if is_cancelled(error):
        return RunError("LS512", f"{what} was cancelled")
    reason, hint = cause(error, secrets)
    return RunError("LS553", f"{what} failed: {reason}", hint=hint)
