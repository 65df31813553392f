"""Spark's master URLs: which are local, with how many cores and attempts."""

from __future__ import annotations

import os
import re

LOCAL_ATTEMPTS = 4

_LOCAL = re.compile(r"local(?:\[([^\],]+)(?:,\s*(\d+))?\])?")


def is_local(master: str) -> bool:
    """Whether a master runs Spark in this process."""
    return _LOCAL.fullmatch(master) is not None


def local_cores(master: str) -> int | None:
    """Return the cores of a local master, None of another one."""
    matched = _LOCAL.fullmatch(master)
    if matched is None:
        return None
    threads = matched.group(1) or "1"
    return int(threads) if threads.isdecimal() else os.cpu_count() or 1


def with_attempts(master: str, attempts: str | None = None) -> str:
    """Return a local master that retries failed tasks as clusters do; Spark's own does not."""
    matched = _LOCAL.fullmatch(master)
    if matched is None or matched.group(2) is not None:
        return master
    return f"local[{matched.group(1) or 1},{attempts or LOCAL_ATTEMPTS}]"
