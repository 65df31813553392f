"""Locations, temporary files and their leases, and folders in a file system or an object store."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from lancestat.redact import RenewedOptions

if TYPE_CHECKING:
    from lance.file import LanceFileSession


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")


def local_path(uri: str) -> Path | None:
    """Return the path of a dataset on this machine, or None for one in an object store."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return Path(uri)
    if scheme.group(1).lower() in ("file", "file-object-store", "file+uring"):
        return Path(unquote(uri[scheme.end() :]))
    return None


def store_of(uri: str) -> str | None:
    """Return the scheme and bucket of an object-store URI, or None for a local path."""
    scheme = _SCHEME.match(uri)
    if scheme is None or local_path(uri) is not None:
        return None
    return scheme.group() + uri[scheme.end() :].partition("/")[0]


_GLOB = frozenset("*?[{")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing shows it."""

    path: str
    size_bytes: int
    modified_ns: int

    @classmethod
    def at(cls, path: Path) -> ListedFile:
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns)


def list_files(uri: str) -> tuple[ListedFile, ...] | None:
    """List the local files that Spark would read at a path or pattern; None where not known."""
    path = local_path(uri)
    if path is None:
        return None
    if path.exists():
        roots = [path]
    elif _GLOB & set(str(path)):
        # Alternatives in braces are Spark's own.
        roots = [] if "{" in str(path) else sorted(map(Path, glob.glob(str(path))))  # noqa: PTH207
    else:
        return None
    if not roots:
        return None
    try:
        listed = (file for root in roots for file in _below(root))
        return tuple(sorted(listed, key=lambda file: file.path))
    except OSError:
        return None


def files_digest(files: Sequence[ListedFile]) -> str:
    """Return a digest of a listing; equal ones mean that no file came, went or was written."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.path}\0{file.size_bytes}\0{file.modified_ns}\0".encode())
    return digest.hexdigest()


def _below(root: Path) -> Iterator[ListedFile]:
    # Results of joins are links to a folder that changes with every run.
    real = Path(os.path.realpath(root))
    if real.is_file():
        yield ListedFile.at(real)
        return
    for folder, folders, names in os.walk(real, onerror=_raise):
        folders[:] = [name for name in folders if not is_hidden(name)]
        for name in names:
            if not is_hidden(name):
                yield ListedFile.at(Path(folder) / name)


def is_hidden(name: str) -> bool:
    """Return whether Spark's file formats pass over a file or folder of that name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _raise(error: OSError) -> None:
    raise error


# Stores tell the time of a file to the second: what is younger could be replaced unnoticed.
_SETTLED_NS = 5_000_000_000
_S3 = ("s3", "s3a", "s3n")
# What Lance calls an option, and what pyarrow does; prefixes of a cloud do not count.
_OPTIONS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}


def list_store_files(uri: str, storage_options: Mapping[str, str]) -> tuple[ListedFile, ...] | None:
    """List the files below a URI of S3; None where that is not known, or some are too new."""
    import pyarrow as pa
    from pyarrow.fs import FileSelector, FileType, S3FileSystem

    store = store_of(uri)
    if store is None or store.partition("://")[0].lower() not in _S3:
        return None
    path = uri.partition("://")[2].rstrip("/")
    try:
        files = S3FileSystem(connect_timeout=3, request_timeout=10, **_arguments(storage_options))
        [root] = files.get_file_info([path])
        listed = (
            files.get_file_info(FileSelector(path, recursive=True))
            if root.type is FileType.Directory
            else [root]
        )
    except (OSError, pa.ArrowException):
        return None
    visible = tuple(
        ListedFile(file.path, file.size, file.mtime_ns)
        for file in sorted(listed, key=lambda file: file.path)
        if file.type is FileType.File
        and not any(map(is_hidden, file.path.removeprefix(path).split("/")))
    )
    newest = max((file.modified_ns for file in visible), default=0)
    return None if newest > time.time_ns() - _SETTLED_NS else visible


def _arguments(storage_options: Mapping[str, str]) -> dict[str, str]:
    arguments = {}
    for key, value in storage_options.items():
        argument = _OPTIONS.get(key.lower().removeprefix("aws_"))
        if argument is not None:
            arguments[argument] = str(value)
    return arguments


# With Lance's own timeouts a store that does not answer would hold a command for three minutes.
STORE_TIMEOUTS = {
    "client_max_retries": "3",
    "client_retry_timeout": "15",
    "connect_timeout": "5s",
}


_CLOUDS = ("aws_", "azure_", "google_")


def store_options(uri: str, storage_options: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the options for Lance: none for local paths, with bounded patience for stores."""
    if local_path(uri) is not None:
        return None
    return with_store_defaults(STORE_TIMEOUTS, storage_options)


