"""The causes of Lance's exceptions, and the LakeErrors that users see.

Lance's exceptions differ by their words alone, so this is the one place that reads them.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from lancestat.errors import (
    AccessDenied,
    CatalogUnreachable,
    DatasetDamaged,
    DatasetMisconfigured,
    DatasetMissing,
    DatasetUnreadable,
    LakeError,
    NameNotEncodable,
    StoreUnreachable,
    UnsupportedDataset,
    VersionMissing,
    did_you_mean,
)
from lancestat.lake.files import local_path
from lancestat.redact import redact_line


class Cause(Enum):
    """The cause of a failure. `ABSENT` is a dataset, `NOT_FOUND` anything else that is missing."""

    CONFLICT = "conflict"
    NO_SPACE = "no space"
    EXISTS = "exists"
    DENIED = "denied"
    MISCONFIGURED = "misconfigured"
    UNSUPPORTED = "unsupported"
    ABSENT = "absent"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    NOT_FOUND = "not found"
    CATALOG = "catalog"
    UNREACHABLE = "unreachable"
    NO_MEMORY = "no memory"
    REFUSED = "refused"
    NAME = "name"
    UNKNOWN = "unknown"


# A disk that is full, and limits of a user or a process.
NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_NO_ANSWER = (
    r"error sending request|http error|dns error|error trying to connect|timed? ?out|connection"
    r"|after \d+ retries|too many open files"
)
# The first pattern that is found decides.
_PATTERNS: tuple[tuple[Cause, re.Pattern[str]], ...] = tuple(
    (cause, re.compile(pattern, re.IGNORECASE))
    for cause, pattern in (
        (
            Cause.CONFLICT,
            r"commit conflict|conflicting transaction|incompatible.*transaction|write contention"
            r"|retryable|too many concurrent writers",
        ),
        # As Python names an errno, and as Rust does.
        (
            Cause.NO_SPACE,
            r"no space left|disk quota exceeded|file too large|os error (?:27|28|122)\b",
        ),
        (Cause.EXISTS, r"already exists"),
        (
            Cause.DENIED,
            r"permission ?denied|read-only file system|not permitted|access ?denied|forbidden"
            r"|unauthori[sz]ed|unauthenticated|invalidaccesskeyid|signaturedoesnotmatch"
            r"|expiredtoken|invalidtoken|credential"
            r"|\b(?:status(?: code)?:?|code:) 40[13]\b|os error 13\b",
        ),
        (
            Cause.MISCONFIGURED,
            r"no object store provider|generic config error|failed to parse path|builder error"
            r"|relative url|(?:invalid|unsupported) (?:uri|url)|unknown configuration"
            r"|missing region",
        ),
        (
            Cause.UNSUPPORTED,
            r"feature flag|not ?supported|unsupported|upgrade|newer version"
            r"|unknown (?:format|version)|not implemented",
        ),
        (Cause.ABSENT, r"dataset at path .*was not found"),
        (Cause.NOT_FOUND, r"\bnot found\b|no such|nosuchbucket|not a directory|os error 2\)"),
        (Cause.TRUNCATED, r"\b416\b|range not satisfiable"),
        (Cause.CATALOG, r"\bnamespace error:"),
        (Cause.UNREACHABLE, rf"{_NO_ANSWER}|unreachable|status code: 5\d\d"),
        (Cause.NO_MEMORY, r"out of memory"),
        (Cause.REFUSED, r"\bduplicate column name\b|\bno field named\b"),
        # As files say it that were cut, overwritten or changed bit by bit.
        (
            Cause.DAMAGED,
            r"corrupt|\bmagic\b|footer|invalid seek|fill whole buffer|size is too small"
            r"|invalid (?:read of )?range|range start|decode protobuf|sufficient data"
            r"|parser error|ipc error|invariant failure|out ?of ?(?:bounds|range)|truncated"
            r"|checksum|unexpected (?:eof|end of file)|decompress|\butf-?8\b|missing data file",
        ),
    )
)
_STORE = re.compile(
    r"generic (?:s3|gcs|microsoftazure|http|hf|oss|tos|cos) error|nosuchbucket"
    rf"|os error (?!2\))\d+|{_NO_ANSWER}",
    re.IGNORECASE,
)
# Words in the names of folders and buckets say nothing about the failure; elements of XML do.
_PATH = re.compile(r"[^\s<>]*/[^\s<>]*")
_TYPES: tuple[tuple[type[BaseException], Cause], ...] = (
    (PermissionError, Cause.DENIED),
    (ConnectionError, Cause.UNREACHABLE),
    (TimeoutError, Cause.UNREACHABLE),
    (MemoryError, Cause.NO_MEMORY),
    (TypeError, Cause.MISCONFIGURED),
)


def cause_of(error: BaseException, uri: str | None = None) -> Cause:
    """Classify an exception of Lance; words in the dataset's own name decide nothing."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return Cause.NO_SPACE
    if type(error).__name__ == "CommitConflictError":
        return Cause.CONFLICT
    if is_of_file_names(error):
        return Cause.NAME
    for kind, cause in _TYPES:
        if isinstance(error, kind):
            return cause
    text = _without_paths(str(error), uri)
    return next((cause for cause, pattern in _PATTERNS if pattern.search(text)), Cause.UNKNOWN)


