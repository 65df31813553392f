"""Puts a site in its folder, and never over files of others.

A site is made whole in a draft within its folder. Then its files are put in place one by one, each
in one step, the overview last, and pages that are no more are removed after that. A reader gets the
old page or the new one, and every page that the overview links to is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from lancestat.lake.files import is_draft, remove, write_whole

# A folder that has it holds a site, whose other files it lists.
MARKER = ".lancestat-docs"
_HEAD = "`lancestat docs` replaces these files, and no others:\n"
# The files that a site has: the marker may have been edited, and what it lists is removed.
_LAYOUT = re.compile(
    r"(index|runs|graph|errors)\.html|search-index\.js"
    r"|(tables|joins|duplicates)/[^/]+\.html|assets/[^/]+"
)
_FIRST = "index.html"


def is_free(folder: Path) -> bool:
    """Whether a folder is empty or holds a site."""
    if (folder / MARKER).is_file():
        return True
    # A first run may have been killed before it wrote the marker.
    return all(is_draft(path) for path in folder.iterdir())


def put(draft: Path, folder: Path) -> None:
    """Put the files of a complete site, made in a draft within `folder`, in their places."""
    before = _listed(folder)
    now = {path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file()}
    assert all(map(_LAYOUT.fullmatch, now)), "files of a site are known as such later"
    _mark(folder, before | now)
    for path in sorted(now, key=lambda path: (path == _FIRST, "/" not in path, path)):
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        if target.parent.is_symlink():
            raise OSError(f"{target.parent} is a link, and pages are not written through it")
        (draft / path).replace(target)
    for path in before - now:
        if not (folder / path).parent.is_symlink():
            (folder / path).unlink(missing_ok=True)
    _mark(folder, now)
    remove(draft)


def _mark(folder: Path, files: Collection[str]) -> None:
    write_whole(folder / MARKER, (_HEAD + "".join(f"{path}\n" for path in sorted(files))).encode())


def _listed(folder: Path) -> set[str]:
    """The site's files, relative to its folder, without the marker."""
    marker = folder / MARKER
    text = marker.read_text("utf-8", "replace") if marker.is_file() else ""
    return set(filter(_LAYOUT.fullmatch, text.splitlines()))
