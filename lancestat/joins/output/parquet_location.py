"""The place of a Parquet result: a link, and beside it a folder with generations of the result.

similar.parquet -> .similar.parquet.lancestat/5d0f3a7c91b2e846
.similar.parquet.lancestat/
    lancestat.json              the mark: whose folder this is, and which files generations have
    lock                        held while the link moves
    superseded                  generations that somebody may still read, and since when
    5d0f3a7c91b2e846/           part-000000-5d0f3a7c91b2e846.parquet and so on
    77aa01b2c3d4e5f6.part/      files of a run that goes on
    77aa01b2c3d4e5f6.json       the process of that run

Readers list the files first and open them by name later. No name occurs in two generations, unless
it is the same file, so that a reader who lists one and opens another fails and never mixes rows.
Who resolves the link first reads one result, whatever is committed meanwhile.

A copy of the folder has its mark too. The mark therefore counts only at the place that it names,
and a generation is a join's result only while it holds the files that the mark lists.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lancestat.errors import OutputNotReplaceable, RunError
from lancestat.joins.output.writer import GRACE, location_digest, refused
from lancestat.lake.files import Lease, Process, abandoned, local_path, parse_instant, this_process
from lancestat.redact import redact_line

_log = logging.getLogger("lancestat.knn")

MARKER = "lancestat.json"
_HOLDS = "generations of a KNN join's result"
_FORMAT_VERSION = 2
# File systems round times of files differently when they write them down.
_CLOCK_SECONDS = 2.0
_SUPERSEDED = "superseded"
_GENERATION = re.compile(r"[0-9a-f]{16}")
_SUFFIXES = (".part", ".link", ".json", ".json.draft")
_OURS = re.compile(r"([0-9a-f]{16})(\.part|\.link|\.json|\.json\.draft)?")


@dataclass(frozen=True, slots=True)
class ParquetLocation:
    """The place of one result; `path` is what readers open, absolute."""

    uri: str
    path: Path

    @property
    def root(self) -> Path:
        return self.path.with_name(f".{self.path.name}.lancestat")

    def generation(self) -> str | None:
        """Return the generation that readers see, None when there is none; see `check`."""
        if not os.path.lexists(self.path):
            return None
        if not self.path.is_symlink():
            what = "a folder" if self.path.is_dir() else "a file"
            raise refused(self.uri, f"{what} that no join has written", {})
        target = self.path.readlink()
        if target.parent != Path(self.root.name) or not _GENERATION.fullmatch(target.name):
            raise refused(self.uri, "a link that no join has made", {})
        return target.name if (self.root / target.name).is_dir() else None

    def check(self) -> None:
        """Refuse what no join has written here, at the path of the link or of the folder."""
        generation = self.generation()
        if self.root.is_symlink() or (self.root.exists() and not self._is_marked()):
            raise refused(str(self.root), "something that no join has made", {})
        mark = self._mark()
        if mark is None:
            return
        if mark.location != location_digest(str(self.root)):
            what = "a copy of a join's result that was written at another location"
            raise refused(str(self.root if generation is None else self.path), what, {})
        if generation is not None:
            files = mark.generations.get(generation)
            if files is None or not is_unchanged(self.root / generation, files):
                what = "a join's result that something else has changed since"
                raise refused(self.uri, what, {})

    def prepare(self) -> None:
        """Make the folder for generations, after `check`; its mark names this path from now on."""
        self.check()
        self.root.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if self._mark() is None:
                mark = ParquetMark(location_digest(str(self.root)))
                write_durably(self.root / MARKER, mark.to_json())

    def start(self) -> Path:
        """Make a folder for files of a generation that nobody sees yet, with a lease."""
        generation = secrets.token_hex(8)
        created = datetime.now(timezone.utc).isoformat()
        owner = {**this_process().to_json(), "created": created}
        write_durably(self.root / f"{generation}.json", json.dumps(owner))
        folder = self.root / f"{generation}.part"
        folder.mkdir()
        return folder

    def publish(self, generation: str) -> None:
        """Let readers see a generation, whose files are complete, from now on; holds the lock."""
        before, mark = self.generation(), self._mark()
        sync_folder(self.root / generation)
        assert mark is not None
        write_durably(self.root / MARKER, mark.with_generation(self.root / generation).to_json())
        if before is not None:
            self._supersede(before)
        link = self.root / f"{generation}.link"
        target = Path(self.root.name) / generation
        if os.path.lexists(self.path):
            link.symlink_to(target)
            sync_folder(self.root)
            link.replace(self.path)
        else:
            sync_folder(self.root)
            # Unlike a rename this does not replace what somebody puts there meanwhile.
            self.path.symlink_to(target)
        sync_folder(self.path.parent)

    def forget(self, generation: str) -> None:
        """Remove the files of a run, except a generation that readers may see.

        A generation into which somebody else has written stays, too.
        """
        if generation not in self._readable() | self._changed():
            _remove(self.root / generation)
        for suffix in _SUFFIXES:
            _remove(self.root / f"{generation}{suffix}")

    def collect_garbage(self) -> None:
        """Remove generations that no reader can see and no run is writing; holds the lock.

        Such files are also left by a run that was killed after it had published.
        """
        names = {entry.name for entry in self.root.iterdir()}
        generations = {match[1] for name in names if (match := _OURS.fullmatch(name))}
        for generation in abandoned((name, self._lease(name)) for name in generations):
            self.forget(generation)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this place, where the file system has locks."""
        try:
            import fcntl
        except ImportError:
            yield
            return
        with (self.root / "lock").open("a", encoding="utf-8") as lock:
            # Network file systems may have none; the link still moves in one step.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _readable(self) -> set[str]:
        """Return the generations that readers see or may still read.

        The newest that was superseded always is one of them.
        """
        superseded = self._superseded()
        now = datetime.now(timezone.utc)
        readable = {generation for generation, since in superseded.items() if now - since < GRACE}
        if superseded:
            readable.add(max(superseded, key=lambda generation: superseded[generation]))
        with suppress(RunError):
            readable.add(self.generation() or "")
        return readable

    def _changed(self) -> set[str]:
        """Return the generations that hold what no join has written."""
        mark = self._mark()
        listed = {} if mark is None else mark.generations
        return {
            name
            for name, files in listed.items()
            if (self.root / name).is_dir() and not is_unchanged(self.root / name, files)
        }

    def _supersede(self, generation: str) -> None:
        since = {**self._superseded(), generation: datetime.now(timezone.utc)}
        present = {name: instant for name, instant in since.items() if (self.root / name).is_dir()}
        stored = {name: instant.isoformat() for name, instant in present.items()}
        write_durably(self.root / _SUPERSEDED, json.dumps(stored))

    def _superseded(self) -> dict[str, datetime]:
        try:
            stored = json.loads((self.root / _SUPERSEDED).read_text(encoding="utf-8"))
            return {name: datetime.fromisoformat(since) for name, since in stored.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _lease(self, generation: str) -> Lease:
        """Return the lease of a generation: one that has ended where there is none.

        A lease that cannot be understood does not end.
        """
        try:
            stored = json.loads((self.root / f"{generation}.json").read_text(encoding="utf-8"))
            return Lease(Process.from_json(stored), parse_instant(stored["created"]))
        except FileNotFoundError:
            return Lease(None, datetime.min.replace(tzinfo=timezone.utc))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return Lease(None)

    def _is_marked(self) -> bool:
        # Listed first: the marker comes before all else, which other runs may add at any moment.
        names = self._names() if self.root.is_dir() else {""}
        try:
            return read_mark(self.root) is not None
        except FileNotFoundError:
            # Another run may be about to write it, or was killed before it could.
            return names <= {"lock", f"{MARKER}.draft"}

    def _mark(self) -> ParquetMark | None:
        try:
            return read_mark(self.root)
        except FileNotFoundError:
            return None

    def _names(self) -> set[str]:
        return {entry.name for entry in self.root.iterdir()}


def location_of(uri: str) -> ParquetLocation:
    """Return the place that a URI names."""
    path = local_path(uri)
    if path is None:
        raise OutputNotReplaceable(
            f"a Parquet result cannot be replaced in one step at {redact_line(uri)}, since object "
            "stores have neither links nor renames",
            hint="use 'output: {lance: ...}', which commits atomically there",
        )
    return ParquetLocation(uri, Path(os.path.normpath(path.absolute())))


def write_durably(path: Path, text: str) -> None:
    """Write a small file so that it is there wholly or not at all, even after a power failure.

    One at a time: the lock is held.
    """
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last. Best effort: some file systems cannot sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s was not removed: %s", path, error.strerror)


@dataclass(frozen=True, slots=True)
class GenerationFile:
    """A file of a generation, as it was when the generation was complete."""

    name: str
    size_bytes: int
    modified_at: float

    def is_same(self, path: Path) -> bool:
        stat = path.stat()
        drift = abs(stat.st_mtime - self.modified_at)
        return stat.st_size == self.size_bytes and drift < _CLOCK_SECONDS


@dataclass(frozen=True, slots=True)
class ParquetMark:
    """The mark of a folder of generations; `location` is a `location_digest`."""

    location: str
    generations: Mapping[str, tuple[GenerationFile, ...]] = field(default_factory=dict)

    def with_generation(self, folder: Path) -> ParquetMark:
        """Return the mark once a generation is complete, less the generations that are gone."""
        present = {
            name: files
            for name, files in self.generations.items()
            if folder.with_name(name).is_dir()
        }
        return replace(self, generations={**present, folder.name: _listed(folder)})

    def to_json(self) -> str:
        generations = {
            name: [[file.name, file.size_bytes, file.modified_at] for file in files]
            for name, files in self.generations.items()
        }
        return json.dumps(
            {
                "format_version": _FORMAT_VERSION,
                "holds": _HOLDS,
                "place": self.location,
                "generations": generations,
            }
        )


def read_mark(folder: Path) -> ParquetMark | None:
    """Read the mark of a folder of generations; None where it is not one."""
    try:
        stored = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        if stored["holds"] != _HOLDS or stored["format_version"] != _FORMAT_VERSION:
            return None
        generations = {name: _files(files) for name, files in stored["generations"].items()}
        return ParquetMark(str(stored["place"]), generations)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def is_unchanged(folder: Path, files: tuple[GenerationFile, ...]) -> bool:
    """Return whether a generation holds nothing but files that were listed, as they were.

    Files that are gone or can no longer be read do not count as changes.
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


def _listed(folder: Path) -> tuple[GenerationFile, ...]:
    stats = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
    return tuple(GenerationFile(name, stat.st_size, stat.st_mtime) for name, stat in stats)


def _files(stored: Any) -> tuple[GenerationFile, ...]:
    return tuple(
        GenerationFile(str(name), int(size), float(modified_at))
        for name, size, modified_at in stored
    )
