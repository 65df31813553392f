"""Temporary folders, and files that are written whole: under another name first, then moved."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lancestat.lake.lease import TAG, Lease, abandoned, this_process

_FOLDER_NAME = re.compile(rf"lancestat-({TAG})-[^-]+")
_DRAFT_NAME = re.compile(rf"\..*\.draft-({TAG})-[0-9a-f]{{12}}")
# File systems take 255 bytes, and a character may have four.
_LONGEST_NAME = 40


def make_temporary_folder() -> Path:
    """Make a folder that nobody else may read, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix=f"lancestat-{this_process().tag}-"))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that nobody else may read, and remove it when the block ends."""
    folder = make_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def collect_temporary_garbage() -> None:
    """Remove the temporary folders that killed processes of this user have left."""
    owner = os.getuid() if hasattr(os, "getuid") else None
    for path in abandoned(_temporary_folders()):
        with suppress(FileNotFoundError):
            if owner is None or path.lstat().st_uid == owner:
                shutil.rmtree(path, ignore_errors=True)


def _temporary_folders() -> Iterator[tuple[Path, Lease]]:
    for path in Path(tempfile.gettempdir()).glob("lancestat-*"):
        named = _FOLDER_NAME.fullmatch(path.name)
        if named is not None and not path.is_symlink():
            yield path, Lease.of_tag(named[1])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in place of what is there, so that readers see the old or the new, never a part.

    Raises:
        OSError: It cannot be written.
    """
    remove_drafts(path)
    draft = new_draft(path)
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or not at all, and never over another.

    Raises:
        FileExistsError: Something is there.
        OSError: It cannot be written.
    """
    remove_drafts(path)
    draft = new_draft(path)
    try:
        draft.write_bytes(content)
        try:
            os.link(draft, path, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: the file may be cut by a kill, but no other is lost.
            with path.open("xb") as file:
                file.write(content)
    finally:
        draft.unlink(missing_ok=True)


def new_draft(path: Path) -> Path:
    """Return a path beside `path`, in the same file system, where nothing is yet."""
    return path.with_name(f"{_prefix(path)}{this_process().tag}-{secrets.token_hex(6)}")


def is_draft(path: Path) -> bool:
    """Return whether a path is named as drafts are."""
    return _DRAFT_NAME.fullmatch(path.name) is not None


def abandoned_drafts(path: Path) -> Iterator[Path]:
    """Yield the drafts of a path that nobody will complete any more."""
    return abandoned(_drafts(path))


def _drafts(path: Path) -> Iterator[tuple[Path, Lease]]:
    if not path.parent.is_dir():
        return
    for draft in sorted(path.parent.iterdir()):
        named = _DRAFT_NAME.fullmatch(draft.name)
        if named is not None and draft.name.startswith(_prefix(path)):
            with suppress(OSError):
                yield draft, Lease.of_tag(named[1], draft.lstat().st_mtime)


def _prefix(path: Path) -> str:
    return f".{path.name.lstrip('.')[:_LONGEST_NAME]}.draft-"


def remove_drafts(path: Path) -> None:
    """Remove the abandoned drafts of a path; one that cannot be removed stays."""
    for draft in abandoned_drafts(path):
        remove(draft)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)
