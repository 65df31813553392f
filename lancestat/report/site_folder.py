"""Puts a site in its folder: in one step where that is possible, and never over files of others.

A site is made whole beside its folder. Where the folder holds nothing but the site before, the
file system exchanges the two in one step. Not every file system can, a folder at which another one
is mounted cannot be moved, and files that somebody else has put into the folder must stay where
they are: there the files are replaced one by one, each in one step, the overview last, and pages
that are no more are removed after that. A reader gets the old page or the new one.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from lancestat.lake.files import abandoned_drafts, is_draft, new_draft, remove, remove_drafts

_log = logging.getLogger("lancestat.report")

# A folder that has it holds a site, whose other files it lists.
MARKER = ".lancestat-docs"
_HEAD = "`lancestat docs` replaces these files, and no others:\n"
# What a site of a release that listed nothing may consist of.
_LAYOUT = re.compile(
    r"(index|runs|graph|errors)\.html|search-index\.js|(tables|joins)/[^/]+\.html|assets/[^/]+"
)
_FIRST = "index.html"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2


def is_free(folder: Path) -> bool:
    """Whether a folder is empty or holds a site."""
    if (folder / MARKER).is_file():
        return True
    # A first run may have been killed while it wrote the marker.
    return all(is_draft(path) for path in folder.iterdir())


def complete(draft: Path) -> None:
    """Mark a folder that has all its pages as a complete site."""
    _mark(draft, sorted(_files(draft)))


def put(draft: Path, folder: Path) -> None:
    """Put a complete site, made beside `folder`, in the place of what is there."""
    if not folder.exists() or not any(folder.iterdir()):
        try:
            draft.rename(folder)
        except OSError:
            # Something is mounted there, or another process has just put a site there.
            if not folder.is_dir():
                raise
        else:
            return
    if any(_others(folder)) or not exchange(draft, folder):
        _replace_files(draft, folder)
    clear(draft, folder)


def clear(draft: Path, folder: Path) -> None:
    """Remove a draft of a site; files of others, which came at the last moment, move back."""
    if (draft / MARKER).is_file():
        for path in list(_others(draft)):
            if os.path.lexists(folder / path):
                _log.warning("%s is not of lancestat, and was left there", draft / path)
                return
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (draft / path).rename(folder / path)
    remove(draft)


def clear_drafts(folder: Path) -> None:
    """Remove what killed processes have left of sites for `folder`."""
    for draft in abandoned_drafts(folder):
        clear(draft, folder)
    remove_drafts(folder / MARKER)


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system or file system cannot."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        paths = os.fsencode(one), os.fsencode(other)
        if sys.platform == "linux":
            failed = libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
        elif sys.platform == "darwin":
            failed = libc.renamex_np(paths[0], paths[1], _RENAME_SWAP)
        else:
            return False
    except (OSError, AttributeError, TypeError):
        # There is no such function; on Windows no such library.
        return False
    return not failed


def _replace_files(draft: Path, folder: Path) -> None:
    remove_drafts(folder / MARKER)
    before, now = _listed(folder), _listed(draft)
    _mark(folder, sorted({*before, *now}))
    for path in sorted(now, key=lambda path: (path == _FIRST, "/" not in path, path)):
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        if target.parent.is_symlink():
            raise OSError(f"{target.parent} is a link, and pages are not written through it")
        made = new_draft(folder / MARKER)
        try:
            shutil.copyfile(draft / path, made)
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
    for path in before - now:
        (folder / path).unlink(missing_ok=True)
    _mark(folder, sorted(now))


def _mark(folder: Path, files: Collection[str]) -> None:
    made = new_draft(folder / MARKER)
    try:
        made.write_text(_HEAD + "".join(f"{path}\n" for path in files), "utf-8")
        made.replace(folder / MARKER)
    finally:
        made.unlink(missing_ok=True)


def _listed(folder: Path) -> set[str]:
    """The site's files, relative to its folder, without the marker."""
    try:
        text = (folder / MARKER).read_text("utf-8")
    except FileNotFoundError:
        return set()
    named = text.splitlines()[1:] if text.startswith(_HEAD) else _files(folder)
    # Only names that a site can have: the marker may have been edited.
    return {path for path in named if _LAYOUT.fullmatch(path)}


def _others(folder: Path) -> Iterator[str]:
    """Yield what a folder holds beside the site: paths of files, links and whole folders."""
    ours = {*_listed(folder), MARKER}
    homes = {str(Path(path).parent) for path in ours} - {"."}
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False) and entry.name in homes:
            inside = (f"{entry.name}/{child.name}" for child in _entries(entry.path))
            yield from (path for path in inside if path not in ours)
        elif entry.name not in ours and not is_draft(Path(entry.path)):
            yield entry.name


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
