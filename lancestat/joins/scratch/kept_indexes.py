"""IVF indexes that are kept in scratch: what is recorded of them, and the store of their files.

`<root>/indexes/<key>/<generation>/` holds one index: Lance datasets with its rows and its arrays,
and `index.json`, the manifest, which is written last and in one step. A generation without a
manifest is none yet, or none any more. While it is written it has the marker and the heartbeat of a
scratch folder; who reads it keeps a file `readers/HOST-PID-STARTED-TIME-RANDOM` in it.

Whoever removes an index removes its manifest first and then looks for readers; who reads it writes
the file first and then looks at the manifest. So either of them sees the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat import codec
from lancestat.formats import count
from lancestat.joins.scratch.folder import (
    MARKER,
    Draft,
    held_folder,
    run_name,
    scratch_errors,
    utc_now,
)
from lancestat.joins.search.cost_model import KeptIndex
from lancestat.joins.search.work import RightContent
from lancestat.lake.files import (
    TAG,
    Lease,
    Storage,
    abandoned,
    storage_at,
    store_options,
    this_process,
)
from lancestat.lake.open import open_pinned
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

    from lancestat.joins.search.centroids import Centroids
    from lancestat.joins.search.metrics import Metric
    from lancestat.joins.search.neighbours import Floats, Ints, Reals

_log = logging.getLogger("lancestat.knn")

FOLDER = "indexes"
MANIFEST = "index.json"
# The names of datasets of arrays begin so.
ARRAYS = "arrays-"
# Requests whose number of probes an index remembers.
MOST_CHOSEN = 100
FORMAT_VERSION = 1
_READERS = "readers"
_UNUSABLE = "the indexes in {} cannot be used"
# Or the draft of such a file, whose owner stands at its end.
_READER = re.compile(rf"(?:\..*\.draft-)?({TAG})(?:-(\d+))?-[0-9a-f]{{12}}")

# An index is trained again when more than this share of the live rows came after it was trained,
MOST_ADDED = 0.5
# or of its rows are deleted,
MOST_DELETED = 0.3
# or added rows are so many times as far from their centroids as the trained ones were,
FARTHEST = 1.5
# or its lists are so many times as unequal as they were,
MOST_UNEQUAL = 2.0
# or it is in more pieces than this, beyond those that it was written in.
MOST_PIECES = 64


def owner_prefix(state_uri: str) -> str:
    """Return how the keys of a project's indexes begin: a digest of where its state is."""
    return f"{_digest(state_uri, 6)}-"


def index_key(state_uri: str, table_uri: str, vector: str, metric: str, filter: str | None) -> str:
    """Return the key of indexes of a table's vectors; nothing secret can be read from it.

    URIs are canonical, and `filter` is as it is declared.
    """
    meaning = json.dumps([table_uri, vector, metric, filter])
    return f"{owner_prefix(state_uri)}{_digest(meaning, 16)}"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True)
class IndexedFragment:
    """A fragment whose rows were put into lists: its content, and its live rows at that time."""

    content: str
    rows: int