def is_of_file_names(error: BaseException) -> bool:
    """Whether a path was to be encoded, as Python or, from letters that stand for bytes, Lance."""
    if not isinstance(error, UnicodeEncodeError):
        return False
    has_bytes = any("\udc80" <= char <= "\udcff" for char in error.object)
    return has_bytes or error.encoding == sys.getfilesystemencoding() != "utf-8"


def name_not_encodable(path: str) -> NameNotEncodable:
    """Return the error for a path that Python cannot pass to the system, redacted already."""
    return NameNotEncodable(
        f"{path!a} has characters that this Python cannot pass to the system: the encoding of "
        f"file names is {sys.getfilesystemencoding()}",
        hint="set PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8",
    )


# What a request failed for, in the debug text of Lance's HTTP client, innermost last.
_HTTP_ERROR = "reqwest::Error"
_HTTP_WORDS = re.compile(r'(?:message|error): "([^"]+)"')
_HTTP_NAMES = re.compile(r"(?:source|kind): (\w+)")
_HTTP_SERVER = re.compile(r'url: "(\w+://[^/"]+)')
# The debug text of an error of Lance's own, and what it says.
_LANCE_ERROR = re.compile(r"\w+ \{ source: (.+?), location: Location \{.*", re.DOTALL)


def plain_reason(text: str) -> str:
    """Return what Lance says of a failed request, without debug text, also of its HTTP client."""
    _, is_debug, debug = text.partition(_HTTP_ERROR)
    if not is_debug:
        return _LANCE_ERROR.sub(lambda found: found[1].strip('"').replace("\\n", "; "), text)
    reasons = _HTTP_WORDS.findall(debug) or _HTTP_NAMES.findall(debug) or [text]
    server = _HTTP_SERVER.search(debug)
    return f"{server[1]}: {reasons[-1]}" if server else str(reasons[-1])


def is_no_url(error: BaseException) -> bool:
    """Return whether Lance's HTTP client could not make a request of the URL that it was given."""
    return f"{_HTTP_ERROR} {{ kind: Builder" in str(error)


def is_of_store(error: BaseException) -> bool:
    """Return whether the store or the system failed, so that what is stored there may be sound."""
    return _STORE.search(_without_paths(str(error), None)) is not None


def is_panic(error: BaseException) -> bool:
    """Return whether Rust code panicked, which in Python is no `Exception`."""
    return type(error).__name__ == "PanicException"


def is_error_or_panic(error: BaseException) -> bool:
    """Return whether something failed, rather than an interrupt or an exit."""
    return isinstance(error, Exception) or is_panic(error)


