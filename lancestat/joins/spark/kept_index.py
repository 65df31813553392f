"""The IVF indexes that are kept of a join's right side: looked up, reused, extended, built."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import LancestatError
from lancestat.joins.scratch.kept_indexes import (
    ARRAYS,
    Coverage,
    IndexArrays,
    IndexedFragment,
    IndexManifest,
    IndexRecord,
    IndexStore,
    KeptDataset,
    Quality,
    StoredIndex,
    building_index,
    data_files,
)
from lancestat.joins.search.cost_model import KeptIndex
from lancestat.joins.search.ivf import (
    OFFSET_BITS,
    OFFSET_MASK,
    IvfLists,
    LiveRows,
    WrittenLists,
    commit_more,
    imbalance,
    is_among,
    lists_schema,
)
from lancestat.joins.search.work import RightContent, Rows, VectorSide
from lancestat.joins.spark.ivf import IvfIndex, IvfWriter, RowPlaces
from lancestat.lake.open import open_pinned
from lancestat.redact import redact_line, secret_values

_log = logging.getLogger("lancestat.knn")


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """An index that is held: what it has of the right side, and the arrays to read it with."""

    stored: StoredIndex
    arrays: IndexArrays
    lists: IvfLists
    coverage: Coverage

    @property
    def record(self) -> IndexRecord:
        return self.stored.manifest.record

    @property
    def kept(self) -> KeptIndex:
        return self.record.kept(self.coverage)


@dataclass(slots=True)
class IndexKeeper:
    """The indexes of the right side of one join, which holds those that it reads until it ends.

    Args:
        node: The join, for the log.
        store: Where indexes are kept.
        content: What the right side holds.
        side: Its rows.
        dimension: The length of its vectors.
        stack: Closed when the join ends.
        is_fresh: Whether indexes of other runs are left aside.
    """

    node: str
    store: IndexStore
    content: RightContent
    side: VectorSide
    dimension: int
    stack: ExitStack
    is_fresh: bool = False
    found: FoundIndex | None = None
    _holding: ExitStack = field(default_factory=ExitStack, repr=False)
    _places: RowPlaces | None = field(default=None, repr=False)

    def look(self) -> KeptIndex | None:
        """Look for an index, and hold it; None where there is none that can be used."""
        self.found = None if self.is_fresh else self._find()
        return None if self.found is None else self.found.kept

    def reuse(self, writer: IvfWriter) -> IvfIndex | None:
        """Return the index that was found, which this join measures; None where it has gone."""
        found = self.found
        return None if found is None else self._taken(found, writer)

    def extend(self, writer: IvfWriter) -> IvfIndex | None:
        """Put the rows that the index lacks into its lists, and return it as `reuse` does."""
        with building_index(self.store.root, self.content.key):
            # Another join of this process may have done it meanwhile.
            self.look()
            if self.found is not None and self.found.coverage.missing:
                self.found = self._extended(self.found, writer)
        return self.reuse(writer)

    def build(self, writer: IvfWriter, nlist: int) -> IvfIndex | None:
        """Build a new index, and keep it; None where no right row can match.

        The index that another join of this process has just built is taken instead.
        """
        with building_index(self.store.root, self.content.key):
            before = self.found
            after = None if self.is_fresh else self._find()
            is_newer = after is not None and (
                before is None or after.stored.folder != before.stored.folder
            )
            if after is None or not is_newer or after.coverage.missing or after.kept.why_again:
                return self._built(writer, nlist)
            _log.info("'%s' uses the index that another join has built", self.node)
            self.found = after
        return self.reuse(writer)

    def withdraw(self) -> None:
        """Take away the index that was found, which cannot be read."""
        if self.found is not None:
            self.store.remove(self.found.stored.folder)

    def _find(self) -> FoundIndex | None:
        stored = self.store.find(self.content.key)
        if stored is None:
            return None
        with ExitStack() as holding:
            held = holding.enter_context(self.store.held(stored))
            if held is None:
                return None
            try:
                found = self._opened(held)
            except (LancestatError, ValueError) as error:
                reason = error.message if isinstance(error, LancestatError) else str(error)
                _log.warning(
                    "'%s': the kept index is damaged, and is not used: %s",
                    self.node,
                    redact_line(reason, secret_values(self.store.options)),
                )
                return None
            self._hold(holding.pop_all())
            return found

    def _hold(self, holding: ExitStack) -> None:
        """Hold another index in place of the one that was found before."""
        self._holding.close()
        self._holding = holding
        self.stack.callback(holding.close)

    def _opened(self, stored: StoredIndex) -> FoundIndex:
        """Open an index."""
        damage, manifest, store = self.store.damage(stored), stored.manifest, self.store
        if damage is not None:
            raise ValueError(damage)
        pin = store.pin(stored, manifest.arrays)
        arrays = IndexArrays.read(pin, manifest.arrays_digest, store.options)
        ids = tuple(arrays.fragment_ids.tolist())
        lists = IvfLists(store.pin(stored, manifest.rows), ids, arrays.offsets, store.options)
        dataset = open_pinned(lists.pin, storage_options=store.options)
        if dataset.schema != lists_schema(self.dimension):
            raise ValueError("its rows have another schema")
        rows = {part.fragment_id: part.metadata.num_rows for part in dataset.get_fragments()}
        if [rows.get(id) for id in ids] != arrays.offsets[:, -1].tolist():
            raise ValueError("its fragments have other rows")
        coverage = manifest.record.cover(self.content)
        distrusted = self._restored(arrays.deleted, coverage)
        if distrusted:
            coverage = manifest.record.cover(self.content, distrusted)
        return FoundIndex(stored, arrays, lists, coverage)

    def _restored(self, deleted: NDArray[np.int64], coverage: Coverage) -> frozenset[int]:
        """Return the slots with rows that were deleted when they were indexed, and are not now."""
        restored, slots = set(), deleted >> OFFSET_BITS
        for slot in np.unique(slots).tolist():
            number = coverage.fragments[slot]
            then = deleted[slots == slot] & OFFSET_MASK
            now = self.places.deleted.get(number, np.empty(0, np.uint32))
            if number >= 0 and not is_among(then, now).all():
                restored.add(slot)
        return frozenset(restored)

    @property
    def places(self) -> RowPlaces:
        if self._places is None:
            self._places = RowPlaces.of(self.side, self.content)
        return self._places

    def _taken(self, found: FoundIndex, writer: IvfWriter) -> IvfIndex:
        live = LiveRows.of(found.coverage.fragments, self.places.deleted)
        excluded = int((live.keys(found.arrays.excluded) >= 0).sum())
        request, centroids = writer.request, found.arrays.centroids_of(writer.request.metric)
        index = writer.unmeasured(replace(found.lists, live=live), centroids, excluded, self.places)

        def measure(known_nprobes: int | None) -> IvfIndex:
            measured = writer.measured(index, known_nprobes)
            if measured.recall is not None:
                self.store.remember(found.stored, request.k, request.recall, measured.nprobes)
            return measured

        known = request.nprobes or found.stored.manifest.nprobes(request.k, request.recall)
        if known is None:
            return measure(None)
        nprobes, sample = min(known, len(centroids)), writer.measuring_rows()
        if not len(sample):
            return measure(nprobes)
        return replace(index, nprobes=nprobes, sample=sample, measure=measure)

    def _extended(self, found: FoundIndex, writer: IvfWriter) -> FoundIndex:
        record, arrays, missing = found.record, found.arrays, found.coverage.missing
        slots = self._slots(missing, len(record.sources))
        written, excluded = writer.write(
            found.lists.pin.uri,
            arrays.centroids_of(writer.request.metric),
            np.empty((0, self.dimension), np.float32),
            self._runs(missing),
            partial(self.places.places, slots),
            appends=True,
        )
        lists = commit_more(found.lists, written)
        arrays = replace(
            arrays,
            offsets=lists.offsets,
            fragment_ids=np.array(lists.fragment_ids, np.int64),
            excluded=np.concatenate([arrays.excluded, excluded]),
            deleted=np.concatenate([arrays.deleted, self._deleted(missing, slots)]),
        )
        grown = replace(
            record,
            sources=(*record.sources, *self._sources(missing)),
            now=_quality(written, lists, record.now),
            pieces=len(lists.fragment_ids),
        )
        before = found.stored.manifest
        uri = self.store.storage.uri(found.stored.folder)
        # It is as old as its centroids.
        manifest = replace(
            self._manifest(uri, lists, arrays, grown),
            created_at=before.created_at,
            chosen=before.chosen,
        )
        stored = self.store.update(found.stored, manifest)
        return FoundIndex(stored, arrays, lists, grown.cover(self.content))

    def _built(self, writer: IvfWriter, nlist: int) -> IvfIndex | None:
        everything = range(len(self.content.fragments))
        slots = self._slots(everything, 0)
        with self.store.writing(self.content.key) as draft:
            places = partial(self.places.places, slots)
            built = writer.build(draft.place("rows"), nlist, places)
            if built is None:
                return None
            index, written, excluded = built
            lists, centroids = index.lists, index.centroids
            quality, count = _quality(written, lists), len(lists.fragment_ids)
            record = IndexRecord(
                self.dimension,
                len(centroids),
                self._sources(everything),
                len(everything),
                quality,
                quality,
                count,
                count,
            )
            arrays = IndexArrays(
                centroids.values,
                np.array([centroids.scale, centroids.length]),
                lists.offsets,
                np.array(lists.fragment_ids, np.int64),
                excluded,
                self._deleted(everything, slots),
            )
            manifest = self._manifest(draft.uri, lists, arrays, record)
            if index.recall is not None:
                request = writer.request
                manifest = manifest.with_nprobes(request.k, request.recall, index.nprobes)
            self.found = None
            with ExitStack() as holding:
                # What it takes the place of is not read any more.
                self._holding.close()
                holding.enter_context(self.store.held(self.store.publish(draft, manifest)))
                self._hold(holding.pop_all())
        return replace(index, places=self.places)

    def _manifest(
        self, folder_uri: str, lists: IvfLists, arrays: IndexArrays, record: IndexRecord
    ) -> IndexManifest:
        uri = f"{folder_uri}/{ARRAYS}{secrets.token_hex(6)}.lance"
        pin, files, digest = arrays.write(uri, self.store.options)
        return IndexManifest(
            self.store.clock(),
            record,
            KeptDataset.of(lists.pin, data_files(lists.open(), frozenset(lists.fragment_ids))),
            KeptDataset.of(pin, files),
            digest,
        )

    def _sources(self, numbers: Sequence[int]) -> tuple[IndexedFragment, ...]:
        parts = (self.content.fragments[number] for number in numbers)
        return tuple(IndexedFragment(part.content, part.rows) for part in parts)

    def _slots(self, numbers: Sequence[int], first: int) -> NDArray[np.int64]:
        slots = np.full(len(self.content.fragments), -1, np.int64)
        slots[list(numbers)] = first + np.arange(len(numbers))
        return slots

    def _runs(self, numbers: Sequence[int]) -> list[Rows]:
        ids = {self.content.fragments[number].id for number in numbers}
        runs: list[Rows] = []
        for part in self.side.fragments:
            if part.id not in ids:
                continue
            rows = Rows(part.start, part.start + part.rows)
            if runs and runs[-1].stop == rows.start:
                rows = Rows(runs.pop().start, rows.stop)
            runs.append(rows)
        return runs

    def _deleted(self, numbers: Sequence[int], slots: NDArray[np.int64]) -> NDArray[np.int64]:
        places = [np.empty(0, np.int64)]
        for number in numbers:
            if number in self.places.deleted:
                offsets = self.places.deleted[number].astype(np.int64)
                places.append(slots[number] << OFFSET_BITS | offsets)
        return np.concatenate(places)


def _quality(
    written: Sequence[WrittenLists], lists: IvfLists, before: Quality | None = None
) -> Quality:
    """Return the quality of all lists once more rows were written to them."""
    rows, error = (0, 0.0) if before is None else (before.rows, before.error)
    rows += sum(int(part.offsets[:, -1].sum()) for part in written)
    return Quality(rows, error + sum(part.error for part in written), imbalance(lists.list_rows))
