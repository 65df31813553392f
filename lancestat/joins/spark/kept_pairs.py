"""The pairs of a result as scratch keeps them: by the addresses of their rows, in row order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lancestat.errors import StaleBase
from lancestat.joins.scratch.kept_neighbours import STEP, KeptNeighbours, Piece
from lancestat.joins.search.neighbours import Floats, Ints, Mask, Parallel
from lancestat.joins.search.scratch_tables import write_fragment
from lancestat.joins.search.work import FragmentState, Rows, VectorSide
from lancestat.joins.spark.reader import addresses, addresses_at
from lancestat.lake.open import pinned_reads
from lancestat.redact import redact_line
from lancestat.spark.fragment_reader import ROW_BITS, physical_offsets, pinned_dataset

_SCHEMA = pa.schema(
    [
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("distance", pa.float32()),
        ("line", pa.int64()),
    ]
)
# In place of the address of a right row, after all pairs of a left row: there are no others.
NO_OTHER = -1
# In place of a line: the result does not show the pair. Lines that a chunk adds count down from the
# next number.
NOT_SHOWN, FIRST_NEW = -1, -2
_FILTER = 1 << 20


@dataclass(frozen=True, slots=True)
class KeptPairs(Parallel):
    """Pairs in the order of their left rows, the nearest first; each (n,).

    `left` and `right` are addresses. `lines` are the rows of the result that show them. After the
    pairs of a left row that has all there are, and after none, `NO_OTHER` stands for a right row:
    it has the line of a left row without neighbours.
    """

    left: Ints
    right: Ints
    distances: Floats
    lines: Ints

    @classmethod
    def together(cls, parts: Sequence[KeptPairs]) -> KeptPairs:
        columns = (("left", "i8"), ("right", "i8"), ("distances", "f4"), ("lines", "i8"))
        return cls(
            *(
                np.concatenate([np.empty(0, type), *(getattr(part, name) for part in parts)])
                for name, type in columns
            )
        )

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True, slots=True)
class WrittenPairs:
    """A fragment of kept pairs that is not committed; fields are as in `Piece`."""

    fragment: str
    rows: int
    steps: tuple[int, ...]
    last: int


@dataclass(frozen=True, slots=True)
class PairKeeper:
    """Writes pairs of a result, whose rows have up to `ranked` neighbours; None for all there are.

    The result shows the first `shown` of them. `uri` is that of a dataset in scratch, which
    `storage_options` reach.
    """

    uri: str
    left: VectorSide
    right: VectorSide
    shown: int
    ranked: int | None
    is_outer: bool
    storage_options: Mapping[str, str] = field(repr=False)

    def pairs(self, rows: Rows, positions: Ints, distances: Floats, lines: int) -> KeptPairs:
        """Return the pairs of consecutive left rows by the positions (rows, n) of right ones.

        So many `lines` of the chunk come before theirs.
        """
        count, width = positions.shape
        is_pair = np.zeros((count, width + 1), np.bool_)
        is_pair[:, :-1] = positions >= 0
        found = is_pair.sum(axis=1)
        is_shown = is_pair & (np.arange(width + 1) < self.shown) if self.ranked else is_pair.copy()
        is_marked = self.marked(found, found == 0) if self.ranked else self.is_outer & (found == 0)
        end = np.flatnonzero(is_marked), found[is_marked]
        is_pair[end] = True
        is_shown[end] = self.is_outer & (end[1] == 0)
        right = np.full(is_pair.shape, NO_OTHER, np.int64)
        right[:, :-1] = addresses_at(self.right, positions)
        padded = np.full(is_pair.shape, np.inf, np.float32)
        padded[:, :-1] = distances
        row, at = np.nonzero(is_pair)
        shown = is_shown[row, at]
        numbered = FIRST_NEW - lines - (np.cumsum(shown) - 1)
        return KeptPairs(
            addresses(self.left, rows)[row],
            right[row, at],
            padded[row, at],
            np.where(shown, numbered, NOT_SHOWN),
        )

    def marked(self, found: Ints, is_lone: Mask) -> Mask:
        """Return which left rows end with `NO_OTHER`, by the numbers of their neighbours."""
        assert self.ranked is not None
        return (found < self.ranked) | (self.is_outer & is_lone)

    def write(self, pairs: KeptPairs) -> WrittenPairs | None:
        if not len(pairs):
            return None
        arrays = (pairs.left, pairs.right, pairs.distances, pairs.lines)
        table = pa.Table.from_arrays([pa.array(array) for array in arrays], schema=_SCHEMA)
        [fragment] = write_fragment(table, len(table), self.uri, self.storage_options)
        steps = tuple(pairs.left[::STEP].tolist())
        return WrittenPairs(fragment, len(pairs), steps, int(pairs.left[-1]))


def pieces(written: Sequence[WrittenPairs | None], starts: Sequence[int]) -> tuple[Piece, ...]:
    """Return what chunks have kept, whose first new lines are `starts`, in one dataset."""
    some = [(part, start) for part, start in zip(written, starts, strict=True) if part is not None]
    return tuple(
        Piece(number, part.rows, part.steps, part.last, start)
        for number, (part, start) in enumerate(some)
    )


def pairs_schema() -> pa.Schema:
    return _SCHEMA


def read_pairs(kept: Sequence[KeptNeighbours], low: int, high: int) -> KeptPairs:
    """Return the pairs of left rows at addresses from `low` to before `high`, with their lines."""
    parts = []
    for one in kept:
        spans = [(piece, *piece.span(low, high)) for piece in one.manifest.pieces]
        spans = [(piece, start, stop) for piece, start, stop in spans if stop > start]
        removed = one.array("removed") if spans else np.empty(0, np.int64)
        for piece, start, stop in spans:
            columns = [column.to_numpy() for column in one.pairs(piece, start, stop).columns]
            read = KeptPairs(*columns)
            read = read.some((read.left >= low) & (read.left < high))
            lines, is_new = read.lines.copy(), read.lines <= FIRST_NEW
            lines[is_new] = piece.start + FIRST_NEW - lines[is_new]
            was = (read.lines >= 0) & bool(len(removed))
            lines[was] -= np.searchsorted(removed, lines[was])
            parts.append(KeptPairs(read.left, read.right, read.distances, lines))
    return KeptPairs.together(parts)


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows of a side that the last result covers, and those that it does not.

    They are in the fragments `kept` and `new`, but for `gone` ones: each ascending, ids of
    fragments and addresses.
    """

    kept: Ints
    new: Ints
    gone: Ints

    def has(self, found: Ints) -> Mask:
        """Return which addresses are those of rows that the result covers, and that are there."""
        known: Mask = np.isin(found >> ROW_BITS, self.kept)
        # Most are ruled out by their last bits, which takes a tenth of the time.
        may_be_gone = np.zeros(_FILTER, np.bool_)
        may_be_gone[self.gone % _FILTER] = True
        suspects = may_be_gone[found % _FILTER]
        known[suspects] &= ~np.isin(found[suspects], self.gone)
        return known

    def is_new(self, found: Ints) -> Mask:
        is_new: Mask = np.isin(found >> ROW_BITS, self.new)
        return is_new


