"""The files of a project."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol

from lancestat.errors import InvalidProject, LancestatError, Location, SpecError
from lancestat.redact import Origin, visible
from lancestat.spec import codes
from lancestat.spec.boundary import boundary, resolved_inside
from lancestat.spec.document import MAX_BYTES, Document, read_document
from lancestat.spec.quoting import quoted

_SUFFIXES = (".yml", ".yaml")


class Files(Protocol):
    """Where a project's files are read from.

    Names are relative to the project's folder, with slashes; `..` leads out of it. A SpecError of
    these functions has no place yet.
    """

    def has(self, name: str) -> bool:
        """Whether that is a file."""
        ...

    def read(self, name: str) -> bytes:
        """A file's content, of a file that is too large the beginning (`MAX_BYTES` and more).

        Raises:
            OSError: it cannot be read.
            SpecError: it is nothing that is read.
        """
        ...

    def below(self, folder: str) -> Iterable[str] | None:
        """The names of all spec files below a folder (`is_spec`), None where it is none.

        Raises:
            SpecError: the folder is nothing that is read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """The files that are in a folder now, `root`, whose path holds no links.

    A file outside of the project (`boundary`) is not read, whatever leads there: errors quote what
    they are about, and that would show the content of files which are not the project's.
    """

    root: Path

    def has(self, name: str) -> bool:
        """Whether that is a file, or a link, which reading may refuse."""
        path = self.root / name
        return os.path.lexists(path) and not path.is_dir()

    def read(self, name: str) -> bytes:
        """A file's content."""
        # Opening a pipe waits for somebody who writes, unless told not to.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(self._own(name), flags), "rb") as stream:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise SpecError(codes.UNREADABLE, f"{quoted(name)} is not a regular file")
            return stream.read(MAX_BYTES + 1)

    def below(self, folder: str) -> Iterable[str] | None:
        """The names of all spec files below a folder; links to folders are not followed."""
        self._own(folder)
        top = Path(os.path.normpath(self.root / folder))
        if not top.is_dir():
            return None
        found: list[str] = []
        for parent, folders, names in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [
                relative_name(self.root, Path(parent, name)) for name in names if is_spec(name)
            ]
        return found

    def _own(self, name: str) -> Path:
        top = boundary(self.root)
        path = resolved_inside(top, Path(os.path.normpath(self.root / name)))
        if path is None:
            what = "project's folder" if top == self.root else "repository"
            raise SpecError(
                codes.UNREADABLE,
                f"{quoted(name)} leads out of the {what}, and only files inside it are read",
                hint=f"put the files themselves into the {what}, without a link to another place",
            )
        return path


@dataclass(frozen=True, slots=True)
class SpecFolder:
    """A folder of spec files as the project file names it."""

    path: str
    location: Location
    origin: Origin | None = None


def is_spec(name: str) -> bool:
    """Whether a file is read for what it declares, by its name alone; hidden ones are not."""
    return name.endswith(_SUFFIXES) and not name.startswith(".")


def read_file(files: Files, name: str) -> Document:
    """A YAML file of a project; InvalidProject when it cannot be read."""
    place = Location(name, 1, 1)
    try:
        content = files.read(name)
    except OSError as error:
        message = f"cannot read the file: {error.strerror}"
        raise InvalidProject([SpecError(codes.UNREADABLE, message, location=place)]) from None
    except SpecError as error:
        raise InvalidProject([error.placed(place)]) from None
    return read_document(content, name)


def relative_name(root: Path, path: Path) -> str:
    """How messages and `path:` selectors name a file."""
    return PurePath(os.path.relpath(path, root)).as_posix()


def spec_files(
    files: Files,
    root: Path,
    folders: Sequence[SpecFolder],
    errors: list[LancestatError],
) -> list[str]:
    """All spec files below the folders but hidden ones, sorted; errors are appended."""
    found: dict[str, None] = {}
    for folder in folders:
        text = folder.path
        shown = visible(text if folder.origin is None else folder.origin.shown)
        try:
            below = None
            if "\0" not in text:
                below = files.below(relative_name(root, Path(os.path.normpath(root / text))))
        except SpecError as error:
            errors.append(_placed(error, folder))
            continue
        except OSError as error:
            message = f"cannot read spec path '{shown}': {error.strerror}"
            errors.append(SpecError(codes.UNREADABLE, message, location=folder.location))
            continue
        if below is None:
            errors.append(
                SpecError(
                    codes.UNREADABLE,
                    f"spec path '{shown}' is not a folder",
                    location=folder.location,
                    hint=f"create it in {root}, or change 'spec-paths'",
                )
            )
            continue
        found.update(dict.fromkeys(sorted(below, key=lambda name: PurePosixPath(name).parts)))
    return list(found)


def _placed(error: SpecError, folder: SpecFolder) -> LancestatError:
    """What is wrong with a folder, whose name is only told where the project file holds it."""
    if folder.origin is None:
        return error.placed(folder.location)
    message = f"spec path '{visible(folder.origin.shown)}' is nothing that is read"
    return SpecError(error.code, message, location=folder.location, hint=error.hint)