def with_store_defaults(
    defaults: Mapping[str, str], storage_options: Mapping[str, str] | None
) -> dict[str, str]:
    if isinstance(storage_options, RenewedOptions):
        given = storage_options.current()
    else:
        given = dict(storage_options or {})
    set_already = {_without_cloud(key) for key in given}
    return {**{k: v for k, v in defaults.items() if k not in set_already}, **given}


def _without_cloud(key: str) -> str:
    lowered = key.lower()
    return next((lowered[len(c) :] for c in _CLOUDS if lowered.startswith(c)), lowered)


# Whether a process of another host still runs cannot be known; nobody writes for longer than this.
ABANDONED_AFTER = timedelta(days=7)
# `HOST-PID-STARTED`, as a pattern for names that contain it.
TAG = r"[0-9a-f]{12}-\d+-\d+"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinct from later ones with its number and from those of other hosts.

    `host` is a boot of a host or a container there, `started` in clock ticks since then.
    """

    host: str
    pid: int
    started: int | None = None

    @property
    def tag(self) -> str:
        """Text that stands for the process and fits into a file's name: `HOST-PID-STARTED`."""
        return f"{_digest(self.host)}-{self.pid}-{self.started or 0}"

    def is_alive(self) -> bool | None:
        """Return whether it runs; None when that cannot be known."""
        if self.host != _host():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            # Names of hosts, which stand in where the system has nothing better, are not unique.
            return None if self.started is None else False
        except (PermissionError, OverflowError):
            pass
        return self.started is None or self.started == _started(self.pid)


def this_process() -> Process:
    """Return the running process."""
    pid = os.getpid()
    return Process(_host(), pid, _started(pid))


def process_of(tag: str) -> Process | None:
    """Return the process of this host that a tag stands for, None for one of another host."""
    host, _, rest = tag.partition("-")
    pid, _, started = rest.partition("-")
    if host != _digest(_host()) or not (pid.isdecimal() and started.isdecimal()):
        return None
    return Process(_host(), int(pid), int(started) or None)


@dataclass(frozen=True, slots=True)
class Lease:
    """The claim of a process on something on disk, which ends with the process.

    Where the owner's host is another, it ends `duration` after `renewed_at`, the last sign of life,
    or never without one. `owner` is None where only a tag of another host is known.
    """

    owner: Process | None
    renewed_at: datetime | None = None
    duration: timedelta = ABANDONED_AFTER

    @classmethod
    def of_tag(cls, tag: str, renewed_at: float | None = None) -> Lease:
        """Return the lease of a tagged thing, last renewed at a time in seconds of the epoch."""
        renewed = None
        if renewed_at is not None:
            with suppress(ValueError, OverflowError, OSError):
                renewed = datetime.fromtimestamp(renewed_at, timezone.utc)
        return cls(process_of(tag), renewed)

    def is_held(self, now: datetime | None = None) -> bool:
        """Return whether what it covers must be left alone."""
        is_alive = None if self.owner is None else self.owner.is_alive()
        if is_alive is not None or self.renewed_at is None:
            return is_alive is not False
        return (now or datetime.now(timezone.utc)) - self.renewed_at < self.duration


