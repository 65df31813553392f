"""Temporary folders whose names say which process made them, so that `gc` can remove them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lancestat.lake.process import is_mark_alive, process_mark

_NAME = re.compile(r"lancestat-([0-9a-f]{12}-\d+-\d+)-[^-]+")


def make_temporary_folder() -> Path:
    """A new folder that nobody else may read, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix=f"lancestat-{process_mark()}-"))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder that nobody else may read, gone when the block ends."""
    folder = make_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_temporary_folders() -> None:
    """Remove what killed processes of this user have left of such folders."""
    owner = os.getuid() if hasattr(os, "getuid") else None
    for path in Path(tempfile.gettempdir()).glob("lancestat-*"):
        named = _NAME.fullmatch(path.name)
        if named is None or path.is_symlink() or is_mark_alive(named[1]) is not False:
            continue
        try:
            is_own = owner is None or path.lstat().st_uid == owner
        except FileNotFoundError:
            continue
        if is_own:
            shutil.rmtree(path, ignore_errors=True)
