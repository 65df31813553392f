"""Scratch of joins: the root that all workers share, and the folder of a run with its lease.

`<root>/<application>/<run>/` holds what the run writes, and two small files that make its lease:
`.lancestat-scratch`, the marker, says which process made the folder, and `.heartbeat` when that
process was last alive. A folder without a marker is not scratch.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lancestat import codec
from lancestat.errors import (
    LancestatError,
    OutputError,
    ScratchFull,
    ScratchNotShared,
    ScratchUntrusted,
    ScratchUnusable,
)
from lancestat.lake.error_mapping import is_error_or_panic, is_full
from lancestat.lake.files import (
    TAG,
    Lease,
    Process,
    Storage,
    parse_instant,
    renewed,
    storage_at,
    this_process,
)
from lancestat.redact import redact_line, secret_values
from lancestat.spark.versions import is_connect
from lancestat.spec.model import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lancestat.knn")

# In place of a master, of which a client of Spark Connect knows nothing.
CONNECT = "Spark Connect"

MARKER = ".lancestat-scratch"
HEARTBEAT = ".heartbeat"
FORMAT_VERSION = 1
BEAT_EVERY = timedelta(seconds=30)
# Where nothing is known of its process, a run whose heartbeat is older than this has ended.
DEAD_AFTER = timedelta(minutes=10)

# Spark kills a cancelled task's Python after two seconds, and until then it may write.
_SETTLE_SECONDS = 2.5
_LOOK_EVERY_SECONDS = 0.25
# As `scratch` names them.
_RUN_NAME = re.compile(rf"({TAG})-[0-9a-f]{{16}}")


def scratch_root(declared: str | None, spark: SparkSession) -> str:
    """Return the scratch root of a session's joins: a path or a URI that all its workers reach."""
    if is_connect(spark):
        return root_for(declared, CONNECT, {})
    conf = {"spark.local.dir": str(spark.conf.get("spark.local.dir", ""))}
    return root_for(declared, spark.sparkContext.master, conf)


def root_for(declared: str | None, master: str, conf: Mapping[str, str]) -> str:
    """Return the scratch root of joins under a master, by Spark's configuration.

    The target's `scratch` is taken as it is `declared`.
    """
    if declared is not None:
        return declared
    require_shared(declared, master)
    root = default_root(conf)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise ScratchUnusable(
            f"the scratch folder {root} cannot be used: {error.strerror}",
            hint="set the target's 'scratch'",
        ) from None
    if not _is_own_folder(status):
        raise ScratchUntrusted(
            f"the scratch folder {root} is a link, or belongs to somebody else",
            hint="remove it, or set the target's 'scratch'",
        )
    return str(root)


def require_shared(declared: str | None, master: str | None) -> None:
    """Refuse a cluster without scratch that all its executors share; no session is needed.

    `declared` is the target's `scratch`, and `master` None where only Spark's configuration tells.
    `local-cluster[...]` stands in for a cluster, and so has a cluster's requirements.
    """
    if declared is None and master is not None and not is_local(master):
        name = master if master == CONNECT else f"'{master}'"
        raise ScratchNotShared(
            f"a join on {name} needs scratch that all executors share, and none is declared",
            hint="set the target's 'scratch' to a shared folder or an object-store URI",
        )


def known_roots(declared: str | None, conf: Mapping[str, str]) -> list[str]:
    """Return the roots that may hold a user's scratch: the declared one, and sessions' default."""
    roots = [declared] if declared is not None else []
    default = default_root(conf)
    try:
        is_own = _is_own_folder(default.lstat())
    except OSError:
        return roots
    return [*roots, str(default)] if is_own and str(default) not in roots else roots


