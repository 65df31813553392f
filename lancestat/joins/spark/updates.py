"""Updates of a result after changes of its sides: cells of left rows, and the neighbours they have.

A left row has the nearest of all right rows that were there when the last result was made. To
these the nearest new right rows are added, and then those that are gone are dropped. That leaves a
row enough neighbours, since some are kept to spare; only where it does not, the row is compared
with the whole right side again, as new left rows are. Right rows are named by their addresses
throughout, whose order is row order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import lance
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lancestat.errors import StaleBase
from lancestat.joins.scratch.folder import Draft
from lancestat.joins.scratch.kept_neighbours import (
    PAIRS,
    KeptArrays,
    KeptNeighbours,
    NeighboursManifest,
    NeighbourStore,
    PinnedVersion,
)
from lancestat.joins.search.distances import DistanceTally
from lancestat.joins.search.groups import Groups
from lancestat.joins.search.neighbours import (
    Floats,
    Ints,
    Mask,
    Neighbours,
    Parallel,
    nothing,
    without,
)
from lancestat.joins.search.scratch_tables import Pairs, committed
from lancestat.joins.search.search import ExactSearch, RowList
from lancestat.joins.search.vectors import Vectors
from lancestat.joins.search.work import JoinKind, JoinRequest, JoinWork, Rows, VectorSide
from lancestat.joins.spark.cells import CellResult, CellSearch, LeftRows, cut
from lancestat.joins.spark.groups import SPARSE, read_keys
from lancestat.joins.spark.job import SLICE_ROWS, RadiusSearch, WrittenChunk, too_many
from lancestat.joins.spark.kept_pairs import (
    FIRST_NEW,
    NO_OTHER,
    NOT_SHOWN,
    KeptPairs,
    KnownRows,
    PairKeeper,
    WrittenPairs,
    all_deleted,
    known_rows,
    pairs_schema,
    pieces,
    read_pairs,
)
from lancestat.joins.spark.materialize import Materializer
from lancestat.joins.spark.reader import VectorReader, addresses, addresses_at
from lancestat.lake.snapshot import pin_of

# Right rows whose keys are read at a time.
KEYED_ROWS = 1 << 17
# What a left row costs besides comparisons, in these: its vector and its neighbours are read.
ROW_PAIRS = 500


@dataclass(frozen=True, slots=True)
class UpdateCell:
    """Left rows, and the addresses from `low` to before `high` of those that the result has.

    `recounted` are right rows of which those that cannot match are counted.
    """

    number: int
    left: Rows
    low: int
    high: int
    recounted: tuple[Rows, ...]

    @property
    def left_count(self) -> int:
        return len(self.left)


@dataclass(frozen=True, slots=True)
class _Entries(Parallel):
    """Neighbours (n,) of left rows of a cell by their numbers there, the nearest first.

    `known` are the indices of the kept pairs that they are, -1 for those that were just found.
    """

    row: Ints
    right: Ints
    distances: Floats
    known: Ints

    @classmethod
    def found(cls, row: Ints, right: Ints, distances: Floats) -> _Entries:
        return cls(row, right, distances, np.full(len(row), -1, np.int64))

    @classmethod
    def together(cls, parts: Sequence[_Entries]) -> _Entries:
        arrays = ([getattr(part, name) for part in parts] for name in cls.__slots__)
        return cls(*map(np.concatenate, arrays))

    @property
    def ranks(self) -> Ints:
        return _ranks(self.row)


@dataclass(frozen=True, slots=True)
class _Lines(Parallel):
    """Pairs (n,) of a cell in the order in which they are kept, and their lines in the result."""

    row: Ints
    right: Ints
    distances: Floats
    ranks: Ints
    lines: Ints
    is_shown: Mask

    def by_rank(self) -> Neighbours:
        columns = nothing(int(self.row.max(initial=-1)) + 1, int(self.ranks.max(initial=0)) + 1)
        columns.positions[self.row, self.ranks] = self.right
        columns.distances[self.row, self.ranks] = self.distances
        return columns

    def in_one_column(self) -> Neighbours:
        return Neighbours(self.right[:, None], self.distances[:, None])


def _ranks(row: Ints) -> Ints:
    """Return the number of each element among those before it of the same row, which are sorted."""
    firsts = np.flatnonzero(np.diff(row, prepend=-1))
    counts = np.diff(firsts, append=len(row))
    ranks: Ints = np.arange(len(row)) - np.repeat(firsts, counts)
    return ranks


@dataclass(frozen=True, slots=True)
class Update:
    """Brings cells up to date; it is pickled. `types` are those of keys, if there are any."""

    left: VectorReader
    right: VectorReader
    request: JoinRequest
    types: tuple[pa.DataType, ...]
    materialize: Materializer
    neighbours: tuple[KeptNeighbours, ...]
    known_left: KnownRows
    known_right: KnownRows
    new_right: tuple[Rows, ...]

    @property
    def _sides(self) -> tuple[VectorSide, VectorSide]:
        left, right = self.left.side, self.right.side
        assert isinstance(left, VectorSide) and isinstance(right, VectorSide)
        return left, right

    def run(self, cell: UpdateCell) -> WrittenChunk:
        own = addresses(self._sides[0], cell.left)
        kept = read_pairs(self.neighbours, cell.low, cell.high)
        at = np.searchsorted(own, kept.left)
        is_there = self.known_left.has(kept.left) & (at < len(own))
        is_there[is_there] = own[at[is_there]] == kept.left[is_there]
        gone = kept.lines[~is_there & (kept.lines >= 0)]
        rows = _LeftRows(self, cell, own, self.left.read(cell.left), self._keys(cell.left))
        find = rows.all_within if self.request.is_radius else rows.nearest
        kept, at = kept.some(is_there), at[is_there]
        entries, is_marked = find(kept, at)
        return self._written(cell, own, kept, at, entries, is_marked, gone, rows.pairs)

    def _written(
        self,
        cell: UpdateCell,
        own: Ints,
        kept: KeptPairs,
        at: Ints,
        entries: _Entries,
        is_marked: Mask,
        gone: Ints,
        compared: int,
    ) -> WrittenChunk:
        """Write the lines that the result lacks, and the pairs that are kept from now on.

        `at` (kept pairs,) are the numbers of their left rows, and `gone` lines of those that are no
        more.
        """
        materialize, keeper = self.materialize, self.materialize.keeper
        assert keeper is not None, "neighbours are kept"
        made = self._lines(kept, at, entries, is_marked, keeper.is_outer)
        lines, is_new = made.lines, made.is_shown & (made.lines == NOT_SHOWN)
        removed = np.setdiff1d(kept.lines[kept.lines >= 0], lines[lines >= 0], assume_unique=True)
        lines[is_new] = FIRST_NEW - np.arange(np.count_nonzero(is_new))
        written = None
        if is_new.any():
            new = made.some(is_new)
            batches = materialize.pair_batches(own[new.row], new.right, new.distances, new.ranks)
            written = materialize.write_batches(cell.number, batches)
        pairs = made.some(made.is_shown & (made.right != NO_OTHER))
        tally = DistanceTally(materialize.ranks)
        tally.add(pairs.by_rank() if materialize.ranks else pairs.in_one_column())
        return WrittenChunk(
            written,
            len(np.unique(pairs.row)),
            sum(self._excluded(part) for part in cell.recounted),
            compared,
            tally.counts(),
            kept=keeper.write(KeptPairs(own[made.row], made.right, made.distances, lines)),
            removed=np.concatenate([gone, removed]),
            shown=len(pairs.row),
        )

    def _lines(
        self, kept: KeptPairs, at: Ints, entries: _Entries, is_marked: Mask, is_outer: bool
    ) -> _Lines:
        """Return the pairs that are kept, with the lines of those that the result shows already."""
        request, ranks = self.request, entries.ranks
        is_shown = np.full(len(ranks), True) if request.is_radius else ranks < request.k
        lines = _at(kept.lines, entries.known)
        if request.with_rank:
            lines[_at(_ranks(at), entries.known) != ranks] = NOT_SHOWN
        lines[~is_shown] = NOT_SHOWN
        is_lone = np.bincount(entries.row[is_shown], minlength=len(is_marked)) == 0
        is_lone &= is_outer
        # What stands after the pairs of a row, or for it where it has none.
        ends = np.flatnonzero(is_marked | is_lone)
        lone_lines = np.full(len(is_marked), NOT_SHOWN, np.int64)
        was_lone = kept.right == NO_OTHER
        lone_lines[at[was_lone]] = kept.lines[was_lone]
        lone_lines[~is_lone] = NOT_SHOWN
        made = _Lines(
            np.concatenate([entries.row, ends]),
            np.concatenate([entries.right, np.full(len(ends), NO_OTHER)]),
            np.concatenate([entries.distances, np.full(len(ends), np.inf, np.float32)]),
            np.concatenate([ranks, np.zeros(len(ends), np.int64)]),
            np.concatenate([lines, lone_lines[ends]]),
            np.concatenate([is_shown, is_lone[ends]]),
        )
        return made.some(np.argsort(made.row, kind="stable"))

    def _keys(self, rows: Rows) -> pa.Table | None:
        return read_keys(self.left, rows, self.types) if self.types else None

    def _excluded(self, rows: Rows) -> int:
        """Return how many right rows cannot match."""
        is_valid = self.right.valid(rows)
        if self.types:
            for column in read_keys(self.right, rows, self.types).columns:
                is_valid &= ~column.is_null().to_numpy()
        return int(np.count_nonzero(~is_valid))

    def blocks(
        self, ranges: Sequence[Rows], groups: Groups | None
    ) -> Iterator[tuple[Ints, Floats, Ints | None]]:
        """Yield addresses and vectors of right rows that can match, and their groups' numbers.

        With groups those of each block are sorted.
        """
        reader, side = self.right, self._sides[1]
        for rows in ranges:
            if groups is None:
                for block in reader.blocks(rows):
                    yield addresses_at(side, block.positions), block.rows, None
                continue
            for part in cut(rows, max(1, len(rows) // KEYED_ROWS)):
                numbers = groups.assign(read_keys(reader, part, self.types))
                chosen = np.flatnonzero(numbers >= 0)
                if not len(chosen):
                    continue
                if len(chosen) < SPARSE * len(part):
                    read = reader.look_up(part.start + chosen)
                    values, is_valid = read.values, read.valid
                else:
                    read = reader.read(part)
                    values, is_valid = read.values[chosen], read.valid[chosen]
                order = np.argsort(numbers[chosen], kind="stable")
                order = order[is_valid[order]]
                chosen = chosen[order]
                yield addresses_at(side, part.start + chosen), values[order], numbers[chosen]

    def cells(self, cores: int, largest: int, *, recounts: bool) -> list[UpdateCell]:
        """Divide the left rows into cells that take about as long, of at most so many rows.

        With `recounts` all right rows that cannot match are counted, else those of new ones.
        """
        left, right = self._sides
        new = set(self.known_left.new.tolist())
        count = len(left.all_rows)
        old = sum(part.rows for part in left.fragments if part.id not in new)
        costs = (
            ROW_PAIRS + sum(map(len, self.new_right)),
            ROW_PAIRS + len(right.all_rows),
        )
        total = old * costs[0] + (count - old) * costs[1]
        parts = max(1, min(cores, count))
        edges = [_row_at(total * number // parts, old, costs) for number in range(parts)]
        ranges = [
            piece
            for start, stop in pairwise([*edges, count])
            for piece in cut(Rows(start, stop), max(1, -(-(stop - start) // largest)))
            if len(piece)
        ] or [Rows(0, 0)]
        firsts = [int(addresses(left, Rows(rows.start, rows.start + 1))[0]) for rows in ranges[1:]]
        bounds = pairwise([0, *firsts, np.iinfo(np.int64).max])
        counted: list[tuple[Rows, ...]] = [self.new_right, *([()] * len(ranges))]
        if recounts:
            counted = [(rows,) for rows in cut(right.all_rows, len(ranges))]
        return [
            UpdateCell(number, rows, low, high, among)
            for number, (rows, (low, high), among) in enumerate(
                zip(ranges, bounds, counted, strict=False)
            )
        ]


def _row_at(cost: int, old: int, costs: tuple[int, int]) -> int:
    """Return the row up to which rows cost so much, of which the first, `old` ones cost less."""
    if cost <= old * costs[0]:
        return cost // costs[0]
    return old + (cost - old * costs[0]) // costs[1]


@dataclass(frozen=True, slots=True)
class Keeping:
    """The neighbours that a join keeps: what it writes, and what the last result has."""

    store: NeighbourStore
    draft: Draft
    work: JoinWork
    keeper: PairKeeper
    known: tuple[KeptNeighbours, ...]

    @classmethod
    def of(
        cls,
        store: NeighbourStore,
        draft: Draft,
        work: JoinWork,
        left: VectorSide,
        right: VectorSide,
    ) -> Keeping:
        """Read what is kept of the last result.

        Raises:
            StaleBase: it has gone.
        """
        request, folders = work.request, () if work.increment is None else work.increment.neighbours
        known = store.find(folders)
        if known is None:
            raise StaleBase("the neighbours of the last result are not in scratch any more")
        keeper = PairKeeper(
            f"{draft.uri}/{PAIRS}",
            left,
            right,
            request.k,
            None if request.is_radius else request.ranked,
            request.kind is JoinKind.LEFT_OUTER,
            store.options,
        )
        return cls(store, draft, work, keeper, tuple(known))

    @property
    def lost_right(self) -> bool:
        """Whether right rows of the last result are gone."""
        now, then = self.work.right.state, self.known[-1].manifest.right
        rows = sum(part.rows for part in now if part.id not in self._new[1])
        return rows < sum(part.rows for part in then)

    @property
    def _new(self) -> tuple[frozenset[int], frozenset[int]]:
        assert self.work.increment is not None, "there is a result"
        return self.work.increment.new_left, self.work.increment.new_right

    def update(
        self,
        readers: tuple[VectorReader, VectorReader],
        request: JoinRequest,
        types: tuple[pa.DataType, ...],
        materialize: Materializer,
    ) -> Update:
        """Find out which rows are gone and which are new.

        Raises:
            StaleBase: rows have come back, or what is kept cannot be read.
        """
        last, (left, right) = self.known[-1], (self.keeper.left, self.keeper.right)
        then, work, (new_left, new_right) = last.manifest, self.work, self._new
        deleted = last.array("left_deleted"), last.array("right_deleted")
        known_left = known_rows(left, work.left.state, then.left, new_left, deleted[0])
        known_right = known_rows(right, work.right.state, then.right, new_right, deleted[1])
        ranges = tuple(
            Rows(part.start, part.start + part.rows)
            for part in right.fragments
            if part.id in new_right
        )
        # Tasks need not know of the fragments.
        slim = tuple(
            replace(one, manifest=replace(one.manifest, left=(), right=())) for one in self.known
        )
        return Update(*readers, request, types, materialize, slim, known_left, known_right, ranges)

    def finish(
        self, kept: Sequence[WrittenPairs | None], starts: Sequence[int], removed: Ints
    ) -> tuple[str, ...]:
        """Commit what chunks have kept; return all folders that the result needs from now on."""
        store, draft, work = self.store, self.draft, self.work
        some = [part for part in kept if part is not None]
        pairs = None
        if some:
            fragments = [lance.FragmentMetadata.from_json(part.fragment) for part in some]
            operation = lance.LanceOperation.Overwrite(pairs_schema(), fragments)
            dataset = committed(self.keeper.uri, operation, store.options)
            pin = pin_of(dataset, self.keeper.uri)
            pairs = PinnedVersion(pin.version, pin.manifest)
        sides = ((self.keeper.left, work.left.state), (self.keeper.right, work.right.state))
        deleted = [all_deleted(side, state) for side, state in sides]
        manifest = NeighboursManifest(
            store.clock(),
            work.left.state,
            work.right.state,
            pieces(kept, starts),
            store.write_arrays(draft, KeptArrays(removed, *deleted)),
            pairs,
        )
        store.finish(draft, manifest)
        before = () if work.increment is None or work.scope.is_update else work.increment.neighbours
        return (*before, draft.folder)


class _LeftRows:
    """The left rows of a cell, by their numbers in it; `own` are their addresses.

    `pairs` counts those that were compared.
    """

    def __init__(
        self, update: Update, cell: UpdateCell, own: Ints, read: Vectors, keys: pa.Table | None
    ) -> None:
        self._update = update
        self._cell = cell
        self._request = update.request
        self._own = own
        self._vectors = read.values
        self._keys = keys
        self._is_old = ~update.known_left.is_new(own)
        self._is_usable = read.valid.copy()
        for column in () if keys is None else keys.columns:
            self._is_usable &= ~column.is_null().to_numpy()
        self._everything = (update.right.side.all_rows,)
        self.pairs = 0

    def all_within(self, kept: KeptPairs, at: Ints) -> tuple[_Entries, Mask]:
        """Return all neighbours within the limit; no row is marked.

        Raises:
            TooManyPairs: these are more than the whole result may have.
        """
        known = np.flatnonzero(self._update.known_right.has(kept.right))
        count = len(known)
        parts = [_Entries(at[known], kept.right[known], kept.distances[known], known)]
        for is_old, ranges in ((True, self._update.new_right), (False, self._everything)):
            which = np.flatnonzero(self._is_usable & (self._is_old == is_old))
            if not len(which) or not ranges:
                continue
            search = _Within(self, which, ranges, self._groups(which))
            radius = RadiusSearch(search, self._cell, self._request)
            for rows, found in radius.neighbours():
                pairs = Pairs.of(rows.positions, found)
                if self._request.excludes_self:
                    pairs = pairs.some(pairs.right != self._own[pairs.left])
                count += len(pairs)
                if self._request.is_exceeded_by(count):
                    raise too_many(count, self._request)
                parts.append(_Entries.found(pairs.left, pairs.right, pairs.distances))
        entries = _Entries.together(parts)
        order = np.lexsort((entries.right, entries.distances, entries.row))
        return entries.some(order), np.zeros(len(self._own), np.bool_)

    def nearest(self, kept: KeptPairs, at: Ints) -> tuple[_Entries, Mask]:
        """Return the nearest neighbours; those rows are marked that have all there are."""
        update, request = self._update, self._request
        lists, is_whole = self._lists(kept, at)
        which = np.flatnonzero(self._is_usable & self._is_old)
        if len(which) and update.new_right:
            groups = self._groups(which)
            rows = self.rows(which, groups)
            found = self.search(rows, request.ranked, update.new_right, groups, lists.some(which))
            lists.put(which, found)
            # More than these may be among all there are.
            is_whole &= lists.positions[:, -1] < 0
        is_there = lists.positions >= 0
        # Copies of the last one filled the list.
        is_there[:, 1:] &= lists.positions[:, 1:] != lists.positions[:, :-1]
        is_new = update.known_right.is_new(lists.positions)
        is_there &= is_new | update.known_right.has(lists.positions)
        is_short = is_there.sum(axis=1) < request.k
        is_searched = self._is_usable & (~self._is_old | (is_short & ~is_whole))
        is_there[is_searched | ~self._is_usable] = False
        row, rank = np.nonzero(is_there)
        entries = _Entries.found(row, lists.positions[row, rank], lists.distances[row, rank])
        # What was known before is in the same order as ever.
        still = np.flatnonzero(update.known_right.has(kept.right))
        was_known = np.flatnonzero(~is_new[row, rank])
        among = row[was_known]
        entries.known[was_known] = still[np.searchsorted(at[still], among) + _ranks(among)]
        which = np.flatnonzero(is_searched)
        if len(which):
            groups = self._groups(which)
            rows = self.rows(which, groups)
            found = self.search(rows, request.searched, self._everything, groups)
            if request.excludes_self:
                found = without(found, self._own[which])
            is_whole[which] = found.positions[:, -1] < 0
            pairs = Pairs.of(which, found)
            again = _Entries.found(pairs.left, pairs.right, pairs.distances)
            entries = _Entries.together([entries, again])
            entries = entries.some(np.argsort(entries.row, kind="stable"))
        return entries, is_whole | ~self._is_usable

    def _lists(self, kept: KeptPairs, at: Ints) -> tuple[Neighbours, Mask]:
        """Return the neighbours that rows had, gone ones too, and which rows had all there were.

        Lists of other rows are filled with copies of their last one: nothing that comes after it is
        known.
        """
        count, ranked = len(self._own), self._request.ranked
        lists, is_whole = nothing(count, ranked), np.zeros(count, np.bool_)
        is_pair = kept.right != NO_OTHER
        is_whole[at[~is_pair]] = True
        row = at[is_pair]
        rank = _ranks(row)
        lists.positions[row, rank] = kept.right[is_pair]
        lists.distances[row, rank] = kept.distances[is_pair]
        found = np.bincount(row, minlength=count)
        last = np.flatnonzero((found > 0) & (found < ranked) & ~is_whole)
        is_empty = np.arange(ranked) >= found[last, None]
        for values in (lists.positions, lists.distances):
            some = values[last]
            values[last] = np.where(
                is_empty, some[np.arange(len(last)), found[last] - 1, None], some
            )
        return lists, is_whole

    def rows(self, which: Ints, groups: Groups | None) -> LeftRows:
        numbers = None
        if groups is not None and self._keys is not None:
            numbers = groups.assign(self._keys.take(pa.array(which))).astype(np.int32)
        return LeftRows(which, self._vectors[which], numbers)

    def _groups(self, which: Ints) -> Groups | None:
        if self._keys is None:
            return None
        keys = [self._keys.take(pa.array(which))]
        return Groups.common(keys, keys)

    def search(
        self,
        rows: LeftRows,
        k: int,
        ranges: Sequence[Rows],
        groups: Groups | None,
        before: Neighbours | None = None,
    ) -> Neighbours:
        """Return the k nearest right rows in ranges of them, and of those known `before`."""
        request, after = self._request, None
        if request.pairs_once:
            after = self._own[rows.positions] + 1
        nearest = ExactSearch(rows.vectors, k, request.metric, limit=request.limit, after=after)
        if before is not None:
            nearest.go_on_from(before)
        for found, vectors, numbers in self._update.blocks(ranges, groups):
            lists = [RowList(slice(0, len(found)), np.arange(len(rows)))]
            if numbers is not None:
                assert rows.groups is not None, "rows are in groups"
                lists = list(_lists_of(numbers, rows.groups))
            nearest.add_lists(vectors, found, lists)
            for item in lists:
                self.pairs += item.count * len(item.queries)
                if after is not None:
                    earlier = np.searchsorted(found[item.rows], after[item.queries])
                    self.pairs -= int(earlier.sum())
        return nearest.neighbours()


def _lists_of(numbers: Ints, groups: NDArray[np.int32]) -> Iterator[RowList]:
    """Yield the rows of each group, by their sorted numbers, with the queries of that group."""
    order = np.argsort(groups, kind="stable")
    among = groups[order]
    present, firsts = np.unique(numbers, return_index=True)
    edges = [*firsts.tolist(), len(numbers)]
    for number, start, stop in zip(present.tolist(), edges, edges[1:], strict=False):
        low, high = np.searchsorted(among, (number, number + 1)).tolist()
        if high > low:
            yield RowList(slice(start, stop), np.sort(order[low:high]))


@dataclass(frozen=True, slots=True)
class _Within(CellSearch[UpdateCell]):
    """Some left rows against ranges of right rows."""

    left: _LeftRows
    which: Ints
    ranges: Sequence[Rows]
    groups: Groups | None

    def left_rows(self, cell: UpdateCell) -> Iterator[LeftRows]:
        for start in range(0, len(self.which), SLICE_ROWS):
            yield self.left.rows(self.which[start : start + SLICE_ROWS], self.groups)

    def nearest(self, cell: UpdateCell, rows: LeftRows, k: int, *, is_first: bool) -> CellResult:
        found = self.left.search(rows, k, self.ranges, self.groups)
        return CellResult(rows.positions, found)


def _at(values: Ints, which: Ints) -> Ints:
    """Return the values at indices, and `NOT_SHOWN` at -1."""
    return np.append(values, NOT_SHOWN)[which]
