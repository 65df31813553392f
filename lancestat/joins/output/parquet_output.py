"""Results as folders of Parquet files: a link, and beside it a folder with generations.

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

A copy of the folder has its mark too. The mark therefore counts only at the location that it names,
and a generation is a join's result only while it holds the files that the mark lists.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lancestat import codec
from lancestat.errors import OutputNotReplaceable, RunError, StaleBase
from lancestat.joins.output.writer import (
    GRACE,
    OutputWriter,
    Written,
    location_digest,
    reading,
    refused,
    require_outside_datasets,
    stale,
    without_rows,
    writing,
)
from lancestat.joins.record import OutputFormat, OutputState
from lancestat.lake.commit import BatchSource
from lancestat.lake.files import Lease, Process, abandoned, local_path, parse_instant, this_process
from lancestat.redact import redact_line

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

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

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class ParquetOutput:
    """A result as Parquet files; the methods are those of `LanceOutput`.

    They raise `OutputNotReplaceable` for a location in an object store.
    """

    uri: str
    options: Mapping[str, str]

    @property
    def location(self) -> ParquetLocation:
        return location_of(self.uri)

    def begin(self, run_id: str) -> OutputWriter:
        require_outside_datasets(self.uri, self.options)
        location, owner = self.location, this_process()
        with writing(self.uri, self.options):
            location.prepare()
            with location.locked():
                location.collect_garbage()
                folder = str(location.start())
        return OutputWriter(OutputFormat.PARQUET, self.uri, folder, run_id, owner, self.options)

    def collect_garbage(self) -> None:
        location = self.location
        location.check()
        if location.root.is_dir():
            with writing(self.uri, self.options), location.locked():
                location.collect_garbage()

    def write(
        self,
        writer: OutputWriter,
        number: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
    ) -> Written:
        source = BatchSource(schema.remove_metadata(), batches)
        path = Path(writer.folder) / f"{number:06d}-{secrets.token_hex(4)}.parquet"
        with source.own_errors(), writing(self.uri, self.options):
            try:
                _write_file(path, source)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return Written(path.name, source.rows)

    def replace(
        self, writer: OutputWriter, schema: pa.Schema, written: Sequence[Written]
    ) -> OutputState:
        with writing(self.uri, self.options), self.location.locked():
            return self._publish(writer, schema, dict(enumerate(written)), [])

    def update(
        self,
        writer: OutputWriter,
        schema: pa.Schema,
        previous: OutputState,
        removed: NDArray[np.int64],
        written: Sequence[Written],
    ) -> OutputState:
        """See `LanceOutput`: files that lose rows are written again, the others are linked."""
        location = self.location
        with writing(self.uri, self.options), location.locked():
            state = self.current()
            if state is None:
                raise stale(self.uri, "has gone", self.options)
            if (state.generation, state.digest) != (previous.generation, previous.digest):
                raise stale(self.uri, "has changed", self.options)
            assert state.generation is not None
            files = _rows_by_file(location.root / state.generation)
            if not _holds(next(iter(files)), schema):
                raise stale(self.uri, "has got other columns", self.options)
            numbered: dict[int, Written] = {}
            kept, start = [], 0
            for path, rows in files.items():
                stop = start + rows
                first, last = removed.searchsorted((start, stop)).tolist()
                if last > first:
                    batches = without_rows(_read_file(path), removed[first:last] - start)
                    numbered[_number(path)] = self.write(writer, _number(path), schema, batches)
                else:
                    kept.append(path)
                start = stop
            numbered |= dict(enumerate(written, 1 + _number(path)))
            return self._publish(writer, schema, numbered, kept)

    def discard(self, writer: OutputWriter) -> None:
        location = self.location
        try:
            with location.locked():
                location.forget(Path(writer.folder).stem)
        except OSError as error:
            _log.warning("what was written to %s was not removed: %s", location.root, error)

    def current(self) -> OutputState | None:
        location = self.location
        location.check()
        generation = location.generation()
        with suppress(StaleBase):
            return None if generation is None else self._state(generation)
        return None

    def _publish(
        self,
        writer: OutputWriter,
        schema: pa.Schema,
        numbered: Mapping[int, Written],
        earlier: Sequence[Path],
    ) -> OutputState:
        location, part = self.location, Path(writer.folder)
        location.check()
        generation = part.stem
        folder = location.root / generation
        folder.mkdir()
        for path in earlier:
            _link(path, folder / path.name)
        pieces = {number: piece for number, piece in numbered.items() if piece.rows}
        if not pieces and not earlier:
            pieces = {0: self.write(writer, 0, schema, [])}
        # Names differ between generations: who reads one while the link moves never mixes two.
        for number, piece in pieces.items():
            (part / piece.content).rename(folder / f"part-{number:06d}-{generation}.parquet")
        location.publish(generation)
        shutil.rmtree(part, ignore_errors=True)
        (location.root / f"{generation}.json").unlink(missing_ok=True)
        location.collect_garbage()
        return self._state(generation)

    def _state(self, generation: str) -> OutputState:
        folder = self.location.root / generation
        with reading(self.uri, self.options):
            sizes = [(path.name, path.stat().st_size) for path in _parquet_files(folder)]
            digest = hashlib.blake2b(json.dumps(sizes).encode(), digest_size=16).hexdigest()
            rows = sum(_rows_by_file(folder).values())
        return OutputState(rows, digest, generation=generation)


@dataclass(frozen=True, slots=True)
class ParquetLocation:
    """The location of one result; `path` is what readers open, absolute."""

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
        if mark.place != location_digest(str(self.root)):
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
                self._write_mark({})

    def start(self) -> Path:
        """Make a folder for files of a generation that nobody sees yet, with a lease."""
        generation = secrets.token_hex(8)
        created = datetime.now(timezone.utc).isoformat()
        owner = {**codec.builtins(this_process()), "created": created}
        write_durably(self.root / f"{generation}.json", json.dumps(owner))
        folder = self.root / f"{generation}.part"
        folder.mkdir()
        return folder

    def publish(self, generation: str) -> None:
        """Let readers see a generation, whose files are complete, from now on; holds the lock."""
        before, mark, folder = self.generation(), self._mark(), self.root / generation
        sync_folder(folder)
        assert mark is not None
        present = {n: files for n, files in mark.generations.items() if (self.root / n).is_dir()}
        stats = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
        files = tuple((name, stat.st_size, stat.st_mtime) for name, stat in stats)
        self._write_mark({**present, generation: files})
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
        """Hold the lock, where the file system has locks."""
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
        write_durably(self.root / _SUPERSEDED, codec.encode(present))

    def _superseded(self) -> dict[str, datetime]:
        try:
            text = (self.root / _SUPERSEDED).read_text(encoding="utf-8")
            return codec.decode(text, dict[str, codec.Instant])
        except (OSError, ValueError):
            return {}

    def _lease(self, generation: str) -> Lease:
        """Return the lease of a generation: one that has ended where there is none.

        A lease that cannot be understood does not end.
        """
        try:
            stored = json.loads((self.root / f"{generation}.json").read_text(encoding="utf-8"))
            return Lease(codec.convert(stored, Process), parse_instant(stored["created"]))
        except FileNotFoundError:
            return Lease(None, datetime.min.replace(tzinfo=timezone.utc))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return Lease(None)

    def _is_marked(self) -> bool:
        # Listed first: the marker comes before all else, which other runs may add at any moment.
        names = {entry.name for entry in self.root.iterdir()} if self.root.is_dir() else {""}
        try:
            return ParquetMark.read(self.root) is not None
        except FileNotFoundError:
            # Another run may be about to write it, or was killed before it could.
            return names <= {"lock", f"{MARKER}.draft"}

    def _write_mark(self, generations: Mapping[str, Files]) -> None:
        place = location_digest(str(self.root))
        mark = ParquetMark(_FORMAT_VERSION, _HOLDS, place, generations)
        write_durably(self.root / MARKER, codec.encode(mark))

    def _mark(self) -> ParquetMark | None:
        try:
            return ParquetMark.read(self.root)
        except FileNotFoundError:
            return None


def location_of(uri: str) -> ParquetLocation:
    """Return the location that a URI names."""
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


# The name, bytes and time of modification of each file, as it was when a generation was complete.
Files = tuple[tuple[str, int, float], ...]


@dataclass(frozen=True, slots=True)
class ParquetMark:
    """The mark of a folder of generations; `place` is a `location_digest`."""

    format_version: int
    holds: str
    place: str
    generations: Mapping[str, Files]

    @classmethod
    def read(cls, folder: Path) -> ParquetMark | None:
        """Read the mark of a folder of generations; None where it is not one."""
        try:
            mark = codec.decode((folder / MARKER).read_text(encoding="utf-8"), cls)
        except FileNotFoundError:
            raise
        except (OSError, ValueError):
            return None
        is_known = (mark.holds, mark.format_version) == (_HOLDS, _FORMAT_VERSION)
        return mark if is_known else None


def is_unchanged(folder: Path, files: Files) -> bool:
    """Return whether a generation holds nothing but files that were listed, as they were.

    Files that are gone or can no longer be read do not count as changes.
    """
    known = {name: (size, time) for name, size, time in files}
    for path in folder.iterdir():
        # File systems and their users leave hidden files everywhere.
        if path.name.startswith("."):
            continue
        if path.name not in known:
            return False
        (size, time), stat = known[path.name], path.stat()
        is_same = stat.st_size == size and abs(stat.st_mtime - time) < _CLOCK_SECONDS
        if not is_same and not _is_damaged(path):
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


def _write_file(path: Path, source: BatchSource) -> None:
    import pyarrow.parquet as pq

    with path.open("xb") as file:
        with pq.ParquetWriter(file, source.schema) as parquet:
            for table in _grouped(source):
                parquet.write_table(table, row_group_size=_GROUP_ROWS)
        file.flush()
        os.fsync(file.fileno())


def _grouped(source: BatchSource) -> Iterator[pa.Table]:
    """Yield the rows of each row group: readers pay for each one, however small."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in source:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, source.schema)
            waiting = []
            rows = size_bytes = 0
    if rows:
        yield pa.Table.from_batches(waiting, source.schema)


def _link(path: Path, target: Path) -> None:
    try:
        target.hardlink_to(path)
    except OSError:
        shutil.copy2(path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


@lru_cache(maxsize=64)
def _rows_by_file(folder: Path) -> Mapping[Path, int]:
    """Return the rows of the files of a generation, which never change, in the order of names."""
    import pyarrow.parquet as pq

    files = {path: pq.read_metadata(path).num_rows for path in _parquet_files(folder)}
    if not files:
        raise FileNotFoundError(folder)
    return files


def _read_file(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=_BATCH_ROWS)


def _number(path: Path) -> int:
    """Return the number of a file among those of its generation."""
    return int(path.name.split("-")[1])


def _holds(path: Path, schema: pa.Schema) -> bool:
    """Return whether a file has the columns that one of that schema would have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([], schema.remove_metadata()), sink)
    expected = pq.read_schema(pa.BufferReader(sink.getvalue()))
    return bool(pq.read_schema(path).equals(expected))
