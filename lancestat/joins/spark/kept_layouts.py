"""The layouts that are kept of a join's right side: looked up, reused, extended, made."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import LancestatError
from lancestat.joins.scratch.layouts import (
    ARRAYS,
    KeptDataset,
    KeptLayout,
    LayoutManifest,
    LayoutStore,
    making_layout,
)
from lancestat.joins.search.layout import (
    Coverage,
    KeptLists,
    LaidFragment,
    LayoutRecord,
    Quality,
    RightContent,
    cover,
    kept_lists,
)
from lancestat.joins.search.layout_arrays import (
    LayoutArrays,
    data_files,
    frame_of,
    read_arrays,
    write_arrays,
)
from lancestat.joins.search.live_rows import OFFSET_BITS, LiveRows, imbalance, is_among
from lancestat.joins.search.partitions import PartitionedDataset, commit_more, layout_schema
from lancestat.joins.search.work import Rows, VectorSide
from lancestat.joins.spark.partitioned import (
    Layout,
    Partitioning,
    SlottedPlaces,
    UnmeasuredLayout,
    opened_lists,
)
from lancestat.joins.spark.row_places import RowPlaces
from lancestat.lake.open import open_pinned
from lancestat.redact import redact_line, secret_values

_log = logging.getLogger("lancestat.knn")


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """A layout that is held: what it has of the right side, and the arrays to read it with."""

    kept: KeptLayout
    arrays: LayoutArrays
    partitioned: PartitionedDataset
    coverage: Coverage

    @property
    def record(self) -> LayoutRecord:
        """What the layout was made of."""
        return self.kept.manifest.record

    @property
    def lists(self) -> KeptLists:
        """The layout as the cost model sees it."""
        return kept_lists(self.record, self.coverage)


@dataclass(slots=True)
class LayoutKeeper:
    """The layouts of the right side of one join, which holds those that it reads until it ends.

    Args:
        node: The join, for the log.
        store: Where layouts are kept.
        content: What the right side holds.
        side: Its rows.
        dimension: The length of its vectors.
        stack: Closed when the join ends.
        is_fresh: Whether layouts of other runs are left aside.
    """

    node: str
    store: LayoutStore
    content: RightContent
    side: VectorSide
    dimension: int
    stack: ExitStack
    is_fresh: bool = False
    found: FoundLayout | None = None
    _holding: ExitStack = field(default_factory=ExitStack, repr=False)
    _places: RowPlaces | None = field(default=None, repr=False)

    def look(self) -> KeptLists | None:
        """Look for a layout, and hold it; None where there is none that can be used."""
        self.found = None if self.is_fresh else self._find()
        return None if self.found is None else self.found.lists

    def reuse(self, partitioning: Partitioning) -> Layout | UnmeasuredLayout | None:
        """Return the layout that was found, which this join measures; None where it has gone.

        Raises:
            PartitionsLost: it cannot be read.
        """
        found = self.found
        return None if found is None else self._taken(found, partitioning)

    def extend(self, partitioning: Partitioning) -> Layout | UnmeasuredLayout | None:
        """Put the rows that the layout lacks into its lists, and return it as `reuse` does."""
        with making_layout(self.store.root, self.content.key):
            # Another join of this process may have done it meanwhile.
            self.look()
            if self.found is not None and self.found.coverage.missing:
                self.found = self._extended(self.found, partitioning)
        return self.reuse(partitioning)

    def lay_out(self, partitioning: Partitioning, lists: int) -> Layout | UnmeasuredLayout | None:
        """Make a new layout, and keep it; None where no right row can match.

        The layout that another join of this process has just made is taken instead.
        """
        with making_layout(self.store.root, self.content.key):
            before = self.found
            after = None if self.is_fresh else self._find()
            if after is not None and _is_newer(after, before) and _is_complete(after):
                _log.info("'%s' uses the layout that another join has made", self.node)
                self.found = after
            else:
                return self._made(partitioning, lists)
        return self.reuse(partitioning)

    def withdraw(self) -> None:
        """Take away the layout that was found, which cannot be read."""
        if self.found is not None:
            self.store.remove(self.found.kept.folder)

    def _find(self) -> FoundLayout | None:
        kept = self.store.find(self.content.key)
        if kept is None:
            return None
        with ExitStack() as holding:
            held = holding.enter_context(self.store.held(kept))
            if held is None:
                return None
            try:
                found = self._opened(held)
            except (LancestatError, ValueError) as error:
                reason = error.message if isinstance(error, LancestatError) else str(error)
                _log.warning(
                    "'%s': the kept layout is damaged, and is not used: %s",
                    self.node,
                    redact_line(reason, secret_values(self.store.options)),
                )
                return None
            self._hold(holding.pop_all())
            return found

    def _hold(self, holding: ExitStack) -> None:
        """Hold another layout in place of the one that was found before."""
        self._holding.close()
        self._holding = holding
        self.stack.callback(holding.close)

    def _opened(self, kept: KeptLayout) -> FoundLayout:
        """Open a layout.

        Raises:
            LancestatError: a dataset cannot be opened.
            ValueError: it is not what its manifest says.
        """
        damage, manifest, store = self.store.damage(kept), kept.manifest, self.store
        if damage is not None:
            raise ValueError(damage)
        arrays = read_arrays(
            store.pin(kept, manifest.arrays), manifest.arrays_digest, store.options
        )
        partitioned = PartitionedDataset(
            store.pin(kept, manifest.rows),
            tuple(arrays.fragment_ids.tolist()),
            arrays.offsets,
            store.options,
        )
        dataset = open_pinned(partitioned.pin, storage_options=store.options)
        if dataset.schema != layout_schema(self.dimension):
            raise ValueError("its rows have another schema")
        rows = {part.fragment_id: part.metadata.num_rows for part in dataset.get_fragments()}
        held = [rows.get(id) for id in partitioned.fragment_ids]
        if held != arrays.offsets[:, -1].tolist():
            raise ValueError("its fragments have other rows")
        record = manifest.record
        coverage = cover(record, self.content)
        distrusted = self._restored(arrays.deleted, coverage)
        if distrusted:
            coverage = cover(record, self.content, distrusted)
        return FoundLayout(kept, arrays, partitioned, coverage)

    def _restored(self, deleted: NDArray[np.int64], coverage: Coverage) -> frozenset[int]:
        """Return the slots some of whose rows were deleted when they were laid out, and are not."""
        restored, slots = set(), deleted >> OFFSET_BITS
        for slot in np.unique(slots).tolist():
            number = coverage.fragments[slot]
            if number < 0:
                continue
            then = deleted[slots == slot] & ((1 << OFFSET_BITS) - 1)
            now = self.places.deleted.get(number, np.empty(0, np.uint32))
            if not is_among(then, now).all():
                restored.add(slot)
        return frozenset(restored)

    @property
    def places(self) -> RowPlaces:
        """The places of the rows of the right side."""
        if self._places is None:
            self._places = RowPlaces.of(self.side, self.content)
        return self._places

    def _taken(self, found: FoundLayout, partitioning: Partitioning) -> Layout | UnmeasuredLayout:
        live = LiveRows.of(found.coverage.fragments, self.places.deleted)
        excluded = int((live.keys(found.arrays.excluded) >= 0).sum())
        partitioned = replace(found.partitioned, live=live)
        request = partitioning.request
        centroids = found.arrays.centroids_of(request.metric)
        layout = partitioning.unmeasured(partitioned, centroids, excluded, self.places)

        def measure(known_nprobes: int | None) -> Layout:
            measured = partitioning.measured(layout, known_nprobes)
            if measured.recall is not None:
                self.store.remember(found.kept, request.k, request.recall, measured.nprobes)
            return measured

        known = request.nprobes or found.kept.manifest.nprobes(request.k, request.recall)
        if known is None:
            return measure(None)
        nprobes, sample = min(known, len(centroids)), partitioning.measuring_rows()
        if not len(sample):
            return measure(nprobes)
        return UnmeasuredLayout(replace(layout, nprobes=nprobes), sample, measure)

    def _extended(self, found: FoundLayout, partitioning: Partitioning) -> FoundLayout:
        record, arrays, missing = found.record, found.arrays, found.coverage.missing
        slots = self._slots(missing, len(record.sources))
        written = partitioning.write(
            found.partitioned.pin.uri,
            arrays.centroids_of(partitioning.request.metric),
            np.empty((0, self.dimension), np.float32),
            self._runs(missing),
            SlottedPlaces(self.places, slots),
            appends=True,
        )
        partitioned = commit_more(found.partitioned, written.parts)
        more = replace(
            arrays,
            offsets=partitioned.offsets,
            fragment_ids=np.array(partitioned.fragment_ids, np.int64),
            excluded=np.concatenate([arrays.excluded, written.excluded]),
            deleted=np.concatenate([arrays.deleted, self._deleted(missing, slots)]),
        )
        laid = (self.content.fragments[number] for number in missing)
        now = Quality(
            record.now.rows + written.rows,
            record.now.error + written.error,
            imbalance(partitioned.list_rows),
        )
        grown = replace(
            record,
            sources=(*record.sources, *(LaidFragment(part.content, part.rows) for part in laid)),
            now=now,
            pieces=len(partitioned.fragment_ids),
        )
        kept = found.kept
        manifest = self._manifest(self.store.storage.uri(kept.folder), partitioned, more, grown)
        # It is as old as its centroids.
        before = kept.manifest
        manifest = replace(manifest, created_at=before.created_at, chosen=before.chosen)
        kept = self.store.update(kept, manifest)
        return FoundLayout(kept, more, partitioned, cover(grown, self.content))

    def _made(self, partitioning: Partitioning, lists: int) -> Layout | None:
        everything = range(len(self.content.fragments))
        slots = self._slots(everything, 0)
        with self.store.writing(self.content.key) as draft:
            places = SlottedPlaces(self.places, slots)
            laid = partitioning.lay_out(draft.place("rows"), lists, places)
            if laid is None:
                return None
            layout, partitioned = laid.layout, laid.layout.partitioned
            quality = Quality(
                laid.written.rows, laid.written.error, imbalance(partitioned.list_rows)
            )
            sources = tuple(
                LaidFragment(part.content, part.rows) for part in self.content.fragments
            )
            pieces = len(partitioned.fragment_ids)
            record = LayoutRecord(
                self.dimension,
                len(layout.centroids),
                sources,
                len(sources),
                quality,
                quality,
                pieces,
                pieces,
            )
            arrays = LayoutArrays(
                layout.centroids.values,
                frame_of(layout.centroids),
                partitioned.offsets,
                np.array(partitioned.fragment_ids, np.int64),
                laid.written.excluded,
                self._deleted(everything, slots),
            )
            manifest = self._manifest(draft.uri, partitioned, arrays, record)
            if layout.recall is not None:
                request = partitioning.request
                manifest = manifest.with_nprobes(request.k, request.recall, layout.nprobes)
            self.found = None
            with ExitStack() as holding:
                # What it takes the place of is not read any more.
                self._holding.close()
                holding.enter_context(self.store.held(self.store.publish(draft, manifest)))
                self._hold(holding.pop_all())
        return layout

    def _manifest(
        self,
        folder_uri: str,
        partitioned: PartitionedDataset,
        arrays: LayoutArrays,
        record: LayoutRecord,
    ) -> LayoutManifest:
        uri = f"{folder_uri}/{ARRAYS}{secrets.token_hex(6)}.lance"
        written = write_arrays(arrays, uri, self.store.options)
        files = data_files(opened_lists(partitioned), frozenset(partitioned.fragment_ids))
        return LayoutManifest(
            self.store.clock(),
            record,
            KeptDataset.of(partitioned.pin, files),
            KeptDataset.of(written.pin, written.files),
            written.digest,
        )

    def _slots(self, numbers: Sequence[int], first: int) -> NDArray[np.int64]:
        slots = np.full(len(self.content.fragments), -1, np.int64)
        slots[list(numbers)] = first + np.arange(len(numbers))
        return slots

    def _runs(self, numbers: Sequence[int]) -> list[Rows]:
        """Return the rows of fragments, in runs of consecutive ones."""
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
        """Return the places of deleted rows of fragments."""
        places = [np.empty(0, np.int64)]
        for number in numbers:
            if number in self.places.deleted:
                offsets = self.places.deleted[number].astype(np.int64)
                places.append(slots[number] << OFFSET_BITS | offsets)
        return np.concatenate(places)


def _is_newer(after: FoundLayout, before: FoundLayout | None) -> bool:
    return before is None or after.kept.folder != before.kept.folder


def _is_complete(found: FoundLayout) -> bool:
    return not found.coverage.missing and found.lists.why_anew is None
