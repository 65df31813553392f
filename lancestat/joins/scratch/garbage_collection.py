"""Garbage collection of scratch that killed processes left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lancestat.errors import LancestatError, ScratchUnusable
from lancestat.joins.scratch.folder import DEAD_AFTER, MARKER, read_marker
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.files import store_of
from lancestat.lake.open import probe
from lancestat.lake.storage import Storage, storage_at
from lancestat.lake.temporary_files import TAG, Lease
from lancestat.redact import redact_line, secret_values

# As `scratch` names them.
_NAME = re.compile(rf"({TAG})-[0-9a-f]{{16}}")


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

    Raises:
        ScratchUnusable: the root cannot be looked at.
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
    named = _NAME.fullmatch(folder.rpartition("/")[2])
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