@dataclass(frozen=True, slots=True)
class Quality:
    """Rows in lists: how many, the sum of their errors, and how unequal the lists are.

    The error of a row is its distance from the centroid of its list (`Metric.list_errors`).
    `imbalance` is the mean length of the list that a row is in, by the mean length of all lists.
    """

    rows: int
    error: float
    imbalance: float

    @property
    def mean_error(self) -> float:
        return self.error / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an index has of a right side.

    `fragments` has, for each slot, the number of the fragment among those of the side, -1 where the
    side has no such fragment any more. `missing` are the numbers of those that are to be put in,
    with `new_rows` live rows; `rows` are in the index, of which `added_rows` came after training.
    """

    fragments: tuple[int, ...]
    missing: tuple[int, ...]
    rows: int
    added_rows: int
    new_rows: int
    deleted_rows: int


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """What is recorded of an index.

    `sources` are in the order of their slots, by which the places of rows name fragments; the
    first `first_sources` were there when it was trained. `trained` describes the rows that the
    centroids were made for, `now` all rows that are in the lists; `pieces` is the number of
    fragments that these are in, and `first_pieces` what it was at first.
    """

    dimension: int
    lists: int
    sources: tuple[IndexedFragment, ...]
    first_sources: int
    trained: Quality
    now: Quality
    first_pieces: int
    pieces: int

    def cover(self, content: RightContent, distrusted: frozenset[int] = frozenset()) -> Coverage:
        """Compare the index with the content of the side that is to be searched.

        Deleted rows stay in an index and are masked. A fragment that has more live rows than when
        it was indexed, since an earlier version of the table was restored, counts as missing, and
        so do those in `distrusted` slots.
        """
        slots: dict[str, list[int]] = {}
        for slot, indexed in enumerate(self.sources):
            if slot not in distrusted:
                slots.setdefault(indexed.content, []).append(slot)
        fragments = [-1] * len(self.sources)
        missing, kept, added = [], 0, 0
        for number, fragment in enumerate(content.fragments):
            # A fragment that was put in twice is in the later slot.
            holders = slots.get(fragment.content)
            slot = holders.pop() if holders else -1
            if slot < 0 or fragment.rows > self.sources[slot].rows:
                missing.append(number)
                continue
            fragments[slot] = number
            kept += fragment.rows
            added += fragment.rows if slot >= self.first_sources else 0
        new = sum(content.fragments[number].rows for number in missing)
        deleted = self._indexed_rows - kept
        return Coverage(tuple(fragments), tuple(missing), kept, added, new, deleted)

    def kept(self, coverage: Coverage) -> KeptIndex:
        """Return the index as the cost model sees it."""
        return KeptIndex(self.lists, coverage.rows, coverage.new_rows, self.drift(coverage))

    def drift(self, coverage: Coverage) -> str | None:
        """Return why the index has to be trained again, with the number that says so."""
        live = coverage.rows + coverage.new_rows
        added = self.now.rows - self.trained.rows
        share = (coverage.added_rows + coverage.new_rows) / live if live else 0.0
        if share > MOST_ADDED:
            return f"{100 * share:.0f} % of its rows came after it was trained"
        gone = coverage.deleted_rows / self._indexed_rows if self._indexed_rows else 0.0
        if gone > MOST_DELETED:
            return f"{100 * gone:.0f} % of the rows in its lists are deleted"
        if added >= self.lists and self.trained.mean_error > 0:
            error = (self.now.error - self.trained.error) / added
            if error > FARTHEST * self.trained.mean_error:
                times = error / self.trained.mean_error
                return (
                    f"added rows are {times:.1f} times as far from its centroids as the first ones"
                )
        if self.now.imbalance > MOST_UNEQUAL * self.trained.imbalance:
            times = self.now.imbalance / self.trained.imbalance
            return f"its lists are {times:.1f} times as unequal as they were"
        if self.pieces > self.first_pieces + MOST_PIECES:
            return f"it is in {count(self.pieces, 'piece')}"
        return None

    @property
    def _indexed_rows(self) -> int:
        return sum(indexed.rows for indexed in self.sources)


@dataclass(frozen=True, slots=True)
class IndexArrays:
    """What is needed to read the rows of an index; in a Lance dataset of its own.

    `centroids` (lists, dimension) go with `frame`, their scale and length; `offsets` (fragments,
    lists + 1) are the rows at which lists start in the fragments of the numbers `fragment_ids`.
    `excluded` are the places of rows that cannot match, and `deleted` those of rows that were
    deleted when their fragment was indexed, ascending.
    """

    centroids: Floats
    frame: Reals
    offsets: Ints
    fragment_ids: Ints
    excluded: Ints
    deleted: Ints

    def centroids_of(self, metric: Metric) -> Centroids:
        from lancestat.joins.search.centroids import Centroids

        return Centroids(self.centroids, metric, float(self.frame[0]), float(self.frame[1]))

    def write(
        self, uri: str, storage_options: Mapping[str, str]
    ) -> tuple[Pin, Mapping[str, int], str]:
        """Write a new dataset; return its pin, its files with sizes, a digest of its values."""
        import lance
        import pyarrow as pa

        rows = [(part.name, getattr(self, part.name)) for part in fields(self)]
        table = pa.table(
            {
                "name": [name for name, _ in rows],
                "type": [array.dtype.str for _, array in rows],
                "shape": pa.array([array.shape for _, array in rows], pa.list_(pa.int64())),
                "values": pa.array([array.tobytes() for _, array in rows], pa.large_binary()),
            }
        )
        options = store_options(uri, storage_options)
        dataset = lance.write_dataset(table, uri, mode="create", storage_options=options)
        return pin_of(dataset, uri), data_files(dataset), _table_digest(table)

    @classmethod
    def read(cls, pin: Pin, digest: str, storage_options: Mapping[str, str]) -> IndexArrays:
        """Return the arrays that were written."""
        import numpy as np

        table = open_pinned(pin, storage_options=storage_options).to_table()
        if table.column_names != ["name", "type", "shape", "values"]:
            raise ValueError("its arrays have other columns")
        if _table_digest(table) != digest:
            raise ValueError("the values of its arrays are not those that were written")
        arrays = {
            row["name"]: np.frombuffer(row["values"], row["type"]).reshape(row["shape"])
            for row in table.to_pylist()
        }
        return cls(**arrays)


def data_files(dataset: LanceDataset, ids: frozenset[int] | None = None) -> dict[str, int]:
    """Return the data files of a dataset's fragments, by their paths below it, with their sizes."""
    return {
        f"data/{file.path}": file.file_size_bytes or 0
        for fragment in dataset.get_fragments()
        if ids is None or fragment.fragment_id in ids
        for file in fragment.metadata.files
    }


