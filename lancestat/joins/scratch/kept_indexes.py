"""IVF indexes that are kept in scratch: found, held while they are read, written, replaced.

`<root>/indexes/<key>/<generation>/` holds one index: Lance datasets with its rows and its arrays,
and `index.json`, the manifest, which is written last and in one step. A generation without a
manifest is none yet, or none any more. While it is written it has the marker and the heartbeat of a
scratch folder; who reads it keeps a file `readers/HOST-PID-STARTED-TIME-RANDOM` in it.

Whoever removes an index removes its manifest first and then looks for readers; who reads it writes
the file first and then looks at the manifest. So either of them sees the other.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from lancestat import codec
from lancestat.errors import LancestatError, ScratchFull, ScratchUnusable
from lancestat.joins.scratch.folder import (
    DEAD_AFTER,
    MARKER,
    Heartbeat,
    encode,
    lease_of,
    remove_folder,
    scratch_errors,
)
from lancestat.joins.search.ivf_index import IndexRecord, RightContent
from lancestat.lake.error_mapping import is_error_or_panic, is_full
from lancestat.lake.files import TAG, Lease, Storage, abandoned, storage_at, store_of, this_process
from lancestat.lake.open import probe
from lancestat.lake.snapshot import Pin
from lancestat.redact import redact_line, secret_values

_log = logging.getLogger("lancestat.knn")

FOLDER = "indexes"
MANIFEST = "index.json"
# The names of datasets of arrays begin so.
ARRAYS = "arrays-"
# Requests whose number of probes an index remembers.
MOST_CHOSEN = 100
FORMAT_VERSION = 1
_READERS = "readers"
# Or the draft of such a file, whose owner stands at its end.
_READER = re.compile(rf"(?:\..*\.draft-)?({TAG})(?:-(\d+))?-[0-9a-f]{{12}}")


@dataclass(frozen=True, slots=True)
class KeptDataset:
    """A Lance dataset in the folder of an index: its name, what pins it, its files with sizes."""

    name: str
    version: int
    manifest: str
    files: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, pin: Pin, files: Mapping[str, int]) -> KeptDataset:
        """Return the dataset at a pin; `files` have paths below the dataset."""
        name = pin.uri.rpartition("/")[2]
        return cls(name, pin.version, pin.manifest, tuple(sorted(files.items())))


@dataclass(frozen=True, slots=True)
class ChosenProbes:
    """How many lists were found to reach a recall for so many neighbours; where a run begins."""

    k: int
    recall: float
    nprobes: int


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """The contents of `index.json`.

    `rows` has the vectors and places by list, `arrays` the centroids and what else is needed to
    read them, of which `arrays_digest` is a digest.
    """

    created_at: codec.Instant
    record: IndexRecord
    rows: KeptDataset
    arrays: KeptDataset
    arrays_digest: str
    chosen: tuple[ChosenProbes, ...] = ()
    format_version: int = FORMAT_VERSION

    def nprobes(self, k: int, recall: float | None) -> int | None:
        """Return how many lists reached a recall, None where that is not known."""
        return next(
            (known.nprobes for known in self.chosen if (known.k, known.recall) == (k, recall)), None
        )

    def with_nprobes(self, k: int, recall: float | None, nprobes: int) -> IndexManifest:
        """Return the same with the number of lists that reaches a recall."""
        if recall is None:
            return self
        others = (known for known in self.chosen if (known.k, known.recall) != (k, recall))
        newest = (*others, ChosenProbes(k, recall, nprobes))
        return replace(self, chosen=newest[-MOST_CHOSEN:])


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index that is there as a whole; `folder` is its path below the scratch root."""

    folder: str
    manifest: IndexManifest

    @property
    def age(self) -> tuple[datetime, str]:
        """What indexes of one key are sorted by, the oldest first."""
        return self.manifest.created_at, self.folder


@dataclass(slots=True)
class IndexDraft:
    """An index that is being written below a scratch root."""

    folder: str
    uri: str
    is_kept: bool = False

    def place(self, name: str) -> str:
        """Return the URI of a dataset in the index."""
        return f"{self.uri}/{name}.lance"


