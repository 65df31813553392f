"""Temporary folders and drafts of files, and leases: which process owns something on disk.

A process can be killed between making a file and removing it. So anything temporary names its
owner: in its own name (`Process.tag`), in a small file beside it (`Process.to_json`) or by a
heartbeat. Garbage collection removes what has an expired lease, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

# Whether a process of another host still runs cannot be known; nobody writes for longer than this.
ABANDONED_AFTER = timedelta(days=7)
# `HOST-PID-STARTED`, as a pattern for names that contain it.
TAG = r"[0-9a-f]{12}-\d+-\d+"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinct from later ones with its number and from those of other hosts.

    `host` is where process numbers are unique: a boot of a host, or a container there. `started` is
    in clock ticks since then, None where the system does not report it.
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

    def to_json(self) -> dict[str, str | int | None]:
        """Return the stored form."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Process:
        """Read the stored form.

        Raises:
            KeyError, TypeError, ValueError: It is malformed.
        """
        started = stored["started"]
        return cls(
            str(stored["host"]), int(stored["pid"]), None if started is None else int(started)
        )


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
    """The claim of a process on something on disk.

    It ends with its owner. Where the owner's host is another, it ends `duration` after
    `renewed_at`, the last sign of life, or never without one. `owner` is None where only the tag of
    a process on another host is known.
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


def parse_instant(text: str) -> datetime:
    """Parse an aware instant in ISO 8601.

    Raises:
        ValueError: It is not a time, or has no zone.
    """
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
    for path in Path(tempfile.gettempdir()).glob("lancestat-*"):
        named = _FOLDER_NAME.fullmatch(path.name)
        if named is not None and not path.is_symlink():
            yield path, Lease.of_tag(named[1])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in place of what is there, so that readers see the old or the new, never a part.

    Raises:
        OSError: It cannot be written.
    """
    remove_drafts(path)
    draft = new_draft(path)
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_new(path: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or not at all, and never over another.

    Raises:
        FileExistsError: Something is there.
        OSError: It cannot be written.
    """
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


def abandoned_drafts(path: Path) -> Iterator[Path]:
    """Yield the drafts of a path that nobody will complete any more."""
    return abandoned(_drafts(path))


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
    for draft in abandoned_drafts(path):
        remove(draft)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)
