"""Folders and small files in a file system or an object store, whichever it is."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.lake.files import local_path
from lancestat.lake.open import store_options
from lancestat.lake.temporary_files import new_draft, temporary_folder

if TYPE_CHECKING:
    from lance.file import LanceFileSession


_ATTEMPTS = 10
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FolderStorage:
    """A root in a file system; paths are relative to it, with slashes."""

    root: Path

    def uri(self, path: str) -> str:
        """Return the URI that Lance opens."""
        return str(self.root / path)

    def make(self, path: str) -> None:
        """Make a folder that does not exist yet."""
        folder = self.root / path

        def make() -> None:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()

        _retry_while_folders_vanish(make)

    def files(self, path: str) -> list[str]:
        """Return the names of the files in a folder."""
        return self._names(path, lambda entry: entry.is_file(follow_symlinks=False))

    def remove_file(self, path: str) -> None:
        """Remove a file that may be gone already."""
        (self.root / path).unlink(missing_ok=True)

    def children(self, path: str) -> list[str]:
        """Return the names of the folders in a folder; links are no folders."""
        return self._names(path, lambda entry: entry.is_dir(follow_symlinks=False))

    def _names(self, path: str, is_listed: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        try:
            with os.scandir(self.root / path) as entries:
                return sorted(entry.name for entry in entries if is_listed(entry))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> str | None:
        """Return a small file's text, None where there is no such file."""
        file = self.root / path
        if file.is_symlink() or not file.is_file():
            return None
        try:
            return file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def has_file(self, path: str, size_bytes: int) -> bool:
        """Return whether a file is there, of that size where listings have sizes."""
        try:
            status = (self.root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes

    def write(self, path: str, text: str, *, make_folder: bool = False) -> None:
        """Write a small file, so that it is there wholly or not at all.

        Its folder must exist, unless `make_folder` is true: then it is made, even where others
        remove it at the same time because it is empty.
        """
        file = self.root / path

        def make_and_write() -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write(file, text)

        if make_folder:
            _retry_while_folders_vanish(make_and_write)
        else:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        draft = new_draft(file)
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)

    def all_files(self, path: str) -> list[str]:
        """Return the paths, relative to a folder, of all files below it."""
        folder = self.root / path
        return [Path(entry.path).relative_to(folder).as_posix() for entry in _files(folder)]

    def size_bytes(self, path: str) -> int:
        """Return the bytes below a folder; 0 on object stores, whose listing has no sizes."""
        return sum(entry.stat(follow_symlinks=False).st_size for entry in _files(self.root / path))

    def remove(self, path: str, last: str | None = None) -> None:
        """Remove a folder with all that is in it, and the file `last` of it after all others.

        A link is removed, and what it points to is not touched.
        """
        folder = self.root / path
        for attempt in range(_ATTEMPTS):
            try:
                _remove_folder(folder, last)
            except FileNotFoundError:
                return
            except OSError:
                # Tasks that have been cancelled may write a little longer.
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def remove_empty(self, path: str) -> None:
        """Remove a folder unless something is in it."""
        try:
            (self.root / path).rmdir()
        except OSError:
            return


def _retry_while_folders_vanish(make: Callable[[], None]) -> None:
    """Make something in a folder that others may remove because it is empty."""
    for attempt in range(_ATTEMPTS):
        try:
            make()
        except (FileNotFoundError, FileExistsError):
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _remove_folder(folder: Path, last: str | None) -> None:
    with os.scandir(folder) as entries:
        others = [entry for entry in entries if entry.name != last]
    for entry in others:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    if last is not None:
        (folder / last).unlink(missing_ok=True)
    folder.rmdir()


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield entry
    except FileNotFoundError:
        return


@dataclass(frozen=True)
class ObjectStorage:
    """A root in an object store, where folders are prefixes and there are no links."""

    root: str
    options: Mapping[str, str] = field(repr=False)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def make(self, path: str) -> None:
        """See `FolderStorage`: there is nothing to do."""

    def files(self, path: str) -> list[str]:
        listed = self._session.list_with_delimiter(path or None).objects
        return sorted(object_path.rpartition("/")[2] for object_path in listed)

    def remove_file(self, path: str) -> None:
        if self._session.contains(path):
            self._session.delete_file(path)

    def children(self, path: str) -> list[str]:
        listed = self._session.list_with_delimiter(path or None).common_prefixes
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in listed)

    def read(self, path: str) -> str | None:
        if not self._session.contains(path):
            return None
        with temporary_folder() as folder:
            copy = folder / "copy"
            self._session.download_file(path, copy)
            return copy.read_text(encoding="utf-8", errors="replace")

    def has_file(self, path: str, size_bytes: int) -> bool:
        """See `FolderStorage`: listings have no sizes."""
        return bool(self._session.contains(path))

    def write(self, path: str, text: str, *, make_folder: bool = False) -> None:
        with temporary_folder() as folder:
            draft = folder / "draft"
            draft.write_text(text, encoding="utf-8")
            self._session.upload_file(draft, path)

    def size_bytes(self, path: str) -> int:
        return 0

    def all_files(self, path: str) -> list[str]:
        return [file.partition(f"{path}/")[2] for file in self._session.list(path)]

    def remove(self, path: str, last: str | None = None) -> None:
        for file in self.all_files(path):
            if file != last:
                self._session.delete_file(f"{path}/{file}")
        if last is not None:
            self.remove_file(f"{path}/{last}")

    def remove_empty(self, path: str) -> None:
        """See `FolderStorage`: an empty folder is none."""

    @cached_property
    def _session(self) -> LanceFileSession:
        from lance.file import LanceFileSession

        return LanceFileSession(self.root, storage_options=store_options(self.root, self.options))


Storage = FolderStorage | ObjectStorage


def storage_at(root: str, options: Mapping[str, str]) -> Storage:
    """Return the storage at a path or URI."""
    path = local_path(root)
    if path is None:
        return ObjectStorage(root.rstrip("/"), options)
    return FolderStorage(Path(os.path.normpath(path.absolute())))
