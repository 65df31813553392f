"""Places of datasets and files: paths on this machine, URIs of object stores, listings."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")


def local_path(uri: str) -> Path | None:
    """Return the path of a dataset on this machine, or None for one in an object store."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return Path(uri)
    if scheme.group(1).lower() in ("file", "file-object-store", "file+uring"):
        return Path(unquote(uri[scheme.end() :]))
    return None


def store_of(uri: str) -> str | None:
    """Return the scheme and bucket of an object-store URI, or None for a local path."""
    scheme = _SCHEME.match(uri)
    if scheme is None or local_path(uri) is not None:
        return None
    return scheme.group() + uri[scheme.end() :].partition("/")[0]


_GLOB = frozenset("*?[{")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing shows it."""

    path: str
    size_bytes: int
    modified_ns: int


def list_files(uri: str) -> tuple[ListedFile, ...] | None:
    """List the files that Spark would read at a path or pattern; None where it is not known.

    Args:
        uri: A path on this machine (`list_store_files` lists object stores).
    """
    path = local_path(uri)
    if path is None:
        return None
    if path.exists():
        roots = [path]
    elif _GLOB & set(str(path)):
        # Alternatives in braces are Spark's own.
        roots = [] if "{" in str(path) else sorted(map(Path, glob.glob(str(path))))  # noqa: PTH207
    else:
        return None
    if not roots:
        return None
    try:
        return tuple(
            sorted(
                (file for root in roots for file in _below(root)),
                key=lambda file: file.path,
            )
        )
    except OSError:
        return None


def files_digest(files: Sequence[ListedFile]) -> str:
    """Return a digest of a listing; equal ones mean that no file came, went or was written."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{file.modified_ns}\0".encode())
    return digest.hexdigest()


def _below(root: Path) -> Iterator[ListedFile]:
    # Results of joins are links to a folder that changes with every run.
    real = Path(os.path.realpath(root))
    if real.is_file():
        yield _listed(real)
        return
    for folder, folders, names in os.walk(real, onerror=_raise):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in names:
            if not is_hidden(name):
                yield _listed(Path(folder) / name)


def _listed(path: Path) -> ListedFile:
    stat = path.stat()
    return ListedFile(str(path), stat.st_size, stat.st_mtime_ns)


def is_hidden(name: str) -> bool:
    """Return whether Spark's file formats pass over a file or folder of that name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _raise(error: OSError) -> None:
    raise error


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
    """List the files below a URI of S3; None where that is not known, or some are too new.

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
        [root] = files.get_file_info([path])
        listed = (
            files.get_file_info(FileSelector(path, recursive=True))
            if root.type is FileType.Directory
            else [root]
        )
    except (OSError, pa.ArrowException):
        return None
    visible = tuple(
        ListedFile(file.path, file.size, file.mtime_ns)
        for file in sorted(listed, key=lambda file: file.path)
        if file.type is FileType.File
        and not any(map(is_hidden, file.path.removeprefix(path).split("/")))
    )
    newest = max((file.modified_ns for file in visible), default=0)
    return None if newest > time.time_ns() - _SETTLED_NS else visible


def _arguments(storage_options: Mapping[str, str]) -> dict[str, str]:
    arguments = {}
    for key, value in storage_options.items():
        argument = _OPTIONS.get(key.lower().removeprefix("aws_"))
        if argument is not None:
            arguments[argument] = str(value)
    return arguments
