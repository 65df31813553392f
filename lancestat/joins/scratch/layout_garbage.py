"""Garbage collection of kept layouts: of those that no declared join can use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lancestat.errors import LancestatError, ScratchUnusable
from lancestat.joins.scratch.folder import DEAD_AFTER
from lancestat.joins.scratch.garbage_collection import lease_of
from lancestat.joins.scratch.layouts import (
    FOLDER,
    MANIFEST,
    KeptLayout,
    LayoutStore,
    UnknownLayoutFormatError,
    decode_manifest,
)
from lancestat.joins.search.layout import RightContent, cover, drift
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.files import store_of
from lancestat.lake.open import probe
from lancestat.redact import redact_line, secret_values


@dataclass(frozen=True, slots=True)
class LayoutGarbage:
    """The layouts that were removed, or would be, with their bytes, and those that were left.

    `left` are URIs with the reason.
    """

    collected: int = 0
    size_bytes: int = 0
    left: tuple[tuple[str, str], ...] = ()


def collect_layout_garbage(
    store: LayoutStore,
    owner: str,
    usable: Mapping[str, RightContent | None],
    *,
    now: datetime,
    dry_run: bool = False,
    dead_after: timedelta = DEAD_AFTER,
) -> LayoutGarbage:
    """Remove layouts of a project that none of its joins can use, and unfinished ones of any.

    A layout stays that some process may be reading or writing, and so does one in a format that
    this release does not know.

    Args:
        store: The layouts under a scratch root.
        owner: The prefix of the keys of the project's layouts (`layout.owner_prefix`).
        usable: The content of the declared right sides by key, None where that cannot be known.
        now: The time from which the age of heartbeats counts.
        dry_run: Change nothing, only report.
        dead_after: How old the last heartbeat of a dead process is.

    Raises:
        ScratchUnusable: the root cannot be looked at.
    """
    collected = size_bytes = 0
    left: list[tuple[str, str]] = []
    storage = store.storage
    try:
        store_uri = store_of(store.root)
        if store_uri is not None:
            probe(store_uri, dict(store.options))
        for key in storage.children(FOLDER):
            for folder in list(_garbage(store, key, owner, usable, now, dead_after, left)):
                if store.has_readers(folder):
                    continue
                size = storage.size_bytes(folder)
                if dry_run or _removed(store, folder, left):
                    collected, size_bytes = collected + 1, size_bytes + size
            if not dry_run:
                for generation in storage.children(f"{FOLDER}/{key}"):
                    store.remove_dead_readers(f"{FOLDER}/{key}/{generation}")
                    store.remove_superseded(f"{FOLDER}/{key}/{generation}")
                storage.remove_empty(f"{FOLDER}/{key}")
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        hidden = secret_values(store.options)
        reason = error.message if isinstance(error, LancestatError) else str(error)
        raise ScratchUnusable(
            f"the layouts in {redact_line(store.root, hidden)} cannot be cleaned up: "
            f"{redact_line(reason, hidden)}",
            hint="check the target's 'scratch', its storage_options and the permissions there",
        ) from None
    return LayoutGarbage(collected, size_bytes, tuple(left))


def _garbage(
    store: LayoutStore,
    key: str,
    owner: str,
    usable: Mapping[str, RightContent | None],
    now: datetime,
    dead_after: timedelta,
    left: list[tuple[str, str]],
) -> Iterator[str]:
    """Yield the folders of a key that are garbage."""
    storage, whole = store.storage, []
    for generation in storage.children(f"{FOLDER}/{key}"):
        folder = f"{FOLDER}/{key}/{generation}"
        text = storage.read(f"{folder}/{MANIFEST}")
        try:
            if text is not None:
                whole.append(KeptLayout(folder, decode_manifest(text)))
                continue
        except UnknownLayoutFormatError as error:
            left.append((storage.uri(folder), str(error)))
            continue
        except ValueError:
            # What cannot be understood is no layout.
            pass
        # Unfinished, or withdrawn: it goes when its process has gone.
        lease = lease_of(store.storage, folder, dead_after, left)
        if lease is not None and not lease.is_held(now):
            yield folder
    if not key.startswith(owner):
        return
    whole.sort(key=lambda kept: kept.age)
    for kept in whole[:-1]:
        yield kept.folder
    for kept in whole[-1:]:
        if key not in usable or not _is_usable(kept, usable[key]):
            yield kept.folder


def _is_usable(kept: KeptLayout, content: RightContent | None) -> bool:
    """Whether a layout has rows of the content, or that is not known."""
    if content is None:
        return True
    coverage = cover(kept.manifest.record, content)
    return coverage.rows > 0 and drift(kept.manifest.record, coverage) is None


def _removed(store: LayoutStore, folder: str, left: list[tuple[str, str]]) -> bool:
    try:
        return store.remove(folder)
    except Exception as error:
        hidden = secret_values(store.options)
        left.append((store.storage.uri(folder), redact_line(str(error), hidden)))
        return False
