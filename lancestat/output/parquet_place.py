"""Where a Parquet result lies: a link, and beside it a folder with generations of the result.

similar.parquet -> .similar.parquet.lancestat/5d0f3a7c91b2e846
.similar.parquet.lancestat/
    lancestat.json              says whose folder this is, and which files generations have
    lock                        held while the link moves
    superseded                  generations that somebody may still read, and since when
    5d0f3a7c91b2e846/           part-000000-5d0f3a7c91b2e846.parquet and so on
    77aa01b2c3d4e5f6.part/      files of a run that goes on
    77aa01b2c3d4e5f6.json       the process of that run

Readers list the files first and open them by name later. No name occurs in two generations, unless
it is the same file, so that a reader who lists one and opens another fails and never mixes rows.
Who resolves the link first reads one result, whatever is committed meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lancestat.errors import RunError
from lancestat.lake.files import local_path
from lancestat.lake.temporary_files import Process, this_process
from lancestat.output.errors import refused
from lancestat.output.parquet_mark import NAME as MARKER
from lancestat.output.parquet_mark import ParquetMark, is_unchanged, read_mark
from lancestat.output.result import place_digest
from lancestat.redact import clean

_log = logging.getLogger("lancestat.knn")

_SUPERSEDED = "superseded"
_GENERATION = re.compile(r"[0-9a-f]{16}")
_SUFFIXES = (".part", ".link", ".json", ".json.draft")
_OURS = re.compile(r"([0-9a-f]{16})(\.part|\.link|\.json|\.json\.draft)?")
# A generation outlives its successor's commit by that: longer than listing and opening files takes.
GRACE = timedelta(minutes=15)
# After that time nobody on another host still writes.
_ABANDONED_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ParquetPlace:
    """The place of one result. `path` is what readers open, absolute."""

    uri: str
    path: Path

    @property
    def root(self) -> Path:
        """The folder with all generations."""
        return self.path.with_name(f".{self.path.name}.lancestat")

    def generation(self) -> str | None:
        """The generation that readers see, None when there is none; whose it is is for `check`.

        Raises:
            RunError: LS570 something else is there than a link to a generation.
        """
        if not os.path.lexists(self.path):
            return None
        if not self.path.is_symlink():
            what = "a folder" if self.path.is_dir() else "a file"
            raise refused(self.uri, f"{what} that no join has written", {})
        target = self.path.readlink()
        if target.parent != Path(self.root.name) or not _GENERATION.fullmatch(target.name):
            raise refused(self.uri, "a link that no join has made", {})
        return target.name if (self.root / target.name).is_dir() else None

    def check(self, is_remembered: Callable[[str], bool]) -> None:
        """Refuse what no join has written here, at the place of the link or of the folder.

        Args:
            is_remembered: Whether the state remembers a generation as it is now. One of an earlier
                lancestat, whose mark names neither its place nor its files, needs that.

        Raises:
            RunError: LS570 something else is there.
        """
        generation = self.generation()
        if self.root.is_symlink() or (self.root.exists() and not self._is_marked()):
            raise refused(str(self.root), "something that no join has made", {})
        mark = self._mark()
        if mark is None:
            return
        if mark.place is None:
            self._check_earlier(generation, is_remembered)
        elif mark.place != place_digest(str(self.root)):
            what = "a copy of a join's result that was written at another place"
            raise refused(str(self.root if generation is None else self.path), what, {})
        elif generation is not None:
            files = mark.generations.get(generation)
            if files is None or not is_unchanged(self.root / generation, files):
                what = "a join's result that something else has changed since"
                raise refused(self.uri, what, {})

    def _check_earlier(self, generation: str | None, is_remembered: Callable[[str], bool]) -> None:
        what = "the result of an earlier lancestat, which does not prove that a join wrote it there"
        if generation is not None and not is_remembered(generation):
            raise refused(self.uri, what, {})
        if generation is None and any(_GENERATION.fullmatch(each) for each in self._names()):
            raise refused(str(self.root), what, {})

    def prepare(self, is_remembered: Callable[[str], bool]) -> None:
        """Make the folder for generations, after `check`; its mark names this place from now on.

        Raises:
            RunError: LS570 something else is there.
        """
        self.check(is_remembered)
        self.root.mkdir(parents=True, exist_ok=True)
        with self.locked():
            mark = self._mark()
            if mark is not None and mark.place is not None:
                return
            made, generation = ParquetMark(place_digest(str(self.root))), self.generation()
            if generation is not None:
                made = made.with_generation(self.root / generation)
            write_durably(self.root / MARKER, made.to_json())

    def start(self) -> Path:
        """A new folder for files of a generation that nobody sees yet."""
        generation = secrets.token_hex(8)
        owner = {**asdict(this_process()), "created": datetime.now(timezone.utc).isoformat()}
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
            # Unlike a rename this spares what somebody puts there meanwhile.
            self.path.symlink_to(target)
        sync_folder(self.path.parent)

    def forget(self, generation: str) -> None:
        """Remove what a run has there, except a generation that readers may see.

        Nor is one removed into which somebody else has written.
        """
        if generation not in self._kept() | self._changed():
            _remove(self.root / generation)
        for suffix in _SUFFIXES:
            _remove(self.root / f"{generation}{suffix}")

    def sweep(self) -> None:
        """Remove what is neither seen, nor was before, nor is being written; holds the lock.

        A run that was killed after it published has left what it needed for that.
        """
        found = {match[1] for entry in self.root.iterdir() if (match := _matched(entry))}
        for generation in found:
            if not self._is_owned(generation):
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

    def _kept(self) -> set[str]:
        """What readers see or may still read: the newest that was superseded always does."""
        superseded = self._superseded()
        now = datetime.now(timezone.utc)
        kept = {each for each, since in superseded.items() if now - since < GRACE}
        if superseded:
            kept.add(max(superseded, key=lambda each: superseded[each]))
        with suppress(RunError):
            kept.add(self.generation() or "")
        return kept

    def _changed(self) -> set[str]:
        """Generations that hold what no join has written."""
        mark = self._mark()
        found = {} if mark is None else mark.generations
        there = {name: files for name, files in found.items() if (self.root / name).is_dir()}
        return {name for name, files in there.items() if not is_unchanged(self.root / name, files)}

    def _supersede(self, generation: str) -> None:
        since = {**self._superseded(), generation: datetime.now(timezone.utc)}
        told = {each: at.isoformat() for each, at in since.items() if (self.root / each).is_dir()}
        write_durably(self.root / _SUPERSEDED, json.dumps(told))

    def _superseded(self) -> dict[str, datetime]:
        try:
            found = json.loads((self.root / _SUPERSEDED).read_text(encoding="utf-8"))
            return {each: datetime.fromisoformat(since) for each, since in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _is_owned(self, generation: str) -> bool:
        try:
            owner = json.loads((self.root / f"{generation}.json").read_text(encoding="utf-8"))
            created = datetime.fromisoformat(owner.pop("created"))
            alive = Process(**owner).is_alive()
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return True
        return datetime.now(timezone.utc) - created < _ABANDONED_AFTER if alive is None else alive

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


def place_of(uri: str) -> ParquetPlace:
    """The place that a URI names.

    Raises:
        RunError: LS572 it is in an object store.
    """
    path = local_path(uri)
    if path is None:
        raise RunError(
            "LS572",
            f"a Parquet result cannot be replaced in one step at {clean(uri)}, since object stores "
            "have neither links nor renames",
            hint="use 'output: {lance: ...}', which commits atomically there",
        )
    return ParquetPlace(uri, Path(os.path.normpath(path.absolute())))


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
    """Make the names in a folder last."""
    # Not every system can, and what cannot needs not.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _matched(entry: Path) -> re.Match[str] | None:
    return _OURS.fullmatch(entry.name)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s was not removed: %s", path, error.strerror)
