"""Drafts: what is written beside its place, and moved there once it is whole.

A draft's name says which process writes it, as in `.plan.json.draft-HOST-PID-STARTED-RANDOM`. The
next one to write to that place removes the drafts of processes that have ended.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from lancestat.lake.process import is_mark_alive, process_mark

_NAME = re.compile(r"\..*\.draft-([0-9a-f]{12}-\d+-\d+)-[0-9a-f]{12}")
# File systems take 255 bytes, and a character may have four.
_LONGEST_NAME = 40
# Whether a process of another host still writes is not known before that.
_ABANDONED_AFTER_SECONDS = 7 * 24 * 3600.0


def write_whole(place: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or as it was, in place of what is there.

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
    """A path beside `place`, in the same file system, where nothing is yet."""
    return place.with_name(f"{_prefix(place)}{process_mark()}-{secrets.token_hex(6)}")


def is_draft(path: Path) -> bool:
    """Whether a path is named as drafts are."""
    return _NAME.fullmatch(path.name) is not None


def abandoned_drafts(place: Path) -> Iterator[Path]:
    """Drafts of a place whose processes have ended."""
    if not place.parent.is_dir():
        return
    for path in sorted(place.parent.iterdir()):
        if path.name.startswith(_prefix(place)) and _is_abandoned(path):
            yield path


def remove_drafts(place: Path) -> None:
    """Remove the drafts of a place whose processes have ended; what cannot be removed stays."""
    for path in abandoned_drafts(place):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, that may be gone already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _prefix(place: Path) -> str:
    return f".{place.name.lstrip('.')[:_LONGEST_NAME]}.draft-"


def _is_abandoned(path: Path) -> bool:
    named = _NAME.fullmatch(path.name)
    if named is None:
        return False
    alive = is_mark_alive(named[1])
    if alive is not None:
        return not alive
    try:
        return time.time() - path.lstat().st_mtime > _ABANDONED_AFTER_SECONDS
    except OSError:
        return False
