"""Files of a prefix in an object store, as far as a listing tells them apart."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lancestat.lake.files import ListedFile, is_hidden
from lancestat.lake.uri import store_of

# Stores tell the time of a file to the second: what is younger could be replaced unnoticed.
_SETTLED_NS = 5_000_000_000
_S3 = ("s3", "s3a", "s3n")
# What Lance calls an option, and what pyarrow does; prefixes of a cloud do not count.
_OPTIONS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}


def list_store_files(uri: str, storage_options: Mapping[str, str]) -> tuple[ListedFile, ...] | None:
    """The files below a URI of S3, by name; None where nobody can tell, or some are too new.

    Args:
        uri: A prefix, or a single object; no pattern.
        storage_options: How to reach it, as Lance takes them.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSelector, FileType, S3FileSystem

    store = store_of(uri)
    if store is None or store.partition("://")[0].lower() not in _S3:
        return None
    path = uri.partition("://")[2].rstrip("/")
    try:
        files = S3FileSystem(connect_timeout=3, request_timeout=10, **_arguments(storage_options))
        [found] = files.get_file_info([path])
        listed = (
            files.get_file_info(FileSelector(path, recursive=True))
            if found.type is FileType.Directory
            else [found]
        )
    except (OSError, pa.ArrowException):
        return None
    kept = tuple(
        ListedFile(each.path, each.size, each.mtime_ns)
        for each in sorted(listed, key=lambda each: each.path)
        if each.type is FileType.File and not _is_below_hidden(each.path.removeprefix(path))
    )
    newest = max((file.modified_ns for file in kept), default=0)
    return None if newest > time.time_ns() - _SETTLED_NS else kept


def _arguments(storage_options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, value in storage_options.items():
        argument = _OPTIONS.get(key.lower().removeprefix("aws_"))
        if argument is not None:
            found[argument] = str(value)
    return found


def _is_below_hidden(path: str) -> bool:
    return any(map(is_hidden, path.split("/")))
