"""Temporary folders, and files that are written whole: beside their place first, then moved."""

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


def write_whole(place: Path, content: bytes) -> None:
    """Write a file in place of what is there, so that readers see the old or the new, never a part.

    Raises:
        OSError: It cannot be written.
    """
    remove_drafts(place)
    draft = new_draft(place)
    try:
        draft.write_bytes(content)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def write_new(place: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or not at all, and never over another.

    Raises:
        FileExistsError: Something is there.
        OSError: It cannot be written.
    """
    remove_drafts(place)
    draft = new_draft(place)
    try:
        draft.write_bytes(content)
        try:
            os.link(draft, place, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: the file may be cut by a kill, but no other is lost.
            with place.open("xb") as file:
                file.write(content)
    finally:
        draft.unlink(missing_ok=True)


def new_draft(place: Path) -> Path:
    """Return a path beside `place`, in the same file system, where nothing is yet."""
    return place.with_name(f"{_prefix(place)}{this_process().tag}-{secrets.token_hex(6)}")


def is_draft(path: Path) -> bool:
    """Return whether a path is named as drafts are."""
    return _DRAFT_NAME.fullmatch(path.name) is not None


def abandoned_drafts(place: Path) -> Iterator[Path]:
    """Yield the drafts of a place that nobody will complete any more."""
    return abandoned(_drafts(place))


def _drafts(place: Path) -> Iterator[tuple[Path, Lease]]:
    if not place.parent.is_dir():
        return
    for path in sorted(place.parent.iterdir()):
        named = _DRAFT_NAME.fullmatch(path.name)
        if named is not None and path.name.startswith(_prefix(place)):
            with suppress(OSError):
                yield path, Lease.of_tag(named[1], path.lstat().st_mtime)


def _prefix(place: Path) -> str:
    return f".{place.name.lstrip('.')[:_LONGEST_NAME]}.draft-"


def remove_drafts(place: Path) -> None:
    """Remove the abandoned drafts of a place; one that cannot be removed stays."""
    for path in abandoned_drafts(place):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)
