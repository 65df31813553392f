"""The scratch folder of a join run: made, kept alive by a heartbeat, removed.

`<root>/<application>/<run>/` holds what the run writes, and two small files that make its lease:
`.lancestat-scratch`, the marker, says which process made the folder, and `.heartbeat` when that
process was last alive. A folder without a marker is not scratch.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType

from lancestat.errors import (
    LancestatError,
    OutputError,
    ScratchFull,
    ScratchNotShared,
    ScratchUnusable,
)
from lancestat.lake.error_mapping import is_error_or_panic, is_full
from lancestat.lake.files import (
    TAG,
    Lease,
    Process,
    Storage,
    parse_instant,
    storage_at,
    store_of,
    this_process,
)
from lancestat.lake.open import probe
from lancestat.redact import redact_line, secret_values

_log = logging.getLogger("lancestat.knn")

MARKER = ".lancestat-scratch"
HEARTBEAT = ".heartbeat"
FORMAT_VERSION = 1
BEAT_EVERY = timedelta(seconds=30)
# Where nothing is known of its process, a run whose heartbeat is older than this has ended.
DEAD_AFTER = timedelta(minutes=10)

# Spark kills a cancelled task's Python after two seconds, and until then it may write.
_SETTLE_SECONDS = 2.5
_LOOK_EVERY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder of its own for one join run, below one for the application, below the root."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)


@contextmanager
def scratch(
    root: str,
    application: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    beat_every: timedelta = BEAT_EVERY,
    settle_seconds: float = _SETTLE_SECONDS,
) -> Iterator[Scratch]:
    """Make a scratch folder with a heartbeat, and remove it when the block ends, however it does.

    Args:
        root: A path or an object-store URI, which all workers share.
        application: Spark's id of the application.
        storage_options: For an object store.
        clock: Returns the time of heartbeats.
        beat_every: Between two heartbeats.
        settle_seconds: How long, after a failure, to remove files that cancelled tasks still write.
    """
    options = dict(storage_options or {})
    store = storage_at(root, options)
    owner = this_process()
    # The name identifies the process until the marker does.
    folder = f"{_name(application)}/{owner.tag}-{secrets.token_hex(8)}"
    failed = True
    try:
        with scratch_errors(root, options, is_making=True):
            store.make(folder)
            store.write(f"{folder}/{MARKER}", encode(application, owner, clock()))
        with scratch_errors(root, options), Heartbeat(store, folder, clock, beat_every):
            yield Scratch(store.uri(folder), options)
        failed = False
    finally:
        remove_folder(store, folder, options, has_failed=failed, settle_seconds=settle_seconds)


def _name(application: str) -> str:
    return re.sub(r"[^\w.-]", "_", application, flags=re.ASCII).lstrip(".") or "application"


def remove_folder(
    store: Storage,
    folder: str,
    options: Mapping[str, str],
    *,
    has_failed: bool,
    settle_seconds: float = _SETTLE_SECONDS,
) -> None:
    """Remove a marked folder; after a failure, again and again while cancelled tasks may write."""
    deadline = time.monotonic() + (settle_seconds if has_failed else 0.0)
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
    root: str, options: Mapping[str, str], *, is_making: bool = False
) -> Iterator[None]:
    """Raise the RunError for scratch that has no room, or that cannot be made."""
    try:
        yield
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        secrets_ = secret_values(options)
        redacted_root = redact_line(root, secrets_)
        if _is_full(error):
            raise ScratchFull(
                f"no space is left in the scratch folder {redacted_root}",
                hint="make room there, or set the target's 'scratch' to a larger place",
            ) from None
        if is_making and not isinstance(error, LancestatError):
            raise ScratchUnusable(
                f"the scratch folder {redacted_root} cannot be used: "
                f"{redact_line(str(error), secrets_)}",
                hint="check the target's 'scratch' and the permissions there",
            ) from None
        raise


def _is_full(error: BaseException) -> bool:
    # A result that does not fit has a code of its own.
    if isinstance(error, OutputError):
        return False
    return is_full(error)


@dataclass(frozen=True, slots=True)
class Marker:
    """The owner of a scratch folder, and when the folder was last known to be in use."""

    application: str
    process: Process
    created_at: datetime
    beat_at: datetime

    def lease(self, dead_after: timedelta = DEAD_AFTER) -> Lease:
        """While it is held, the join may still run."""
        return Lease(self.process, self.beat_at, dead_after)


def encode(application: str, process: Process, created_at: datetime) -> str:
    return json.dumps(
        {
            "format_version": FORMAT_VERSION,
            "application": application,
            "process": process.to_json(),
            "created_at": created_at.isoformat(),
        }
    )


def require_visible(uri: str) -> None:
    """Refuse scratch that lies in a folder of the driver's machine alone.

    Args:
        uri: Of a dataset in a scratch folder, which a worker is about to write to.
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