@dataclass(frozen=True, slots=True)
class IndexStore:
    """The indexes under one scratch root, which all workers reach."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def find(self, key: str) -> StoredIndex | None:
        """Return the newest index of a key, None where there is none that can be understood."""
        with self._errors():
            return max(self.all_of(key), key=lambda kept: kept.age, default=None)

    def all_of(self, key: str) -> Iterator[StoredIndex]:
        """Yield the indexes of a key that can be understood."""
        folder = f"{FOLDER}/{key}"
        for generation in self.storage.children(folder):
            manifest = self._manifest(f"{folder}/{generation}")
            if manifest is not None:
                yield StoredIndex(f"{folder}/{generation}", manifest)

    def pin(self, kept: StoredIndex, dataset: KeptDataset) -> Pin:
        """Return the pin of a dataset of an index."""
        uri = self.storage.uri(f"{kept.folder}/{dataset.name}")
        return Pin(uri, dataset.version, dataset.manifest)

    def damage(self, kept: StoredIndex) -> str | None:
        """Return what a look at the files finds to be damaged, None where nothing is."""
        storage = self.storage
        with self._errors():
            for dataset in (kept.manifest.rows, kept.manifest.arrays):
                for path, size_bytes in dataset.files:
                    file = f"{kept.folder}/{dataset.name}/{path}"
                    if not storage.has_file(file, size_bytes):
                        return f"{dataset.name}/{path} is missing or of another size"
        return None

    @contextmanager
    def held(self, kept: StoredIndex) -> Iterator[StoredIndex | None]:
        """Keep others from removing an index while the block runs.

        Yields:
            The index as it is now, None where it has gone.
        """
        name = f"{this_process().tag}-{int(time.time())}-{secrets.token_hex(6)}"
        path = f"{kept.folder}/{_READERS}/{name}"
        with self._errors():
            if self._manifest(kept.folder) is None:
                manifest = None
            else:
                self.storage.write(path, "", make_folder=True)
                manifest = self._manifest(kept.folder)
        try:
            yield None if manifest is None else StoredIndex(kept.folder, manifest)
        finally:
            try:
                self.storage.remove_file(path)
                self.storage.remove_empty(f"{kept.folder}/{_READERS}")
                if manifest is None:
                    self.storage.remove_empty(kept.folder)
            except OSError as error:
                # The lease of the file ends with this process.
                _log.warning("%s was not removed: %s", self._shown(path), error)

    @contextmanager
    def writing(self, key: str) -> Iterator[IndexDraft]:
        """Make the folder of a new index; it is removed in the end unless it was published."""
        owner = this_process()
        folder = f"{FOLDER}/{key}/{owner.tag}-{secrets.token_hex(8)}"
        draft = IndexDraft(folder, self.storage.uri(folder))
        is_failed = True
        try:
            with self._errors():
                self.storage.make(folder)
                self.storage.write(f"{folder}/{MARKER}", encode(FOLDER, owner, self.clock()))
            beating = Heartbeat(self.storage, folder, self.clock)
            with scratch_errors(self.root, self.options), beating:
                yield draft
            is_failed = False
        finally:
            if not draft.is_kept:
                remove_folder(self.storage, folder, self.options, has_failed=is_failed)

    def publish(self, draft: IndexDraft, manifest: IndexManifest) -> StoredIndex:
        """Make a draft the index of its key, and remove those that it takes the place of."""
        kept = self.update(StoredIndex(draft.folder, manifest), manifest)
        draft.is_kept = True
        for other in self.all_of(draft.folder.split("/")[1]):
            if other.age < kept.age:
                self.remove(other.folder)
        return kept

    def update(self, kept: StoredIndex, manifest: IndexManifest) -> StoredIndex:
        """Replace the manifest of an index in one step."""
        with self._errors():
            self.storage.write(f"{kept.folder}/{MANIFEST}", codec.encode(manifest))
        return StoredIndex(kept.folder, manifest)

    def remember(self, kept: StoredIndex, k: int, recall: float | None, nprobes: int) -> None:
        """Record in an index how many of its lists reach a recall."""
        manifest = self._manifest(kept.folder)
        if manifest is not None and recall is not None and manifest.nprobes(k, recall) != nprobes:
            self.update(kept, manifest.with_nprobes(k, recall, nprobes))

    def remove(self, folder: str) -> bool:
        """Withdraw an index, and remove its files unless it is read; return whether it has gone.

        What is still read is garbage that `lancestat gc` removes later.
        """
        self.storage.remove_file(f"{folder}/{MANIFEST}")
        if self.has_readers(folder):
            return False
        self.storage.remove(folder, MARKER)
        self.storage.remove_empty(folder.rpartition("/")[0])
        return True

    def has_readers(self, folder: str) -> bool:
        """Whether some process may be reading an index."""
        return any(lease.is_held() for _, lease in self._readers(folder))

    def remove_dead_readers(self, folder: str) -> None:
        """Remove the files of processes that have ended while they read an index."""
        for name in abandoned(self._readers(folder)):
            self.storage.remove_file(f"{folder}/{_READERS}/{name}")
        self.storage.remove_empty(f"{folder}/{_READERS}")

    def remove_superseded(self, folder: str) -> None:
        """Remove the arrays of an index that an extension has replaced, unless somebody reads them.

        They are listed first, then readers are looked for, and then the manifest is read: whoever
        extends the index is a reader, so that its arrays are either not listed or named.
        """
        there = [name for name in self.storage.children(folder) if name.startswith(ARRAYS)]
        if self.has_readers(folder):
            return
        manifest = self._manifest(folder)
        if manifest is not None:
            for name in set(there) - {manifest.arrays.name}:
                self.storage.remove(f"{folder}/{name}", MARKER)

    def _readers(self, folder: str) -> list[tuple[str, Lease]]:
        # Some object stores list the folder itself, too.
        names = self.storage.files(f"{folder}/{_READERS}")
        matches = (match for name in names if (match := _READER.fullmatch(name)) is not None)
        return [
            (match[0], Lease.of_tag(match[1], int(match[2]) if match[2] else None))
            for match in matches
        ]

    @property
    def storage(self) -> Storage:
        """The files below the root."""
        return storage_at(self.root, self.options)

    def _manifest(self, folder: str) -> IndexManifest | None:
        text = self.storage.read(f"{folder}/{MANIFEST}")
        if text is None:
            return None
        try:
            return decode_manifest(text)
        except ValueError as error:
            _log.info("the index at %s is not used: %s", self._shown(folder), error)
            return None

    def _shown(self, path: str) -> str:
        return redact_line(self.storage.uri(path), secret_values(self.options))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not is_error_or_panic(error) or isinstance(error, ScratchUnusable | ScratchFull):
                raise
            hidden = secret_values(self.options)
            if is_full(error):
                raise ScratchFull(
                    f"no space is left in the scratch folder {redact_line(self.root, hidden)}",
                    hint="make room there, or set the target's 'scratch' to a larger place",
                ) from None
            raise ScratchUnusable(
                f"the indexes in {redact_line(self.root, hidden)} cannot be used: "
                f"{redact_line(str(error), hidden)}",
                hint="check the target's 'scratch' and the permissions there",
            ) from None


def decode_manifest(text: str) -> IndexManifest:
    """Read the contents of `index.json`."""
    stored = json.loads(text)
    version = stored.get("format_version") if isinstance(stored, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise UnknownIndexFormatError(f"it has format {version}")
    return codec.convert(stored, IndexManifest)


class UnknownIndexFormatError(ValueError):
    """An index has a format that this release does not know."""


_making: dict[tuple[str, str], threading.Lock] = {}


def building_index(root: str, key: str) -> threading.Lock:
    """Return the lock under which one join of this process at a time makes an index of a key."""
    return _making.setdefault((root, key), threading.Lock())


@dataclass(frozen=True, slots=True)
class IndexGarbage:
    """The indexes that were removed, or would be, with their bytes, and those that were left.

    `left` are URIs with the reason.
    """

    collected: int = 0
    size_bytes: int = 0
    left: tuple[tuple[str, str], ...] = ()


def collect_index_garbage(
    store: IndexStore,
    owner: str,
    usable: Mapping[str, RightContent | None],
    *,
    now: datetime,
    dry_run: bool = False,
    dead_after: timedelta = DEAD_AFTER,
) -> IndexGarbage:
    """Remove indexes of a project that none of its joins can use, and unfinished ones of any.

    An index stays that some process may be reading or writing, and so does one in a format that
    this release does not know.

    Args:
        store: The indexes under a scratch root.
        owner: The prefix of the keys of the project's indexes (`ivf_index.owner_prefix`).
        usable: The content of the declared right sides by key, None where that cannot be known.
        now: The time from which the age of heartbeats counts.
        dry_run: Change nothing, only report.
        dead_after: How old the last heartbeat of a dead process is.
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
            f"the indexes in {redact_line(store.root, hidden)} cannot be cleaned up: "
            f"{redact_line(reason, hidden)}",
            hint="check the target's 'scratch', its storage_options and the permissions there",
        ) from None
    return IndexGarbage(collected, size_bytes, tuple(left))