def abandoned(leased: Iterable[tuple[_T, Lease]]) -> Iterator[_T]:
    """Yield the things whose lease has ended: which garbage collection removes."""
    return (thing for thing, lease in leased if not lease.is_held())


@contextmanager
def renewed(
    renew: Callable[[], object], every: timedelta, failed: Callable[[Exception], object]
) -> Iterator[None]:
    """Renew a lease in a thread of its own while the block runs; a failure ends nothing."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every.total_seconds()):
            try:
                renew()
            except Exception as error:
                failed(error)

    thread = threading.Thread(target=beat, name="lancestat-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def parse_instant(text: str) -> datetime:
    """Parse an aware instant in ISO 8601; ValueError for anything else."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return instant


def _digest(host: str) -> str:
    return hashlib.sha256(host.encode()).hexdigest()[:12]


@lru_cache(maxsize=1)
def _host() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _started(pid: int) -> int | None:
    # The name in the second field may hold anything; after it, start time is the twentieth.
    with suppress(OSError, IndexError, ValueError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    return None


_FOLDER_NAME = re.compile(rf"lancestat-({TAG})-[^-]+")
_DRAFT_NAME = re.compile(rf"\..*\.draft-({TAG})-[0-9a-f]{{12}}")
# File systems take 255 bytes, and a character may have four.
_LONGEST_NAME = 40


def make_temporary_folder() -> Path:
    """Make a folder that nobody else may read, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix=f"lancestat-{this_process().tag}-"))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that nobody else may read, and remove it when the block ends."""
    folder = make_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def collect_temporary_garbage() -> None:
    """Remove the temporary folders that killed processes of this user have left."""
    owner = os.getuid() if hasattr(os, "getuid") else None
    for path in abandoned(_temporary_folders()):
        with suppress(FileNotFoundError):
            if owner is None or path.lstat().st_uid == owner:
                shutil.rmtree(path, ignore_errors=True)


def _temporary_folders() -> Iterator[tuple[Path, Lease]]:
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        # There is none that can be written, as on a full disk.
        return
    for path in folder.glob("lancestat-*"):
        named = _FOLDER_NAME.fullmatch(path.name)
        if named is not None and not path.is_symlink():
            yield path, Lease.of_tag(named[1])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in place of what is there: readers see the old or the new."""
    remove_drafts(path)
    draft = new_draft(path)
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: Path, content: bytes) -> None:
    """Write a file wholly or not at all; FileExistsError if something is there."""
    remove_drafts(path)
    draft = new_draft(path)
    try:
        draft.write_bytes(content)
        try:
            os.link(draft, path, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: the file may be cut by a kill, but no other is lost.
            with path.open("xb") as file:
                file.write(content)
    finally:
        draft.unlink(missing_ok=True)


def new_draft(path: Path) -> Path:
    """Return a path beside `path`, in the same file system, where nothing is yet."""
    return path.with_name(f"{_prefix(path)}{this_process().tag}-{secrets.token_hex(6)}")


def is_draft(path: Path) -> bool:
    """Return whether a path is named as drafts are."""
    return _DRAFT_NAME.fullmatch(path.name) is not None


def _drafts(path: Path) -> Iterator[tuple[Path, Lease]]:
    if not path.parent.is_dir():
        return
    for draft in sorted(path.parent.iterdir()):
        named = _DRAFT_NAME.fullmatch(draft.name)
        if named is not None and draft.name.startswith(_prefix(path)):
            with suppress(OSError):
                yield draft, Lease.of_tag(named[1], draft.lstat().st_mtime)


def _prefix(path: Path) -> str:
    return f".{path.name.lstrip('.')[:_LONGEST_NAME]}.draft-"


def remove_drafts(path: Path) -> None:
    """Remove the abandoned drafts of a path; one that cannot be removed stays."""
    for draft in abandoned(_drafts(path)):
        remove(draft)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


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
        """Write a small file wholly or not at all, if need be with its folder (`make_folder`)."""
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
        """Remove a folder with all in it, the file `last` after all others; follow no links."""
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
