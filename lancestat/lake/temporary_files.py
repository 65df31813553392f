"""Which process made something, and whether it still runs."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told from any that gets its number later or has it on another host.

    `host` is where process numbers mean the same: a host since it was booted, or a container there.
    `started` is in clock ticks since then, None where the system does not tell.
    """

    host: str
    pid: int
    started: int | None = None

    def is_alive(self) -> bool | None:
        """Whether it runs; None when that cannot be known."""
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
    """The process that asks."""
    pid = os.getpid()
    return Process(_host(), pid, _started(pid))


def process_mark() -> str:
    """Text that stands for the process that asks, fit for a file's name: `HOST-PID-STARTED`."""
    process = this_process()
    return f"{_digest(process.host)}-{process.pid}-{process.started or 0}"


def process_of(mark: str) -> Process | None:
    """The process that a mark stands for, None where it is not of this host."""
    host, _, rest = mark.partition("-")
    pid, _, started = rest.partition("-")
    if host != _digest(_host()) or not (pid.isdecimal() and started.isdecimal()):
        return None
    return Process(_host(), int(pid), int(started) or None)


def is_mark_alive(mark: str) -> bool | None:
    """Whether the process that a mark stands for runs; None when that cannot be known."""
    process = process_of(mark)
    return None if process is None else process.is_alive()


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


_FOLDER_NAME = re.compile(r"lancestat-([0-9a-f]{12}-\d+-\d+)-[^-]+")


def make_temporary_folder() -> Path:
    """A new folder that nobody else may read, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix=f"lancestat-{process_mark()}-"))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder that nobody else may read, gone when the block ends."""
    folder = make_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_temporary_folders() -> None:
    """Remove what killed processes of this user have left of such folders."""
    owner = os.getuid() if hasattr(os, "getuid") else None
    for path in Path(tempfile.gettempdir()).glob("lancestat-*"):
        named = _FOLDER_NAME.fullmatch(path.name)
        if named is None or path.is_symlink() or is_mark_alive(named[1]) is not False:
            continue
        try:
            is_own = owner is None or path.lstat().st_uid == owner
        except FileNotFoundError:
            continue
        if is_own:
            shutil.rmtree(path, ignore_errors=True)


_DRAFT_NAME = re.compile(r"\..*\.draft-([0-9a-f]{12}-\d+-\d+)-[0-9a-f]{12}")
# File systems take 255 bytes, and a character may have four.
_LONGEST_NAME = 40
# Whether a process of another host still writes is not known before that.
_ABANDONED_AFTER_SECONDS = 7 * 24 * 3600.0


def write_whole(place: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or as it was, in place of what is there.

    Raises:
        OSError: It cannot be written.
    """
    remove_drafts(place)
    draft = new_draft(place)
    try:
        draft.write_bytes(content)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def write_new(place: Path, content: bytes) -> None:
    """Write a file so that it is there wholly or not at all, and never over another.

    Raises:
        FileExistsError: Something is there.
        OSError: It cannot be written.
    """
    remove_drafts(place)
    draft = new_draft(place)
    try:
        draft.write_bytes(content)
        try:
            os.link(draft, place, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links: the file may be cut by a kill, but no other is lost.
            with place.open("xb") as file:
                file.write(content)
    finally:
        draft.unlink(missing_ok=True)


def new_draft(place: Path) -> Path:
    """A path beside `place`, in the same file system, where nothing is yet."""
    return place.with_name(f"{_prefix(place)}{process_mark()}-{secrets.token_hex(6)}")


def is_draft(path: Path) -> bool:
    """Whether a path is named as drafts are."""
    return _DRAFT_NAME.fullmatch(path.name) is not None


def abandoned_drafts(place: Path) -> Iterator[Path]:
    """Drafts of a place whose processes have ended."""
    if not place.parent.is_dir():
        return
    for path in sorted(place.parent.iterdir()):
        if path.name.startswith(_prefix(place)) and _is_abandoned(path):
            yield path


def remove_drafts(place: Path) -> None:
    """Remove the drafts of a place whose processes have ended; what cannot be removed stays."""
    for path in abandoned_drafts(place):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, that may be gone already."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _prefix(place: Path) -> str:
    return f".{place.name.lstrip('.')[:_LONGEST_NAME]}.draft-"


def _is_abandoned(path: Path) -> bool:
    named = _DRAFT_NAME.fullmatch(path.name)
    if named is None:
        return False
    alive = is_mark_alive(named[1])
    if alive is not None:
        return not alive
    try:
        return time.time() - path.lstat().st_mtime > _ABANDONED_AFTER_SECONDS
    except OSError:
        return False
