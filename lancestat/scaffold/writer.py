"""Writes the files of a new project: each of them whole, and never over what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, NotWritten, PlaceOccupied
from lancestat.lake.open import observe_dataset, readable
from lancestat.lake.temporary_files import new_draft, remove, remove_drafts, write_new
from lancestat.redact import redact_line
from lancestat.spec.schema import PROJECT_FILE

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The contents of a new project, by path relative to its folder.

    `files` are its texts, `tables` return the rows of its Lance datasets. `editor_files` belong to
    the folder rather than to the project: one that is there stays as it is.
    """

    files: Mapping[str, str]
    editor_files: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)

    def write(self, root: Path) -> list[str]:
        """Write the project into a folder, which may hold other things, its project file last.

        So a folder without a project file is not a project yet: what a killed process has left of
        the same scaffold there is completed.

        Returns:
            The editor files that were there and stay as they are.

        Raises:
            PlaceOccupied: There is a project already, or a file or table of the scaffold's names;
                nothing was written.
            NotWritten: The folder cannot be written to.
        """
        for name in (*self.files, *self.editor_files, *self.tables):
            # Also where nothing is written.
            remove_drafts(root / name)
        _require_free_paths(self, root)
        unchanged = [
            name
            for name, text in self.editor_files.items()
            if _exists(root / name) and not _has_text(root / name, text)
        ]
        texts = {**self.files, **self.editor_files}
        try:
            for name, rows in self.tables.items():
                _write_table(root / name, rows)
            for name in sorted(texts.keys() - unchanged, key=lambda name: name == PROJECT_FILE):
                _write_text(root / name, texts[name])
        except OSError as error:
            path = error.filename2 or error.filename or root
            reason = error.strerror or redact_line(str(error))
            raise NotWritten(f"cannot write to {path}: {reason}") from error
        return unchanged


def _require_free_paths(scaffold: Scaffold, root: Path) -> None:
    if _exists(root / PROJECT_FILE):
        in_the_way = [PROJECT_FILE]
    else:
        in_the_way = [
            name
            for name, text in scaffold.files.items()
            if _exists(root / name) and not _has_text(root / name, text)
        ]
        in_the_way += [
            name
            for name, rows in scaffold.tables.items()
            if _exists(root / name) and not _has_rows(root / name, rows())
        ]
    if in_the_way:
        raise PlaceOccupied(
            f"nothing was written, since {root} already holds {', '.join(in_the_way)}",
            hint="name an empty folder: lancestat init DIR",
        )


def _exists(path: Path) -> bool:
    # A broken link would be written through.
    return path.exists() or path.is_symlink()


def _has_text(path: Path, text: str) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == text.encode("utf-8")
    except OSError:
        return False


def _has_rows(path: Path, rows: pa.Table) -> bool:
    uri = str(path.absolute())
    try:
        with readable(uri):
            return not path.is_symlink() and observe_dataset(uri).to_table().equals(rows)
    except LakeError:
        return False


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _has_text(path, text):
        # Even a file that appeared since is not overwritten.
        write_new(path, text.encode("utf-8"))


def _write_table(path: Path, rows: Callable[[], pa.Table]) -> None:
    import lance

    if _exists(path):
        # It holds these rows already.
        return
    table = rows()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = new_draft(path)
    try:
        # In two fragments, so that plans show what they count.
        lance.write_dataset(table, draft.absolute(), max_rows_per_file=-(-table.num_rows // 2))
        # This fails where a folder with files appeared since.
        draft.rename(path)
    finally:
        remove(draft)
