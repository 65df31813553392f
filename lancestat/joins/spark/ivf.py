"""The IVF strategy: lists of the right side, their search, and the indexes that are kept of it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lancestat.errors import LancestatError
from lancestat.joins.scratch.folder import require_visible
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
from lancestat.joins.search.centroids import Centroids, choose_nprobes, recall_curve, train
from lancestat.joins.search.cost_model import TRAIN_ROWS, KeptIndex, sample_rows
from lancestat.joins.search.ivf import (
    OFFSET_BITS,
    OFFSET_MASK,
    IvfLists,
    LiveRows,
    commit,
    commit_more,
    imbalance,
    is_among,
    lists_schema,
    sample_lists,
    search_lists,
    write_lists,
)
from lancestat.joins.search.neighbours import share_found
from lancestat.joins.search.scratch_tables import SampledLists, WrittenBins
from lancestat.joins.search.work import FragmentRows, JoinRequest, RightContent, Rows, VectorSide
from lancestat.joins.spark.cells import CellResult, ChunkCell, ChunkSearch, LeftRows, cut
from lancestat.joins.spark.job import run_each
from lancestat.joins.spark.kept_pairs import deleted_rows
from lancestat.joins.spark.reader import VectorReader, by_number, matches
from lancestat.lake.open import open_pinned
from lancestat.redact import redact_line, secret_values
from lancestat.spark.jobs import Jobs

# Bytes of right vectors that a task writes at a time: longer lists in a file mean fewer, longer
# reads.
WRITE_BYTES = 128 << 20
# Rows by which the search judges how accurate its GEMM is.
_LIKE_ROWS = 2048
# Rows to train on are taken so many in a row: by single rows it takes twenty times as long.
_TRAIN_TOGETHER = 8
# Sampled left rows that choose how many lists to visit, and those that measure the recall: every
# other one, since the sample is in row order, which may not be random.
_CHOOSING, _MEASURING = slice(None, None, 2), slice(1, None, 2)

# With fewer pairs within the distance a sample tells little: then all of its neighbours count.
_LEAST_PAIRS = 64

Places = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Converts positions of rows to their keys (`LiveRows`), and back.

    `ids` are those of the fragments with live rows, by number; `deleted` has the ascending offsets
    of deleted rows, of fragments that have some.
    """

    side: VectorSide
    ids: tuple[int, ...]
    deleted: dict[int, NDArray[np.uint32]] = field(repr=False)

    @classmethod
    def of(cls, side: VectorSide, content: RightContent) -> RowPlaces:
        deleted = {
            number: (deleted_rows(side, fragment.id) & OFFSET_MASK).astype(np.uint32)
            for number, fragment in enumerate(content.fragments)
            if fragment.rows < fragment.physical_rows
        }
        return cls(side, tuple(fragment.id for fragment in content.fragments), deleted)

    def places(self, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows at ascending positions, by the slot of each fragment."""
        keys = self.keys(positions)
        places: NDArray[np.int64] = slots[keys >> OFFSET_BITS] << OFFSET_BITS
        return places | (keys & OFFSET_MASK)

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._numbers
        keys = np.empty(len(positions), np.int64)
        for part, here in self._parts(positions):
            number, inside = numbers[part.id], positions[here] - part.start
            if self.side.selection is not None:
                offsets = matches(self.side, self.side.selection, part.id)[0][inside]
            elif number in self.deleted:
                deleted = self.deleted[number].astype(np.int64)
                before = np.searchsorted(deleted - np.arange(len(deleted)), inside, side="right")
                offsets = inside + before
            else:
                offsets = inside
            keys[here] = np.int64(number << OFFSET_BITS) | offsets
        return keys

    def positions(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of rows by their keys; a key of -1 has none, which is -1."""
        if not keys.size:
            return keys
        flat = keys.ravel()
        numbers, offsets = flat >> OFFSET_BITS, flat & OFFSET_MASK
        positions = np.full(len(flat), -1, np.int64)
        ids = self._numbers
        parts = {ids[part.id]: part for part in self.side.fragments}
        for number, here in by_number(numbers):
            part, inside = parts[number], offsets[here]
            if self.side.selection is not None:
                offsets_here, _ = matches(self.side, self.side.selection, part.id)
                inside = np.searchsorted(offsets_here, inside)
            elif number in self.deleted:
                inside = inside - np.searchsorted(self.deleted[number], inside)
            positions[here] = part.start + inside
        return positions.reshape(keys.shape)

    def _parts(self, positions: NDArray[np.int64]) -> list[tuple[FragmentRows, slice]]:
        if not len(positions):
            return []
        starts = np.array([part.start for part in self.side.fragments], np.int64)
        first, last = np.searchsorted(starts, positions[[0, -1]], side="right") - 1
        edges = np.searchsorted(positions, starts[first : last + 1])
        stops = [*edges[1:].tolist(), len(positions)]
        parts = self.side.fragments[first : last + 1]
        return [
            (part, slice(start, stop))
            for part, start, stop in zip(parts, edges.tolist(), stops, strict=True)
            if stop > start
        ]

    @property
    def _numbers(self) -> dict[int, int]:
        return {id: number for number, id in enumerate(self.ids)}


@dataclass(frozen=True, slots=True)
class IvfIndex:
    """The right side by list, and the number of lists that a left row visits.

    `recall` is measured on a sample of left rows that did not choose `nprobes`, None where there
    are none. `excluded` right rows cannot match. `rows` are the numbers of live rows in the lists.
    With `places` the search knows rows by their keys. Where only the recall is not known yet, left
    rows in `sample` (rows, dim) can measure it on the way, and `measure` by a pass of its own,
    which takes the number of lists where that is known to reach the recall.
    """

    lists: IvfLists
    centroids: Centroids
    rows: NDArray[np.int64]
    nprobes: int
    recall: float | None
    excluded: int
    like: NDArray[np.float32]
    places: RowPlaces | None = None
    sample: NDArray[np.float32] | None = None
    measure: Callable[[int | None], IvfIndex] | None = None

    def visits(self, queries: NDArray[np.float32], nprobes: int, k: int) -> NDArray[np.int32]:
        # Of lists that are equally near, the first of all are not always those that are visited.
        return self.centroids.visited_lists(queries, nprobes, k, self.rows)


@dataclass(frozen=True, slots=True)
class IvfCells(ChunkSearch):
    """Searches the lists that left rows visit, and in the first chunk for the sample's rows too."""

    index: IvfIndex = field(kw_only=True)
    parts: tuple[range, ...] = field(kw_only=True)

    def nearest(self, cell: ChunkCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        index, sample = self.index, None
        if index.sample is not None and cell.chunk == 0:
            sample = index.sample, index.visits(index.sample, index.nprobes, k)
        neighbours, pairs, sampled = search_lists(
            index.lists,
            rows.vectors,
            index.visits(rows.vectors, index.nprobes, k),
            self.parts[cell.part],
            k,
            self.request.metric,
            limit=self.request.limit,
            like=index.like,
            sample=sample,
        )
        if index.places is not None:
            positions = index.places.positions(neighbours.positions)
            neighbours = replace(neighbours, positions=positions)
        # Every chunk counts them once.
        excluded = index.excluded if cell.part == 0 else 0
        return CellResult(rows.positions, neighbours, excluded, pairs, sampled)


@dataclass(frozen=True, slots=True)
class IvfWriter:
    """Writes the right side in lists, and measures the recall; its tasks travel to workers."""

    jobs: Jobs
    left: VectorReader
    right: VectorReader
    request: JoinRequest
    threads: int

    def build(
        self, uri: str, nlist: int, places: Places | None = None
    ) -> tuple[IvfIndex, list[WrittenBins], NDArray[np.int64]] | None:
        """Write the right side to scratch by list, and measure the recall on the way.

        The pass that writes holds every right row in memory once, and finds the true neighbours of
        some left rows among them. Half of these choose how many lists to visit, the others measure
        the recall. `places` are of rows of an index that is kept; else their positions are written.

        Returns:
            The index, what was written for it, and the places of the rows that cannot match; None
            when no right row was found that can.
        """
        rows = self.right.sample(nlist * TRAIN_ROWS, _TRAIN_TOGETHER)
        if not len(rows):
            return None
        centroids = train(rows, nlist, self.request.metric)
        queries = self.left.sample(sample_rows(self.request))
        written, excluded = self.write(uri, centroids, queries, [self.right.side.all_rows], places)
        lists = commit(written, uri, self.right.dimension, self.right.side.storage_options)
        like = rows[:_LIKE_ROWS]
        index = IvfIndex(lists, centroids, lists.list_rows, 1, None, len(excluded), like)
        parts = [part.sampled for part in written if part.sampled is not None]
        sampled = SampledLists.merged(parts, self.request.k)
        return self._measured(index, queries, sampled), written, excluded

    def write(
        self,
        uri: str,
        centroids: Centroids,
        queries: NDArray[np.float32],
        runs: Sequence[Rows],
        places: Places | None,
        *,
        appends: bool = False,
    ) -> tuple[list[WrittenBins], NDArray[np.int64]]:
        """Write runs of right rows by list, without a commit; arguments are as for `build`.

        With `appends` the dataset at the URI is there already.
        """
        right, k, options = self.right, self.request.k, self.right.side.storage_options

        def write(rows: Rows) -> tuple[WrittenBins, NDArray[np.int64]]:
            require_visible(uri)
            excluded = [np.empty(0, np.int64)]

            def placed() -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
                for block in right.blocks(rows, WRITE_BYTES):
                    without = block.excluded_positions
                    excluded.append(without if places is None else places(without))
                    usable = block.positions
                    yield usable if places is None else places(usable), block.rows

            part = write_lists(placed(), centroids, queries, k, uri, options, appends=appends)
            return part, np.concatenate(excluded)

        cores = self.jobs.cores
        blocks = -(-4 * right.dimension * sum(map(len, runs)) // WRITE_BYTES)
        parts: list[Rows] = []
        for rows in runs:
            share = -(-4 * right.dimension * len(rows) // WRITE_BYTES)
            count = -(-blocks // cores) * cores if len(runs) == 1 else share
            parts += cut(rows, max(1, min(len(rows), count)))
        doing = "writing the IVF lists of the right side"
        done = run_each(self.jobs, write, parts, options, doing, self.threads)
        excluded = [places for _, places in done]
        return [part for part, _ in done], np.concatenate([np.empty(0, np.int64), *excluded])

    def measured(self, index: IvfIndex, known_nprobes: int | None) -> IvfIndex:
        """Return the index measured on a sample of left rows, by a pass over its lists.

        Where it is declared or known how many lists to visit, only the rows that measure the recall
        are sampled, unless that turns out not to reach the recall.
        """
        queries = self.left.sample(sample_rows(self.request))
        nprobes, measuring = self.request.nprobes or known_nprobes, queries[_MEASURING]
        if nprobes is not None and len(measuring):
            nprobes = min(nprobes, len(index.centroids))
            lists = self._true_lists(self._sampled(index, measuring))
            recall = self._recall(index, measuring, lists, nprobes)
            if self.request.reached_by(recall):
                return replace(index, nprobes=nprobes, recall=recall)
        return self._measured(index, queries, self._sampled(index, queries))

    def _sampled(self, index: IvfIndex, queries: NDArray[np.float32]) -> SampledLists:
        k, metric = self.request.k, self.request.metric
        lists, like = index.lists, index.like

        def sample(among: range) -> SampledLists:
            return sample_lists(lists, among, queries, k, metric, like)

        shares, options = split_lists(lists.list_rows, self.jobs.cores), lists.storage_options
        done = run_each(self.jobs, sample, shares, options, "sampling the recall", self.threads)
        return SampledLists.merged(done, k)

    def _measured(
        self, index: IvfIndex, queries: NDArray[np.float32], sampled: SampledLists
    ) -> IvfIndex:
        declared = self.request.nprobes
        if not len(queries):
            return replace(index, nprobes=declared or 1)
        lists, centroids = self._true_lists(sampled), index.centroids
        order = centroids.nearest_lists(queries[_CHOOSING], len(centroids))
        _, lower = recall_curve(order, lists[_CHOOSING])
        nprobes = declared or choose_nprobes(lower, self.request.recall or 1.0)
        nprobes = min(nprobes, len(centroids))
        measuring = _MEASURING if len(queries) > 1 else slice(None)
        recall = self._recall(index, queries[measuring], lists[measuring], nprobes)
        return replace(index, nprobes=nprobes, recall=recall)

    def _true_lists(self, sampled: SampledLists) -> NDArray[np.int64]:
        """Return the lists of the sample's neighbours, without each row as that of itself.

        Of all pairs within a distance these are the ones that count, if the sample has enough.
        """
        lists, distances = sampled.lists(), sampled.nearest.distances
        if self.request.self_pairs is not None:
            lists, distances = lists[:, 1:], distances[:, 1:]
        if not self.request.is_radius:
            return lists
        near = np.where(distances <= self.request.limit, lists, -1)
        return near if np.count_nonzero(near >= 0) >= _LEAST_PAIRS else lists

    def _recall(
        self,
        index: IvfIndex,
        queries: NDArray[np.float32],
        lists: NDArray[np.int64],
        nprobes: int,
    ) -> float:
        share = share_found(lists, index.visits(queries, nprobes, self.request.k))
        return 1.0 if share is None else share


def split_lists(rows: NDArray[np.int64], parts: int) -> tuple[range, ...]:
    """Split lists into parts of consecutive lists with about as many rows each."""
    ends = np.cumsum(rows)
    shares = [ends[-1] * number / parts for number in range(1, parts)]
    edges = [0, *np.searchsorted(ends, shares).tolist(), len(rows)]
    return tuple(range(start, stop) for start, stop in pairwise(edges))


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

    `node` is the join, for the log; `content` what the right side holds, whose rows `side` has.
    `stack` is closed when the join ends. With `is_fresh` indexes of other runs are left aside.
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

    def use(self, writer: IvfWriter) -> IvfIndex | None:
        """Return the index that was found, with the rows that it lacks; None where it has gone.

        This join measures its recall.
        """
        if self.found is not None and self.found.coverage.missing:
            with building_index(self.store.root, self.content.key):
                # Another join of this process may have put them in meanwhile.
                self.look()
                if self.found is not None and self.found.coverage.missing:
                    self.found = self._extended(self.found, writer)
        return None if self.found is None else self._taken(self.found, writer)

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
        return self.use(writer)

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
        self._holding.close()
        self._holding = holding
        self.stack.callback(holding.close)

    def _opened(self, stored: StoredIndex) -> FoundIndex:
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
        """Return an index whose recall is not measured yet, as far as it is not known."""
        live = LiveRows.of(found.coverage.fragments, self.places.deleted)
        excluded = int((live.keys(found.arrays.excluded) >= 0).sum())
        request, centroids = writer.request, found.arrays.centroids_of(writer.request.metric)
        like = writer.right.sample(_LIKE_ROWS, _TRAIN_TOGETHER)
        lists, every = replace(found.lists, live=live), len(centroids)
        rows = lists.live_list_rows()
        index = IvfIndex(lists, centroids, rows, every, None, excluded, like, self.places)

        def measure(known_nprobes: int | None) -> IvfIndex:
            measured = writer.measured(index, known_nprobes)
            if measured.recall is not None:
                self.store.remember(
                    found.stored, request.remembered_k, request.recall, measured.nprobes
                )
            return measured

        known = request.nprobes or found.stored.manifest.nprobes(
            request.remembered_k, request.recall
        )
        if known is None:
            return measure(None)
        # These rows do not choose how many lists to visit.
        nprobes, sample = min(known, every), writer.left.sample(sample_rows(request))[_MEASURING]
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
            built = writer.build(f"{draft.uri}/rows.lance", nlist, places)
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
                manifest = manifest.with_nprobes(
                    request.remembered_k, request.recall, index.nprobes
                )
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
    written: Sequence[WrittenBins], lists: IvfLists, before: Quality | None = None
) -> Quality:
    rows, error = (0, 0.0) if before is None else (before.rows, before.error)
    rows += sum(int(part.offsets[:, -1].sum()) for part in written)
    return Quality(rows, error + sum(part.error for part in written), imbalance(lists.list_rows))
