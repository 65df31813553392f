"""Failures of Lance as the state takes them, and their messages without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from lancestat.errors import LancestatError, StateContended, StateError, StateUnreachable
from lancestat.lake.error_mapping import Cause, cause_of, is_of_file_names, is_of_store, is_panic
from lancestat.redact import redact_line, secret_values
from lancestat.state.identity import canonical_uri


class Failure(Enum):
    """The meaning of a failure of Lance for the dataset that was read or written."""

    ABSENT = "absent"
    EXISTS = "exists"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


_LIBRARIES = {"lance", "pyarrow"}
_FAILURES = {
    Cause.CONFLICT: Failure.CONFLICT,
    Cause.EXISTS: Failure.EXISTS,
    Cause.ABSENT: Failure.ABSENT,
    Cause.TRUNCATED: Failure.CORRUPT,
}
# Damage, unless the store reports it: a dataset that may be sound must not be set aside.
_DAMAGE = {Cause.UNSUPPORTED, Cause.NOT_FOUND, Cause.DAMAGED, Cause.UNKNOWN}


def failure_of(error: BaseException) -> Failure:
    """Return what an exception of Lance means for the dataset that was read or written."""
    cause = cause_of(error)
    if cause in _DAMAGE and not is_of_store(error):
        return Failure.CORRUPT
    return _FAILURES.get(cause, Failure.UNREACHABLE)


def is_lance_failure(error: BaseException) -> bool:
    """Return whether Lance may have raised `error`: not a mistake in our own code.

    A path that Python cannot encode says nothing of what is stored there.
    """
    if is_of_file_names(error):
        return False
    if isinstance(error, (ValueError, OSError, RuntimeError)) or is_panic(error):
        return True
    return type(error).__module__.split(".")[0] in _LIBRARIES


def message_of(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the message of an error without places in Lance's source, and without secrets."""
    message = error.message if isinstance(error, LancestatError) else str(error)
    return redact_line(message, secret_values(options))


def unreachable(uri: str, error: BaseException, options: Mapping[str, str]) -> StateError:
    """Return the error for a state that may well be sound but cannot be read or written now."""
    return StateUnreachable(
        f"the state at {canonical_uri(uri)} cannot be reached: {message_of(error, options)}",
        hint="check the target's state, its storage_options and the permissions there",
    )


def contended(uri: str) -> StateError:
    """Return the error for a commit that lost to others again and again."""
    return StateContended(
        f"the state at {canonical_uri(uri)} could not be written: other runs kept committing first",
        hint="run again; nothing is lost but time",
    )
