"""Which process made something, and whether it still runs."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
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