def default_root(conf: Mapping[str, str]) -> Path:
    """Return the folder for this user's scratch under Spark's local one, without a session.

    Spark's own order: the first of `SPARK_LOCAL_DIRS`, else of `spark.local.dir`, else the system's
    folder for temporary files.
    """
    dirs = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or ""
    first = next(
        (folder.strip() for folder in dirs.split(",") if folder.strip()), tempfile.gettempdir()
    )
    owner = os.getuid() if hasattr(os, "getuid") else getuser()
    return Path(first).absolute() / f"lancestat-{owner}"


def _is_own_folder(status: os.stat_result) -> bool:
    owner = os.getuid() if hasattr(os, "getuid") else status.st_uid
    return stat.S_ISDIR(status.st_mode) and status.st_uid == owner


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


@contextmanager
def scratch(
    root: str,
    application: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], datetime] = utc_now,
    beat_every: timedelta = BEAT_EVERY,
    settle_seconds: float = _SETTLE_SECONDS,
) -> Iterator[str]:
    """Make a scratch folder with a heartbeat, and remove it when the block ends, however it does.

    All workers share the `root`; `application` is Spark's id. After a failure files that cancelled
    tasks still write are removed for `settle_seconds`. Yields the folder's URI.
    """
    options = dict(storage_options or {})
    store = storage_at(root, options)
    name = re.sub(r"[^\w.-]", "_", application, flags=re.ASCII).lstrip(".") or "application"
    folder = f"{name}/{run_name()}"
    made = "the scratch folder {} cannot be used"
    with held_folder(
        store, root, folder, application, options, made, clock, beat_every, settle_seconds
    ) as draft:
        yield draft.uri


@dataclass(frozen=True, slots=True)
class Draft:
    """A folder that is being written: `folder` is its path below the root."""

    folder: str
    uri: str
    removal: ExitStack

    def finish(self) -> None:
        """Let the folder stay."""
        self.removal.pop_all()


@contextmanager
def held_folder(
    store: Storage,
    root: str,
    folder: str,
    application: str,
    options: Mapping[str, str],
    unusable: str,
    clock: Callable[[], datetime],
    beat_every: timedelta = BEAT_EVERY,
    settle_seconds: float = _SETTLE_SECONDS,
) -> Iterator[Draft]:
    """Make a marked folder below the root with a heartbeat; it goes in the end if not finished."""
    has_failed = True

    def remove() -> None:
        _remove(store, folder, options, settle_seconds if has_failed else 0.0)

    with ExitStack() as removal:
        removal.callback(remove)
        with scratch_errors(root, options, unusable):
            store.make(folder)
            store.write(f"{folder}/{MARKER}", encode(application, this_process(), clock()))
        with scratch_errors(root, options), beating(store, folder, clock, beat_every):
            yield Draft(folder, store.uri(folder), removal)
        has_failed = False


def run_name() -> str:
    """Return a new name for a folder, which identifies this process until the marker does."""
    return f"{this_process().tag}-{secrets.token_hex(8)}"


def _remove(store: Storage, folder: str, options: Mapping[str, str], settle_seconds: float) -> None:
    """Remove a marked folder, again and again while cancelled tasks may write."""
    deadline = time.monotonic() + settle_seconds
    application, _, run = folder.rpartition("/")
    try:
        store.remove(folder, MARKER)
        while time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_SECONDS)
            if run in store.children(application):
                store.remove(folder, MARKER)
        store.remove_empty(application)
    except Exception as error:
        # The cause that ended the join matters more. `lancestat gc` removes this folder later.
        reason = redact_line(str(error), secret_values(options))
        _log.warning("scratch %s was not removed: %s", redact_line(store.uri(folder)), reason)