def read_marker(store: Storage, folder: str) -> Marker | None:
    """Read the marker of a folder; None where there is none."""
    text = store.read(f"{folder}/{MARKER}")
    if text is None:
        return None
    try:
        stored = json.loads(text)
        if stored["format_version"] != FORMAT_VERSION:
            raise ValueError(f"it has format {stored['format_version']!r}")
        created_at = parse_instant(stored["created_at"])
        process = Process.from_json(stored["process"])
        beat_at = _beat_at(store, folder, created_at)
        return Marker(str(stored["application"]), process, created_at, beat_at)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from None


def _beat_at(store: Storage, folder: str, created_at: datetime) -> datetime:
    text = store.read(f"{folder}/{HEARTBEAT}")
    try:
        return max(created_at, parse_instant(text)) if text else created_at
    except ValueError:
        return created_at


class Heartbeat:
    """Renews the lease of a scratch folder in a thread of its own while the block runs."""

    def __init__(
        self,
        store: Storage,
        folder: str,
        clock: Callable[[], datetime],
        every: timedelta = BEAT_EVERY,
    ) -> None:
        self._store = store
        self._path = f"{folder}/{HEARTBEAT}"
        self._clock = clock
        self._every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lancestat-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every.total_seconds()):
            try:
                self._store.write(self._path, self._clock().isoformat())
            except Exception as error:
                # The join itself may still succeed.
                _log.warning("the heartbeat of scratch failed: %s", redact_line(str(error)))


# As `scratch` names them.
_RUN_NAME = re.compile(rf"({TAG})-[0-9a-f]{{16}}")


@dataclass(frozen=True, slots=True)
class AbandonedFolder:
    """A join run's folder that its process left behind."""

    uri: str
    size_bytes: int
    beat_at: datetime


@dataclass(frozen=True, slots=True)
class ScratchGarbage:
    """The folders that were removed, or would be, and those that were left.

    `left` are URIs with the reason: somebody else's, a marker that cannot be understood, a removal
    that failed.
    """

    collected: tuple[AbandonedFolder, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


def collect_scratch_garbage(
    root: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    now: datetime,
    dry_run: bool = False,
    dead_after: timedelta = DEAD_AFTER,
) -> ScratchGarbage:
    """Remove what killed processes left under a scratch root, and nothing else.

    Only folders two levels below the root that carry scratch's marker are looked at, and those that
    a killed process of this host has made and not marked yet. Links are not followed, and a folder
    stays whose process runs on this host, or whose heartbeat is recent.

    Args:
        root: A path or an object-store URI. One that does not exist holds nothing.
        storage_options: For an object store.
        now: The time from which the age of heartbeats counts.
        dry_run: Change nothing, only report.
        dead_after: How old the last heartbeat of a dead process is.
    """
    options = dict(storage_options or {})
    store = storage_at(root, options)
    collected: list[AbandonedFolder] = []
    left: list[tuple[str, str]] = []
    try:
        store_uri = store_of(root)
        if store_uri is not None:
            probe(store_uri, options)
        for folder in _folders(store, left):
            lease = lease_of(store, folder, dead_after, left)
            if lease is None or lease.is_held(now):
                continue
            size_bytes = store.size_bytes(folder)
            if dry_run or _removed(store, folder, options, left):
                collected.append(
                    AbandonedFolder(store.uri(folder), size_bytes, lease.renewed_at or now)
                )
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        reason = error.message if isinstance(error, LancestatError) else str(error)
        secrets = secret_values(options)
        raise ScratchUnusable(
            f"the scratch folder {redact_line(root, secrets)} cannot be cleaned up: "
            f"{redact_line(reason, secrets)}",
            hint="check the target's 'scratch', its storage_options and the permissions there",
        ) from None
    return ScratchGarbage(tuple(collected), tuple(left))


def _folders(storage: Storage, left: list[tuple[str, str]]) -> Iterator[str]:
    for application in storage.children(""):
        try:
            runs = storage.children(application)
        except PermissionError as error:
            left.append((storage.uri(application), str(error.strerror)))
            continue
        yield from (f"{application}/{run}" for run in runs)


def lease_of(
    store: Storage, folder: str, dead_after: timedelta, left: list[tuple[str, str]]
) -> Lease | None:
    """Return the lease of a folder, None where it has none or one that cannot be understood."""
    try:
        marker = read_marker(store, folder)
    except ValueError as error:
        left.append((store.uri(folder), f"its marker cannot be understood: {error}"))
    except PermissionError as error:
        left.append((store.uri(folder), str(error.strerror)))
    else:
        if marker is not None:
            return marker.lease(dead_after)
    return _unmarked_lease(store, folder)


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


def _removed(
    store: Storage,
    folder: str,
    options: Mapping[str, str],
    left: list[tuple[str, str]],
) -> bool:
    try:
        store.remove(folder, MARKER)
        store.remove_empty(folder.partition("/")[0])
    except Exception as error:
        left.append((store.uri(folder), redact_line(str(error), secret_values(options))))
        return False
    return True
