"""What an exception of Lance means for the state, and how it is told without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from lancestat.errors import LancestatError, StateError
from lancestat.redact import clean, secret_values
from lancestat.state.identity import canonical_uri


class Failure(Enum):
    """Why Lance could not do what it was asked."""

    ABSENT = "absent"
    EXISTS = "exists"
    CONFLICT = "conflict"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


_CONFLICT = re.compile(
    r"commit conflict|conflicting transaction|incompatible.*transaction|write contention|retryable"
    r"|too many concurrent writers"
)
_LIBRARIES = {"lance", "pyarrow"}
_ABSENT = re.compile(r"dataset at path .* was not found")
_DAMAGED = re.compile(r"\b416\b|range not satisfiable|os error 2\)")
_UNREACHABLE = re.compile(
    r"os error \d+|permission denied|not permitted|access ?denied|forbidden|unauthori[sz]ed"
    r"|credential|signaturedoesnotmatch|invalidaccesskeyid|expiredtoken|nosuchbucket"
    r"|generic (s3|gcs|microsoftazure|http|hf|oss|tos|cos) error|error sending request"
    r"|timed? ?out|connection|error trying to connect|dns error|after \d+ retries"
    r"|no object store provider|too many open files|no space left|out of memory"
    r"|unsupported url|invalid url|relative url"
)
# Words in the names of folders and buckets say nothing about the failure.
_PATH = re.compile(r"[^\s<>]*/[^\s<>]*")


def failure_of(error: BaseException) -> Failure:
    """Classify an exception of Lance; what nothing else explains is damage to the dataset."""
    text = _PATH.sub(" ", str(error).lower())
    if isinstance(error, (PermissionError, ConnectionError, TimeoutError, MemoryError)):
        return Failure.UNREACHABLE
    if type(error).__name__ == "CommitConflictError" or _CONFLICT.search(text):
        return Failure.CONFLICT
    if _ABSENT.search(text):
        return Failure.ABSENT
    if "already exists" in text:
        return Failure.EXISTS
    if _DAMAGED.search(text):
        return Failure.CORRUPT
    return Failure.UNREACHABLE if _UNREACHABLE.search(text) else Failure.CORRUPT


def is_lance_failure(error: BaseException) -> bool:
    """Whether `error` may have come out of Lance; a panic in Rust is no `Exception` in Python."""
    if isinstance(error, (ValueError, OSError, RuntimeError)):
        return True
    kind = type(error)
    return kind.__name__ == "PanicException" or kind.__module__.split(".")[0] in _LIBRARIES


def told(error: BaseException, options: Mapping[str, str]) -> str:
    """The message of `error` without source places and secrets."""
    message = error.message if isinstance(error, LancestatError) else str(error)
    return clean(message, secret_values(options))


def unreachable(uri: str, error: BaseException, options: Mapping[str, str]) -> StateError:
    """The error for a state that may well be sound but cannot be read or written now."""
    return StateError(
        "LS301",
        f"the state at {canonical_uri(uri)} cannot be reached: {told(error, options)}",
        hint="check the target's state, its storage-options and the permissions there",
    )


def contended(uri: str) -> StateError:
    """The error for a commit that lost to others again and again."""
    return StateError(
        "LS302",
        f"the state at {canonical_uri(uri)} could not be written: other runs kept committing first",
        hint="run again; nothing is lost but time",
    )