def _garbage(
    store: IndexStore,
    key: str,
    owner: str,
    usable: Mapping[str, RightContent | None],
    now: datetime,
    dead_after: timedelta,
    left: list[tuple[str, str]],
) -> Iterator[str]:
    storage, whole = store.storage, []
    for generation in storage.children(f"{FOLDER}/{key}"):
        folder = f"{FOLDER}/{key}/{generation}"
        text = storage.read(f"{folder}/{MANIFEST}")
        try:
            if text is not None:
                whole.append(StoredIndex(folder, decode_manifest(text)))
                continue
        except UnknownIndexFormatError as error:
            left.append((storage.uri(folder), str(error)))
            continue
        except ValueError:
            # Ignore manifests that are not valid.
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


def _is_usable(kept: StoredIndex, content: RightContent | None) -> bool:
    """Whether an index has rows of the content, or that is not known."""
    if content is None:
        return True
    coverage = kept.manifest.record.cover(content)
    return coverage.rows > 0 and kept.manifest.record.drift(coverage) is None


def _removed(store: IndexStore, folder: str, left: list[tuple[str, str]]) -> bool:
    try:
        return store.remove(folder)
    except Exception as error:
        hidden = secret_values(store.options)
        left.append((store.storage.uri(folder), redact_line(str(error), hidden)))
        return False
