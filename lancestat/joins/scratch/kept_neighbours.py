"""Neighbours that are kept in scratch from run to run, by which results are brought up to date.

`<root>/neighbours/<key>/<generation>/` holds what one run has written: a Lance dataset of pairs by
the addresses of their rows, another of arrays, and `neighbours.json`, the manifest, which is
written last. The record of a result names the folders that have its neighbours. Nothing else reads
them. Folders that no record names are removed by `lancestat gc`, and as the next run begins to
write. A folder has the marker of scratch,
and its heartbeat until it is finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from lancestat import codec
from lancestat.errors import StaleBase
from lancestat.joins.scratch.folder import Draft, held_folder, run_name, scratch_errors, utc_now
from lancestat.joins.search.work import FragmentState
from lancestat.lake.error_mapping import is_error_or_panic
from lancestat.lake.files import Storage, storage_at, store_options
from lancestat.lake.snapshot import Pin, pin_of
from lancestat.redact import redact_line, secret_values

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

    from lancestat.joins.search.neighbours import Ints

NEIGHBOURS = "neighbours"
NEIGHBOURS_MANIFEST = "neighbours.json"
FORMAT_VERSION = 1
PAIRS, ARRAYS = "pairs.lance", "arrays.lance"
# A piece has the address of the left row at every so many of its pairs.
STEP = 8192
_UNUSABLE = "neighbours cannot be kept in {}"


def neighbours_key(owner: str, kind: str, result: str) -> str:
    """Return the key of a result's neighbours; `owner` is how those of its state begin."""
    digest = hashlib.blake2b(result.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{neighbours_prefix(owner, kind)}{digest}"


def neighbours_prefix(owner: str, kind: str) -> str:
    """Return how the keys of one kind begin."""
    return f"{owner}{kind}-"


@dataclass(frozen=True, slots=True)
class Piece:
    """Pairs that are one fragment of the dataset, by the addresses of their left rows.

    `steps` are the left rows of every `STEP`-th pair, and `last` is that of the last one. `start`
    is the line of the result at which the new lines of the piece begin.
    """

    fragment: int
    rows: int
    steps: tuple[int, ...]
    last: int
    start: int

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Return which of its pairs, and few more, have left rows from `low` to before `high`."""
        first = max(0, sum(step < low for step in self.steps) - 1) * STEP
        stop = sum(step < high for step in self.steps) * STEP
        return (first, min(stop, self.rows)) if self.last >= low else (0, 0)


@dataclass(frozen=True, slots=True)
class PinnedVersion:
    """The version of a dataset in a folder, and its `manifest_identity`."""

    version: int
    manifest: str


@dataclass(frozen=True, slots=True)
class NeighboursManifest:
    """The contents of `neighbours.json`: the sides as they were joined, and what is kept."""

    created_at: codec.Instant
    left: tuple[FragmentState, ...]
    right: tuple[FragmentState, ...]
    pieces: tuple[Piece, ...]
    arrays: PinnedVersion
    pairs: PinnedVersion | None = None
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class KeptArrays:
    """What is kept besides pairs, each ascending.

    `removed` are lines of the result before, which the run has removed; the lines of pairs that it
    has not found itself count them. The others are addresses of deleted rows.
    """

    removed: Ints
    left_deleted: Ints
    right_deleted: Ints


@dataclass(frozen=True, slots=True)
class KeptNeighbours:
    """What one run has kept; `folder` is its path below the root. It is pickled."""

    root_uri: str
    manifest: NeighboursManifest
    storage_options: Mapping[str, str] = field(repr=False)

    def array(self, name: str) -> Ints:
        """Return one of the `KeptArrays`, without reading the others."""
        with self._errors():
            dataset = self._opened(ARRAYS, self.manifest.arrays)
            [values] = dataset.to_table(["values"], filter=f"name = '{name}'").column("values")
            array: Ints = values.values.to_numpy()
        return array

    def pairs(self, piece: Piece, start: int, stop: int) -> pa.Table:
        """Return consecutive pairs of a piece."""
        assert self.manifest.pairs is not None, "there are pieces"
        with self._errors():
            dataset = self._opened(PAIRS, self.manifest.pairs)
            fragment = dataset.get_fragment(piece.fragment)
            table = fragment.scanner(offset=start, limit=stop - start).to_table()
            if table.num_rows != stop - start:
                raise ValueError("pairs are missing")
        return table

    def _opened(self, name: str, pinned: PinnedVersion) -> lance.LanceDataset:
        # Plans read manifests alone.
        from lancestat.spark.fragment_reader import pinned_dataset

        pin = Pin(f"{self.root_uri}/{name}", pinned.version, pinned.manifest)
        return pinned_dataset(pin, self.storage_options)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not is_error_or_panic(error) or isinstance(error, MemoryError):
                raise
            reason = redact_line(str(error), secret_values(self.storage_options))
            raise StaleBase(f"the neighbours of the last result cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True)
class NeighbourStore:
    """The kept neighbours under one scratch root, which all workers reach."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], datetime] = utc_now

    @property
    def storage(self) -> Storage:
        return storage_at(self.root, self.options)

    def find(self, folders: Sequence[str]) -> list[KeptNeighbours] | None:
        """Return what folders hold, None where one of them has gone or cannot be understood."""
        storage, found = self.storage, []
        with scratch_errors(self.root, self.options, "the neighbours in {} cannot be read"):
            for folder in folders:
                text = storage.read(f"{folder}/{NEIGHBOURS_MANIFEST}")
                manifest = None if text is None else decode_manifest(text)
                if manifest is None:
                    return None
                found.append(KeptNeighbours(storage.uri(folder), manifest, self.options))
        return found

    def writing(self, key: str) -> AbstractContextManager[Draft]:
        """Make a folder; it is removed in the end unless it was finished."""
        folder = f"{NEIGHBOURS}/{key}/{run_name()}"
        names = (self.root, folder, NEIGHBOURS, self.options, _UNUSABLE)
        return held_folder(self.storage, *names, self.clock)

    def write_arrays(self, draft: Draft, arrays: KeptArrays) -> PinnedVersion:
        import lance
        import pyarrow as pa

        values = {name: getattr(arrays, name) for name in KeptArrays.__slots__}
        table = pa.table(
            {
                "name": list(values),
                "values": pa.array(values.values(), pa.large_list(pa.int64())),
            }
        )
        uri = f"{draft.uri}/{ARRAYS}"
        options = store_options(uri, self.options)
        with scratch_errors(self.root, self.options, _UNUSABLE):
            dataset = lance.write_dataset(table, uri, mode="create", storage_options=options)
        pin = pin_of(dataset, uri)
        return PinnedVersion(pin.version, pin.manifest)

    def finish(self, draft: Draft, manifest: NeighboursManifest) -> None:
        with scratch_errors(self.root, self.options, _UNUSABLE):
            self.storage.write(f"{draft.folder}/{NEIGHBOURS_MANIFEST}", codec.encode(manifest))
        draft.finish()


def decode_manifest(text: str) -> NeighboursManifest | None:
    """Return a manifest, None for one that is damaged or in a format that is not known."""
    try:
        stored = json.loads(text)
        if stored["format_version"] != FORMAT_VERSION:
            return None
        return codec.convert(stored, NeighboursManifest)
    except (ValueError, KeyError, TypeError):
        return None
