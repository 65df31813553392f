"""How an error crosses from a Spark worker: as JSON inside the text of Spark's own exception."""

from __future__ import annotations

import json

from lancestat import errors
from lancestat.errors import LancestatError, RunError

_MARK = "lancestat-error:"
MORE_MEMORY = "a worker ran out of memory or was killed: give it more, or let fewer run at once"


class WorkerError(Exception):
    """Raised in a worker; Spark reports its text to the driver, in whatever wrapping."""

    @classmethod
    def carrying(cls, error: LancestatError) -> WorkerError:
        """The exception whose text holds `error`."""
        payload = {
            "type": type(error).__name__,
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
        }
        return cls(_MARK + json.dumps(payload))


def carried_error(text: str) -> LancestatError | None:
    """The error that a `WorkerError` put into `text`, or None when there is none."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    try:
        payload, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    kind = getattr(errors, payload["type"], RunError)
    return kind(payload["code"], payload["message"], hint=payload["hint"])
