"""Folders that are filled once, for many tests that change them."""

from __future__ import annotations

import shutil
from pathlib import Path


class KeptFolder:
    """The first content of a folder, which each test gets at the same path.

    The state knows datasets by their paths, so that in a copy elsewhere they would be new to it.
    """

    def __init__(self, folder: Path) -> None:
        """Keep what the folder holds now."""
        self._folder, self._first = folder, folder.with_name(f"{folder.name}.first")
        shutil.copytree(folder, self._first, symlinks=True)

    def restored(self) -> Path:
        """Put the first content in place of what tests have made of it; return the folder."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._first, self._folder, symlinks=True)
        return self._folder