def _table_digest(table: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in table.to_pylist():
        digest.update(f"{row['name']} {row['type']} {row['shape']}\0".encode())
        digest.update(row["values"])
    return digest.hexdigest()


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
    """The contents of `index.json`: `rows` has vectors and places by list, `arrays` the rest."""

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


class UnknownIndexFormatError(ValueError):
    """An index has a format that this release does not know."""


def decode_manifest(text: str) -> IndexManifest:
    """Read the contents of `index.json`."""
    stored = json.loads(text)
    version = stored.get("format_version") if isinstance(stored, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise UnknownIndexFormatError(f"it has format {version}")
    return codec.convert(stored, IndexManifest)


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index that is there as a whole; `folder` is its path below the scratch root."""

    folder: str
    manifest: IndexManifest

    @property
    def age(self) -> tuple[datetime, str]:
        """What indexes of one key are sorted by, the oldest first."""
        return self.manifest.created_at, self.folder


@dataclass(frozen=True, slots=True)
class IndexStore:
    """The indexes under one scratch root, which all workers reach."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], datetime] = utc_now

    @property
    def storage(self) -> Storage:
        """The files below the root."""
        return storage_at(self.root, self.options)

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
        """Keep others from removing an index meanwhile; yields it, None where it has gone."""
        name = f"{this_process().tag}-{int(time.time())}-{secrets.token_hex(6)}"
        path = f"{kept.folder}/{_READERS}/{name}"
        with self._errors():
            manifest = self._manifest(kept.folder)
            if manifest is not None:
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

    def writing(self, key: str) -> AbstractContextManager[Draft]:
        """Make the folder of a new index; it is removed in the end unless it was published."""
        folder = f"{FOLDER}/{key}/{run_name()}"
        names = (self.root, folder, FOLDER, self.options, _UNUSABLE)
        return held_folder(self.storage, *names, self.clock)

    def publish(self, draft: Draft, manifest: IndexManifest) -> StoredIndex:
        """Make a draft the index of its key, and remove those that it takes the place of."""
        kept = self.update(StoredIndex(draft.folder, manifest), manifest)
        draft.finish()
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

    def tidy(self, key: str) -> None:
        """Remove leases of readers that have ended, and arrays that an extension has replaced.

        Arrays are listed first, then readers are looked for, and then the manifest is read: whoever
        extends the index is a reader, so that its arrays are either not listed or named.
        """
        storage = self.storage
        for generation in storage.children(f"{FOLDER}/{key}"):
            folder = f"{FOLDER}/{key}/{generation}"
            for name in abandoned(self._readers(folder)):
                storage.remove_file(f"{folder}/{_READERS}/{name}")
            storage.remove_empty(f"{folder}/{_READERS}")
            there = [name for name in storage.children(folder) if name.startswith(ARRAYS)]
            manifest = None if self.has_readers(folder) else self._manifest(folder)
            if manifest is not None:
                for name in set(there) - {manifest.arrays.name}:
                    storage.remove(f"{folder}/{name}", MARKER)
        storage.remove_empty(f"{FOLDER}/{key}")

    def _readers(self, folder: str) -> list[tuple[str, Lease]]:
        # Some object stores list the folder itself, too.
        names = self.storage.files(f"{folder}/{_READERS}")
        matches = (match for name in names if (match := _READER.fullmatch(name)) is not None)
        return [
            (match[0], Lease.of_tag(match[1], int(match[2]) if match[2] else None))
            for match in matches
        ]

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

    def _errors(self) -> AbstractContextManager[None]:
        return scratch_errors(self.root, self.options, _UNUSABLE)


_making: dict[tuple[str, str], threading.Lock] = {}


def building_index(root: str, key: str) -> threading.Lock:
    """Return the lock under which one join of this process at a time makes an index of a key."""
    return _making.setdefault((root, key), threading.Lock())
