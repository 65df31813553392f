"""Kept IVF indexes: what one was built of, what it has of a table now, how far it has drifted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from lancestat.formats import count
from lancestat.lake.files import store_options
from lancestat.lake.open import open_pinned
from lancestat.lake.snapshot import Pin, pin_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lance import LanceDataset
    from numpy.typing import NDArray

    from lancestat.joins.search.centroids import Centroids
    from lancestat.joins.search.metrics import Metric

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


@dataclass(frozen=True, slots=True)
class RightFragment:
    """A fragment of the right side that has live rows.

    `content` digests what its data files hold in the columns that an index is made of, whichever of
    its rows are deleted; `rows` are the live ones.
    """

    id: int
    content: str
    physical_rows: int
    rows: int


@dataclass(frozen=True, slots=True)
class RightContent:
    """The content of a right side that can be indexed: `key` names what an index is for.

    Indexes of one key hold the same columns of one table under one filter, for one metric. The
    content that they were made of is recorded with them, fragment by fragment.
    """

    key: str
    fragments: tuple[RightFragment, ...]


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
    with `new_rows` live rows; `rows` are in the index, of which `added_rows` came after it was
    trained, and `deleted_rows` of the index have gone.
    """

    fragments: tuple[int, ...]
    missing: tuple[int, ...]
    rows: int
    added_rows: int
    new_rows: int
    deleted_rows: int


@dataclass(frozen=True, slots=True)
class KeptIndex:
    """A kept index as the cost model sees it.

    `rows` of the right side are in its lists and `new_rows` are not. `why_again` says why it has to
    be trained again, None where it has not.
    """

    lists: int
    rows: int
    new_rows: int
    why_again: str | None = None


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

    centroids: NDArray[np.float32]
    frame: NDArray[np.float64]
    offsets: NDArray[np.int64]
    fragment_ids: NDArray[np.int64]
    excluded: NDArray[np.int64]
    deleted: NDArray[np.int64]

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
