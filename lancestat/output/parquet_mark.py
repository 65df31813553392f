"""The mark of a join's Parquet results: which place they belong to, and which files they have.

It lies in the folder of the generations, and a copy of that folder has it too. It therefore counts
only at the place that it names, and a generation is a join's result only while it holds the files
that the mark lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

NAME = "lancestat.json"

_HOLDS = "generations of a KNN join's result"
_FORMAT_VERSION = 2
# File systems round times of files differently when they write them down.
_CLOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a generation, as it was when the generation was complete."""

    name: str
    size_bytes: int
    modified_at: float

    def is_same(self, path: Path) -> bool:
        """Whether a file is as it was."""
        found = path.stat()
        drift = abs(found.st_mtime - self.modified_at)
        return found.st_size == self.size_bytes and drift < _CLOCK_SECONDS


@dataclass(frozen=True, slots=True)
class ParquetMark:
    """`place` is a `place_digest`, None in the marks of earlier releases, which list no files."""

    place: str | None
    generations: Mapping[str, tuple[ListedFile, ...]] = field(default_factory=dict)

    def with_generation(self, folder: Path) -> ParquetMark:
        """The mark once a generation is complete, less the generations that are gone."""
        kept = {
            name: files
            for name, files in self.generations.items()
            if folder.with_name(name).is_dir()
        }
        return replace(self, generations={**kept, folder.name: _listed(folder)})

    def to_json(self) -> str:
        """The stored form."""
        generations = {
            name: [[file.name, file.size_bytes, file.modified_at] for file in files]
            for name, files in self.generations.items()
        }
        return json.dumps(
            {
                "format_version": _FORMAT_VERSION,
                "holds": _HOLDS,
                "place": self.place,
                "generations": generations,
            }
        )


def read_mark(folder: Path) -> ParquetMark | None:
    """The mark of a folder of generations, None where it is not one.

    Raises:
        FileNotFoundError: there is no mark.
    """
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if found["holds"] != _HOLDS:
            return None
        if found["format_version"] == 1:
            return ParquetMark(None)
        generations = {name: _files(each) for name, each in found["generations"].items()}
        return ParquetMark(str(found["place"]), generations)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def is_unchanged(folder: Path, files: tuple[ListedFile, ...]) -> bool:
    """Whether a generation holds nothing but files that were listed, as they were.

    Files that are gone hide nothing, and files that can no longer be read hold no rows of anybody.
    """
    known = {file.name: file for file in files}
    for path in folder.iterdir():
        # File systems and their users leave hidden files everywhere.
        if path.name.startswith("."):
            continue
        listed = known.get(path.name)
        if listed is None or not (listed.is_same(path) or _is_damaged(path)):
            return False
    return True


def _is_damaged(path: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        parquet.read_metadata(path)
    except (OSError, ValueError, pa.ArrowException):
        return path.is_file()
    return False


def _listed(folder: Path) -> tuple[ListedFile, ...]:
    found = sorted(folder.iterdir())
    stats = [(path.name, path.stat()) for path in found]
    return tuple(ListedFile(name, stat.st_size, stat.st_mtime) for name, stat in stats)


def _files(stored: Any) -> tuple[ListedFile, ...]:
    return tuple(ListedFile(str(name), int(size), float(at)) for name, size, at in stored)
