"""Spark's URLs: masters, with their cores and attempts, and servers of Spark Connect."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from lancestat.redact import is_commonplace

LOCAL_ATTEMPTS = 4

_LOCAL = re.compile(r"local(?:\[([^\],]+)(?:,\s*(\d+))?\])?")


def is_local(master: str) -> bool:
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


DEFAULT_REMOTE_PORT = 15002


def remote_address(remote: str) -> tuple[str, int]:
    url = urlsplit(remote.partition(";")[0])
    return url.hostname or "localhost", url.port or DEFAULT_REMOTE_PORT


def remote_secrets(remote: str) -> Iterator[str]:
    """Yield the URL of a server, and the values of its parameters, such as `token`.

    Switches and names of users are no secrets.
    """
    yield remote
    for parameter in remote.partition(";")[2].split(";"):
        name, _, value = parameter.partition("=")
        is_secret = name not in ("use_ssl", "user_id") and not is_commonplace(value)
        if value and (name == "token" or is_secret):
            yield value
            yield unquote(value)
