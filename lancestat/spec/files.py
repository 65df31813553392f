"""The files of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from lancestat.errors import InvalidProject, LancestatError, Location, SpecError
from lancestat.spec import codes
from lancestat.spec.document import MAX_BYTES, Document, read_document

_SUFFIXES = (".yml", ".yaml")


def read_file(root: Path, path: Path) -> Document:
    """A YAML file of the project at `root`; InvalidProject when it cannot be read."""
    file = relative_name(root, path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidProject(
            [
                SpecError(
                    codes.UNREADABLE,
                    f"cannot read the file: {error.strerror}",
                    location=Location(file, 1, 1),
                )
            ]
        ) from None
    return read_document(content, file)


def relative_name(root: Path, path: Path) -> str:
    """How messages and `path:` selectors name a file."""
    return PurePath(os.path.relpath(path, root)).as_posix()


def spec_files(
    root: Path, folders: Sequence[tuple[str, Location]], errors: list[LancestatError]
) -> list[Path]:
    """All spec files below the folders but hidden ones, sorted; errors are appended."""
    found: dict[Path, None] = {}
    for text, location in folders:
        folder = Path(os.path.normpath(root / text)) if "\0" not in text else None
        if folder is None or not folder.is_dir():
            errors.append(
                SpecError(
                    codes.UNREADABLE,
                    f"spec path '{text}' is not a folder",
                    location=location,
                    hint=f"create it in {root}, or change 'spec-paths'",
                )
            )
            continue
        found.update(dict.fromkeys(_yaml_files(folder)))
    return list(found)


def _yaml_files(folder: Path) -> Iterator[Path]:
    files: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            Path(parent, name)
            for name in names
            if name.endswith(_SUFFIXES) and not name.startswith(".")
        ]
    return iter(sorted(files, key=lambda path: path.relative_to(folder).parts))
