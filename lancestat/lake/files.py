"""Files of a folder on this machine, and what identifies them."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lancestat.lake.uri import local_path

_GLOB = frozenset("*?[{")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing shows it."""

    path: str
    size_bytes: int
    modified_ns: int


def list_files(uri: str) -> tuple[ListedFile, ...] | None:
    """The files that Spark would read at a path or pattern, by name; None where nobody can tell.

    Args:
        uri: A path on this machine (`store_files.list_store_files` lists object stores).
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
    """A digest of a listing: equal ones mean that no file came, went or was written."""
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
    found = path.stat()
    return ListedFile(str(path), found.st_size, found.st_mtime_ns)


def is_hidden(name: str) -> bool:
    """Whether Spark's file formats pass over what is called so."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _raise(error: OSError) -> None:
    raise error
