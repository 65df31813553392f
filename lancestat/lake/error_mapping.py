"""Why a dataset cannot be opened, told apart from what Lance says."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from lancestat.errors import LakeError, did_you_mean
from lancestat.lake.files import local_path
from lancestat.redact import clean


class Refusal(str, Enum):
    """The codes of errors about datasets."""

    MISSING = "LS201"
    DENIED = "LS202"
    UNSUPPORTED = "LS203"
    CORRUPT = "LS204"
    UNREACHABLE = "LS205"
    VERSION_GONE = "LS206"
    MISCONFIGURED = "LS207"
    REPLACED = "LS209"


# The first pattern that is found decides; Lance's exceptions are told apart by their words alone.
_PATTERNS: tuple[tuple[Refusal, re.Pattern[str]], ...] = tuple(
    (refusal, re.compile(pattern, re.IGNORECASE))
    for refusal, pattern in (
        (
            Refusal.DENIED,
            r"permission ?denied|access ?denied|forbidden|unauthori[sz]ed|unauthenticated"
            r"|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken|invalidtoken|credential"
            r"|\b(?:status(?: code)?:?|code:) 40[13]\b|os error 13\b",
        ),
        (
            Refusal.MISCONFIGURED,
            r"no object store provider|generic config error|failed to parse path|builder error"
            r"|relative url without|invalid (?:uri|url)|unknown configuration|missing region",
        ),
        (
            Refusal.UNSUPPORTED,
            r"feature flag|not ?supported|unsupported|upgrade|newer version"
            r"|unknown (?:format|version)|not implemented",
        ),
        (
            Refusal.MISSING,
            r"was not found|not found:|\bnot found\b|no such|nosuchbucket|not a directory",
        ),
        (
            Refusal.UNREACHABLE,
            r"error sending request|http error|dns error|timed? ?out|connection|unreachable"
            r"|after \d+ retries|status code: 5\d\d|too many open files",
        ),
    )
)

_PLACE = re.compile(r"\S*/\S*")

_HINTS = {
    Refusal.DENIED: "check the target's storage-options, or the credentials in the environment",
    Refusal.UNSUPPORTED: "a newer pylance may read it: pip install --upgrade pylance",
    Refusal.CORRUPT: "an earlier version of the dataset may still be whole: restore it with Lance",
    Refusal.UNREACHABLE: "check the endpoint in the target's storage-options, and the network",
    Refusal.MISCONFIGURED: "check the table's uri and the target's storage-options",
    Refusal.VERSION_GONE: "versions that were cleaned up cannot come back",
}

_SAYINGS = {
    Refusal.MISSING: "there is no Lance dataset at {uri}",
    Refusal.DENIED: "no permission to read {uri}",
    Refusal.UNSUPPORTED: "{uri} needs a newer Lance than the one installed here",
    Refusal.CORRUPT: "{uri} cannot be read: its files are damaged or incomplete",
    Refusal.UNREACHABLE: "the store of {uri} does not answer",
    Refusal.MISCONFIGURED: "{uri} cannot be opened as it is declared",
    Refusal.VERSION_GONE: "{uri} has no version {version}",
}


def refuse(
    error: BaseException, uri: str, *, version: int | None = None, secrets: Iterable[str] = ()
) -> LakeError:
    """What a user is told when Lance could not open or read a dataset.

    Args:
        error: What Lance raised.
        uri: The dataset, as declared.
        version: The version that was asked for, None for the latest.
        secrets: Values that must not be shown.
    """
    refusal = _classify(error, uri, version)
    said = _SAYINGS[refusal].format(uri=clean(uri, secrets), version=version)
    if refusal not in (Refusal.MISSING, Refusal.VERSION_GONE):
        said = f"{said} ({clean(str(error), secrets)})"
    hint = _nearest(uri) if refusal is Refusal.MISSING else _HINTS[refusal]
    return LakeError(refusal.value, said, hint=hint)


def _classify(error: BaseException, uri: str, version: int | None) -> Refusal:
    if isinstance(error, PermissionError):
        return Refusal.DENIED
    if isinstance(error, TypeError):
        return Refusal.MISCONFIGURED
    text = _without_places(str(error), uri)
    found = next((refusal for refusal, pattern in _PATTERNS if pattern.search(text)), None)
    if found is Refusal.MISSING and version is not None:
        return Refusal.VERSION_GONE
    return found or Refusal.CORRUPT


def _without_places(text: str, uri: str) -> str:
    # A table may be called `credentials` or `connection errors`; only Lance's own words decide.
    path = uri.partition("://")[2] or uri
    for spelling in (path.strip("/"), quote(path.strip("/"))):
        text = re.sub(rf"(?<!\w){re.escape(spelling)}(?!\w)", " ", text) if spelling else text
    return _PLACE.sub(" ", text)


def _nearest(uri: str) -> str | None:
    path = local_path(uri)
    if path is None:
        return "check the bucket and the path; tables are not created by lancestat"
    if path.is_dir():
        return f"the folder {path} exists, but holds no Lance versions"
    folder = _existing(path.parent)
    if folder != path.parent:
        return f"the folder {path.parent} does not exist"
    near = did_you_mean(path.name, sorted(_datasets(folder)))
    return near or f"the folder {folder} holds no dataset of a similar name"


def _existing(folder: Path) -> Path:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _datasets(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []


# As Python tells an errno, and as Rust does.
_FULL = re.compile(r"no space left|disk quota exceeded|os error (28|122)\b", re.IGNORECASE)
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether there was no room left."""
    if isinstance(error, OSError) and error.errno in _FULL_CODES:
        return True
    return _FULL.search(str(error)) is not None