def known_rows(
    side: VectorSide,
    now: Sequence[FragmentState],
    then: Sequence[FragmentState],
    new: frozenset[int],
    deleted: Ints,
) -> KnownRows:
    """Compare deletion vectors: of the fragments that are not `new`, which rows are gone.

    Raises:
        StaleBase: rows that were `deleted` then have come back.
    """
    before, gone = {fragment.id: fragment for fragment in then}, [np.empty(0, np.int64)]
    kept = sorted(fragment.id for fragment in now if fragment.id not in new)
    changed = [
        fragment.id
        for fragment in now
        if fragment.id not in new and fragment.deletions != before[fragment.id].deletions
    ]
    for id in changed:
        dead, known = deleted_rows(side, id), deleted[deleted >> ROW_BITS == id]
        if len(np.setdiff1d(known, dead)):
            raise StaleBase(f"deleted rows of {redact_line(side.pin.uri)} have come back")
        gone.append(np.setdiff1d(dead, known))
    ids = np.array(sorted(new), np.int64)
    return KnownRows(np.array(kept, np.int64), ids, np.sort(np.concatenate(gone)))


def all_deleted(side: VectorSide, state: Sequence[FragmentState]) -> Ints:
    """Return the addresses of the deleted rows of a side."""
    ids = sorted(fragment.id for fragment in state if fragment.deletions is not None)
    return np.concatenate([np.empty(0, np.int64), *(deleted_rows(side, id) for id in ids)])


def deleted_rows(side: VectorSide, fragment_id: int) -> Ints:
    """Return the addresses of the deleted rows of a fragment."""
    fragment = pinned_dataset(side.pin, side.storage_options).get_fragment(fragment_id)
    is_deleted = np.full(fragment.physical_rows, fragment.metadata.deletion_file is not None)
    with pinned_reads(side.pin, side.storage_options):
        is_deleted[physical_offsets(fragment, None)] = False
    return (fragment_id << ROW_BITS) + np.flatnonzero(is_deleted)