@contextmanager
def scratch_errors(
    root: str, options: Mapping[str, str], unusable: str | None = None
) -> Iterator[None]:
    """Raise `ScratchFull` for scratch without room, and `ScratchUnusable` for all else.

    Without a text for the latter, in which `{}` stands for the root, other errors pass.
    """
    try:
        yield
    except BaseException as error:
        if not is_error_or_panic(error) or isinstance(error, ScratchFull):
            raise
        hidden = secret_values(options)
        shown = redact_line(root, hidden)
        # A result that does not fit has a code of its own.
        if is_full(error) and not isinstance(error, OutputError):
            raise ScratchFull(
                f"no space is left in the scratch folder {shown}",
                hint="make room there, or set the target's 'scratch' to a larger place",
            ) from None
        if unusable is None or isinstance(error, ScratchUnusable):
            raise
        reason = error.message if isinstance(error, LancestatError) else str(error)
        raise ScratchUnusable(
            f"{unusable.format(shown)}: {redact_line(reason, hidden)}",
            hint="check the target's 'scratch', its storage_options and the permissions there",
        ) from None


def encode(application: str, process: Process, created_at: datetime) -> str:
    """Return the contents of a marker."""
    return json.dumps(
        {
            "format_version": FORMAT_VERSION,
            "application": application,
            "process": codec.builtins(process),
            "created_at": created_at.isoformat(),
        }
    )


def require_visible(uri: str) -> None:
    """Refuse scratch that lies in a folder of the driver's machine alone.

    `uri` is that of a dataset in a scratch folder, which a worker is about to write to.
    """
    if "://" in uri:
        return
    folder = Path(uri).parent
    if not (folder / MARKER).exists():
        raise ScratchNotShared(
            f"the scratch folder {redact_line(str(folder.parent.parent))} is not shared: "
            f"{socket.gethostname()} does not see what the driver has written there",
            hint="set the target's 'scratch' to a folder that all machines share, or to an "
            "object-store URI",
        )


@contextmanager
def beating(
    store: Storage, folder: str, clock: Callable[[], datetime], every: timedelta = BEAT_EVERY
) -> Iterator[None]:
    """Renew the lease of a scratch folder in a thread of its own while the block runs."""

    def failed(error: Exception) -> None:
        # The join itself may still succeed.
        _log.warning("the heartbeat of scratch failed: %s", redact_line(str(error)))

    def renew() -> None:
        store.write(f"{folder}/{HEARTBEAT}", clock().isoformat())

    with renewed(renew, every, failed):
        yield


def lease_of(
    store: Storage, folder: str, dead_after: timedelta, left: list[tuple[str, str]]
) -> Lease | None:
    """Return the lease of a folder, None where it has none or one that cannot be understood.

    The latter is added to `left` with the reason.
    """
    try:
        text = store.read(f"{folder}/{MARKER}")
        if text is not None:
            return _marked_lease(store, folder, json.loads(text), dead_after)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"it lacks {error}" if not isinstance(error, ValueError) else str(error)
        left.append((store.uri(folder), f"its marker cannot be understood: {what}"))
    except PermissionError as error:
        left.append((store.uri(folder), str(error.strerror)))
    return _unmarked_lease(store, folder)


def _marked_lease(store: Storage, folder: str, marker: Any, dead_after: timedelta) -> Lease:
    if marker["format_version"] != FORMAT_VERSION:
        raise ValueError(f"it has format {marker['format_version']!r}")
    beat_at = parse_instant(marker["created_at"])
    process = codec.convert(marker["process"], Process)
    text = store.read(f"{folder}/{HEARTBEAT}")
    with suppress(ValueError):
        beat_at = max(beat_at, parse_instant(text)) if text else beat_at
    return Lease(process, beat_at, dead_after)


def _unmarked_lease(store: Storage, folder: str) -> Lease | None:
    """Return the lease of a folder that its process did not mark yet, or has nearly removed.

    The folder's name says which one that is, and there is nothing in it but what the marker was
    to be. It ends with that process alone.
    """
    named = _RUN_NAME.fullmatch(folder.rpartition("/")[2])
    lease = None if named is None else Lease.of_tag(named[1])
    if lease is None or lease.is_held() or store.children(folder):
        return None
    is_empty = all(name.startswith(f"{MARKER}.draft-") for name in store.files(folder))
    return lease if is_empty else None
