"""Where a dataset lies: on this machine or in an object store."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")


def local_path(uri: str) -> Path | None:
    """The path of a dataset on this machine, or None for one in an object store."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return Path(uri)
    if scheme.group(1).lower() in ("file", "file-object-store", "file+uring"):
        return Path(unquote(uri[scheme.end() :]))
    return None


def store_of(uri: str) -> str | None:
    """The scheme and bucket of an object-store URI, or None for a local path."""
    scheme = _SCHEME.match(uri)
    if scheme is None or local_path(uri) is not None:
        return None
    return scheme.group() + uri[scheme.end() :].partition("/")[0]
