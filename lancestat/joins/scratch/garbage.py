"""Garbage collection of scratch: what killed processes left there, and indexes of no use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lancestat.joins.scratch.folder import DEAD_AFTER, MARKER, lease_of, scratch_errors
from lancestat.joins.scratch.kept_indexes import (
    FOLDER,
    MANIFEST,
    IndexStore,
    StoredIndex,
    UnknownIndexFormatError,
    decode_manifest,
)
from lancestat.joins.scratch.kept_neighbours import NEIGHBOURS, NEIGHBOURS_MANIFEST
from lancestat.joins.scratch.kept_neighbours import decode_manifest as decode_neighbours
from lancestat.joins.search.work import RightContent
from lancestat.lake.files import store_of
from lancestat.lake.open import probe
from lancestat.redact import redact_line, secret_values

_UNUSABLE = "the scratch folder {} cannot be cleaned up"


@dataclass(slots=True)
class ScratchGarbage:
    """Collects the garbage of a scratch root, or with `dry_run` only reports it.

    A folder stays whose process runs on this host or whose heartbeat is recent, and an index that
    some process may be reading, or in a format that this release does not know.

    Collected are `folders`, by URI, and `indexes`, `size_bytes` together. `left` are URIs of what
    was left with the reason: somebody else's, a marker that cannot be understood, a removal that
    failed.
    """

    store: IndexStore
    now: datetime
    dry_run: bool = False
    dead_after: timedelta = DEAD_AFTER
    folders: list[str] = field(default_factory=list, init=False)
    indexes: int = field(default=0, init=False)
    size_bytes: int = field(default=0, init=False)
    left: list[tuple[str, str]] = field(default_factory=list, init=False)

    def collect(
        self,
        owner: str,
        usable: Mapping[str, RightContent | None],
        *,
        has_others: bool = False,
    ) -> ScratchGarbage:
        """Remove folders of dead joins, unfinished indexes, and those that no join can use.

        Only folders two levels below the root that carry scratch's marker are looked at, and those
        that a killed process of this host has made and not marked yet. Links are not followed. Keys
        of the project's indexes begin with `owner`; `usable` is the content of the declared right
        sides by key, None where that cannot be known. With `has_others`, indexes of other keys may
        be those of other targets.
        """
        root, options, storage = self.store.root, self.store.options, self.store.storage
        with scratch_errors(root, options, _UNUSABLE):
            store_uri = store_of(root)
            if store_uri is not None:
                probe(store_uri, dict(options))
            for folder in self._folders():
                if self._has_ended(folder) and self._remove(folder):
                    self.folders.append(storage.uri(folder))
            for key in storage.children(FOLDER):
                is_own = key.startswith(owner) and (key in usable or not has_others)
                for folder in list(self._unused(key, is_own, usable)):
                    if not self.store.has_readers(folder) and self._remove(folder):
                        self.indexes += 1
                if not self.dry_run:
                    self.store.tidy(key)
        return self

    def collect_neighbours(
        self,
        prefix: str,
        named: Callable[[], Container[str]],
        begun: Collection[datetime] = (),
    ) -> None:
        """Remove neighbours whose keys begin with a prefix, but for folders that records name.

        Those that may be about to be recorded stay: of joins that go on, those that were finished
        not long ago, or since the first run has `begun` that goes on: it is recorded at its end.
        Records are read after these were looked at.
        """
        before = min([self.now - self.dead_after, *begun])
        storage = self.store.storage
        with scratch_errors(self.store.root, self.store.options, _UNUSABLE):
            ended = [
                folder
                for key in storage.children(NEIGHBOURS)
                if key.startswith(prefix)
                for generation in storage.children(f"{NEIGHBOURS}/{key}")
                if self._is_settled(folder := f"{NEIGHBOURS}/{key}/{generation}", before)
            ]
            needed = named() if ended else ()
            for folder in ended:
                if folder not in needed and self._remove(folder):
                    self.folders.append(storage.uri(folder))

    def _folders(self) -> Iterator[str]:
        storage = self.store.storage
        for application in storage.children(""):
            if application in (FOLDER, NEIGHBOURS):
                continue
            try:
                runs = storage.children(application)
            except PermissionError as error:
                self.left.append((storage.uri(application), str(error.strerror)))
                continue
            yield from (f"{application}/{run}" for run in runs)

    def _unused(
        self, key: str, is_own: bool, usable: Mapping[str, RightContent | None]
    ) -> Iterator[str]:
        storage, whole = self.store.storage, []
        for generation in storage.children(f"{FOLDER}/{key}"):
            folder = f"{FOLDER}/{key}/{generation}"
            text = storage.read(f"{folder}/{MANIFEST}")
            try:
                if text is not None:
                    whole.append(StoredIndex(folder, decode_manifest(text)))
                    continue
            except UnknownIndexFormatError as error:
                self.left.append((storage.uri(folder), str(error)))
                continue
            except ValueError:
                # Ignore manifests that are not valid.
                pass
            # Unfinished, or withdrawn: it goes when its process has gone.
            if self._has_ended(folder):
                yield folder
        if not is_own:
            return
        whole.sort(key=lambda kept: kept.age)
        for kept in whole[:-1]:
            yield kept.folder
        for kept in whole[-1:]:
            if key not in usable or not _is_usable(kept, usable[key]):
                yield kept.folder

    def _is_settled(self, folder: str, before: datetime) -> bool:
        text = self.store.storage.read(f"{folder}/{NEIGHBOURS_MANIFEST}")
        manifest = None if text is None else decode_neighbours(text)
        if manifest is None:
            return self._has_ended(folder)
        return manifest.created_at < before

    def _has_ended(self, folder: str) -> bool:
        lease = lease_of(self.store.storage, folder, self.dead_after, self.left)
        return lease is not None and not lease.is_held(self.now)

    def _remove(self, folder: str) -> bool:
        """Remove a folder, and return whether it has gone, or would."""
        storage = self.store.storage
        size_bytes = storage.size_bytes(folder)
        if not self.dry_run:
            try:
                if not folder.startswith(f"{FOLDER}/"):
                    storage.remove(folder, MARKER)
                    storage.remove_empty(folder.rpartition("/")[0])
                elif not self.store.remove(folder):
                    return False
            except Exception as error:
                reason = redact_line(str(error), secret_values(self.store.options))
                self.left.append((storage.uri(folder), reason))
                return False
        self.size_bytes += size_bytes
        return True


def _is_usable(kept: StoredIndex, content: RightContent | None) -> bool:
    """Whether an index has rows of the content, or that is not known."""
    if content is None:
        return True
    coverage = kept.manifest.record.cover(content)
    return coverage.rows > 0 and kept.manifest.record.drift(coverage) is None