@contextmanager
def explained(explain: Callable[[BaseException], LakeError]) -> Iterator[None]:
    """Raise what fails in the block, a panic too, as the LakeError that says why."""
    try:
        yield
    except LakeError:
        raise
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        raise explain(error) from None


def is_full(error: BaseException) -> bool:
    """Return whether there was no room left."""
    return cause_of(error) is Cause.NO_SPACE


def _without_paths(text: str, uri: str | None) -> str:
    # A table may be called `credentials` or `connection errors`; only Lance's own words decide.
    path = (uri or "").partition("://")[2] or uri or ""
    for spelling in (path.strip("/"), quote(path.strip("/"), errors="replace")):
        text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", " ", text) if spelling else text
    return _PATH.sub(" ", text)


_CLASSES: dict[Cause, type[LakeError]] = {
    Cause.DENIED: AccessDenied,
    Cause.MISCONFIGURED: DatasetMisconfigured,
    Cause.UNSUPPORTED: UnsupportedDataset,
    Cause.ABSENT: DatasetMissing,
    Cause.NOT_FOUND: DatasetMissing,
    Cause.CATALOG: CatalogUnreachable,
    Cause.UNREACHABLE: StoreUnreachable,
    Cause.TRUNCATED: DatasetDamaged,
    Cause.DAMAGED: DatasetDamaged,
}
RESTORE = "an earlier version of the dataset may still be whole: restore it with Lance"
# Message and hint; the hint of a dataset that is missing names its neighbours.
_TEXTS: dict[type[LakeError], tuple[str, str | None]] = {
    DatasetMissing: ("there is no Lance dataset at {uri}", None),
    AccessDenied: (
        "no permission to read {uri}",
        "check the target's storage_options, or the credentials in the environment",
    ),
    UnsupportedDataset: (
        "{uri} needs a newer Lance than the one installed here",
        "a newer pylance may read it: pip install --upgrade pylance",
    ),
    DatasetDamaged: (
        "{uri} cannot be read: its files are damaged or incomplete",
        RESTORE,
    ),
    DatasetUnreadable: (
        "Lance does not read {uri}",
        "the message ends with Lance's own error, which names no damage to files",
    ),
    CatalogUnreachable: (
        "the catalog of {uri} does not report its versions",
        "check the properties of the catalog in the target, and the network",
    ),
    StoreUnreachable: (
        "the store of {uri} does not answer",
        "check the endpoint in the target's storage_options, and the network",
    ),
    DatasetMisconfigured: (
        "{uri} cannot be opened as it is declared",
        "check the table's uri and the target's storage_options",
    ),
    VersionMissing: (
        "{uri} has no version {version}",
        "versions that were cleaned up cannot come back",
    ),
}


def lake_error(
    error: BaseException, uri: str, *, version: int | None = None, secrets: Iterable[str] = ()
) -> LakeError:
    """Return the error for a dataset that Lance could not open or read, without `secrets`."""
    cause = cause_of(error, uri)
    if cause is Cause.NAME:
        return name_not_encodable(redact_line(uri, secrets))
    kind = _CLASSES.get(cause, DatasetUnreadable)
    if kind is DatasetMissing and version is not None:
        kind = VersionMissing
    template, hint = _TEXTS[kind]
    message = template.format(uri=redact_line(uri, secrets), version=version)
    if kind not in (DatasetMissing, VersionMissing):
        message = f"{message} ({redact_line(str(error), secrets)})"
    if kind is DatasetMissing:
        hint = _nearest(uri)
    return kind(message, hint=hint)


def _nearest(uri: str) -> str | None:
    """Return a hint without paths: a part of one may be hidden where the whole is known."""
    path = local_path(uri)
    if path is None:
        return "check the bucket and the path; tables are not created by lancestat"
    if path.is_dir():
        return "the folder exists, but holds no Lance versions"
    if not path.parent.is_dir():
        return "the folder above it does not exist"
    near = did_you_mean(path.name, sorted(_datasets(path.parent)))
    return near or "the folder above it holds no dataset of a similar name"


def _datasets(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []
