"""One join to run: its request, its sides at pinned versions, its output, and its outcome."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from lancestat.errors import ColumnSelectedTwice, Location, ReservedColumnName, SuffixedNameTaken
from lancestat.formats import StringEnum
from lancestat.joins.record import (
    UNMEASURED,
    Accuracy,
    JoinCounts,
    JoinDistances,
    OutputFormat,
    OutputState,
)
from lancestat.joins.search.metrics import L2, Metric
from lancestat.lake.snapshot import Pin, RowRange, Snapshot
from lancestat.spec.knn_join import JoinKind as JoinKind
from lancestat.spec.knn_join import Mode as Mode
from lancestat.spec.knn_join import Pairs as PairsOf

if TYPE_CHECKING:
    import numpy as np


def distance_limit(max_distance: float | None) -> np.float32:
    """Return the largest distance in float32 that is at most a number; infinity for None.

    Distances are compared as the result shows them: a float32 at most this one is exactly one that
    is at most `max_distance` when both are widened to double, as in Spark's `_distance <= 0.3D`.
    """
    import numpy as np

    distance = np.inf if max_distance is None else max_distance
    with np.errstate(over="ignore"):
        limit: np.float32 = np.float32(distance)
    return np.nextafter(limit, np.float32(-np.inf)) if float(limit) > distance else limit


MOST_NEIGHBOURS = 100_000
# What a row of a join of all pairs within a distance is expected to have.
RANGE_NEIGHBOURS = 64
DISTANCE = "_distance"
RANK = "_rank"
# The address of a row in a Lance table (its fragment's id << 32 | its offset there), which a side
# may select. Lance stores no column of that name, so that results call it `_row`.
ROW_ADDRESS, ROW = "_rowaddr", "_row"


class SelfPairs(StringEnum):
    """Which pairs of rows of one side count: all but those of a row and itself, or each once."""

    OTHERS = "others"
    ONCE = "once"


def self_pairs(pairs: str, *, excludes_self: bool) -> SelfPairs | None:
    """Return which pairs of rows of one side count, None where every pair does."""
    if pairs == PairsOf.UNORDERED.value:
        return SelfPairs.ONCE
    return SelfPairs.OTHERS if excludes_self else None


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The parameters of a join, whatever its sides are.

    A search is approximate with one of `nprobes` and `recall`. With fewer than `min_right_rows`
    right rows Spark's own join is taken. With `has_keys` only rows whose keys are equal are
    compared. `self_pairs` is set where both sides are the same rows: a row is no neighbour of
    itself, and under `ONCE` its neighbours are among the rows after it. With `max_pairs` all right
    rows within `max_distance` are neighbours, whatever `k` is, and more than that an error. With
    `as_spark` vectors that Spark's functions compare in another way are refused, by
    `VectorLeftToSpark`. `spare` neighbours more than `k` are searched for and kept, though the
    result does not show them: a left row that loses some need not be searched again.
    """

    k: int
    metric: Metric = L2
    kind: JoinKind = JoinKind.INNER
    nprobes: int | None = None
    recall: float | None = None
    min_right_rows: int = 10_000
    with_rank: bool = False
    max_distance: float | None = None
    has_keys: bool = False
    self_pairs: SelfPairs | None = None
    max_pairs: int | None = None
    as_spark: bool = False
    spare: int = 0

    @property
    def is_approximate(self) -> bool:
        return self.nprobes is not None or self.recall is not None

    @property
    def is_radius(self) -> bool:
        """Whether all right rows within a distance are neighbours."""
        return self.max_pairs is not None

    def is_exceeded_by(self, pairs: int) -> bool:
        """Whether a result may not have so many pairs."""
        return self.max_pairs is not None and pairs > self.max_pairs

    @property
    def excludes_self(self) -> bool:
        return self.self_pairs is SelfPairs.OTHERS

    @property
    def pairs_once(self) -> bool:
        return self.self_pairs is SelfPairs.ONCE

    @property
    def searched(self) -> int:
        """How many neighbours to search for: the row itself may be one of them, and is dropped."""
        return self.ranked + 1 if self.excludes_self else self.ranked

    @property
    def ranked(self) -> int:
        """How many neighbours are kept of each left row."""
        return self.k + self.spare

    @property
    def remembered_k(self) -> int:
        """For which k a kept index remembers `nprobes`: 0 for all rows within a distance."""
        return 0 if self.is_radius else self.k

    def reached_by(self, recall: float | None) -> bool:
        """Return whether a measured recall is at least what was asked for, if anything was."""
        return recall is not None and (self.recall is None or recall >= self.recall)

    @property
    def limit(self) -> np.float32:
        return distance_limit(self.max_distance)


SUFFIX = "_right"


@dataclass(frozen=True, slots=True)
class OutputNames:
    """The names of the columns of a result, in their order.

    `left` and `right` are parallel to the selected columns of the sides; `measures` are `_distance`
    and, where it is asked for, `_rank`.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    measures: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.left + self.right + self.measures


def output_names(left: Sequence[str], right: Sequence[str], *, with_rank: bool) -> OutputNames:
    """Name a result's columns so that Spark, which does not tell cases apart, can read each.

    A right column whose name the left has too gets the suffix `_right`. Raises ColumnSelectedTwice,
    ReservedColumnName for the name of what the join adds, and SuffixedNameTaken.
    """
    measures = (DISTANCE, RANK) if with_rank else (DISTANCE,)
    left, right = (
        [ROW if name == ROW_ADDRESS else name for name in names] for names in (left, right)
    )
    for side, names in (("left", left), ("right", right)):
        _check_side(side, names, measures)
    on_left = {name.lower() for name in left}
    renamed_right = tuple(name + SUFFIX if name.lower() in on_left else name for name in right)
    on_right = {name.lower() for name in right}
    for name, renamed in zip(right, renamed_right, strict=True):
        if renamed == name:
            continue
        side = "left" if renamed.lower() in on_left else "right"
        if renamed.lower() in on_left | on_right:
            raise SuffixedNameTaken(
                f"the right column '{name}' would be called '{renamed}' in the result, since the "
                f"left side has a '{name}' too, but the {side} side selects a column of that name",
                hint="rename one of them, or leave it out of 'select'",
            )
    return OutputNames(tuple(left), renamed_right, measures)


def _check_side(side: str, names: Sequence[str], measures: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if folded in measures:
            raise ReservedColumnName(
                f"the {side} side selects '{name}', which is what the join calls a column of its "
                "own",
                hint="rename it, or leave it out of 'select'",
            )
        if folded in seen:
            both = f"'{name}' twice" if seen[folded] == name else f"'{seen[folded]}' and '{name}'"
            raise ColumnSelectedTwice(
                f"the {side} side selects {both}, which Spark cannot tell apart",
                hint="leave one of them out of 'select'",
            )
        seen[folded] = name


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """Live rows of a fragment; `start` is the position of the first in the whole dataset."""

    id: int
    start: int
    rows: int


def fragment_rows(fragments: Iterable[tuple[int, int]]) -> tuple[FragmentRows, ...]:
    """Return the fragments of pairs of id and live rows, in row order, less those without rows."""
    live = [(id, rows) for id, rows in fragments if rows]
    starts = accumulate((rows for _, rows in live), initial=0)
    return tuple(
        FragmentRows(id, start, rows) for (id, rows), start in zip(live, starts, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a dataset, by their positions: from `start` up to and without `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a dataset that a side's filter passes; `filter` is in Lance's SQL.

    `live` are the fragments with all their live rows, the ones that some row of the side is in.
    """

    filter: str
    live: tuple[FragmentRows, ...]


@dataclass(frozen=True, slots=True)
class VectorSide:
    """Rows with vectors, of a pinned dataset.

    A row's *position* is that in a scan of the whole dataset, deleted rows not counted: it is
    what `take` understands, and the order of positions is row order. With a `selection` it is that
    among the rows which pass the filter, counted from the first fragment that takes part.
    `fragments` are those that take part, ascending and without gaps in their positions; `columns`
    those that the output shows, and `keys` those that are compared with the other side's. With
    `has_bits` vectors are bytes of eight bits. `dimension` is None where no row has a vector.
    `excluded` rows were left out while the side was written to scratch: their vector cannot match.
    """

    pin: Pin
    vector: str
    columns: tuple[str, ...]
    fragments: tuple[FragmentRows, ...]
    storage_options: Mapping[str, str] = field(repr=False)
    selection: Selection | None = None
    keys: tuple[str, ...] = ()
    has_bits: bool = False
    dimension: int | None = None
    excluded: int = 0

    @property
    def all_rows(self) -> Rows:
        if not self.fragments:
            return Rows(0, 0)
        last = self.fragments[-1]
        return Rows(self.fragments[0].start, last.start + last.rows)

    def ranges(self, rows: Rows) -> Iterator[RowRange]:
        """Yield the ranges of consecutive rows: one for each fragment that holds some of them."""
        ends = [fragment.start + fragment.rows for fragment in self.fragments]
        for fragment in self.fragments[bisect_right(ends, rows.start) :]:
            if fragment.start >= rows.stop:
                return
            start = max(rows.start, fragment.start)
            stop = min(rows.stop, fragment.start + fragment.rows)
            if stop > start:
                yield RowRange(fragment.id, start - fragment.start, stop - start)


class Scope(StringEnum):
    """The pairs to compare; the others are known from the last result."""

    FULL = "full"
    NEW_LEFT = "new_left"
    NEW_RIGHT = "new_right"
    CHANGED = "changed"

    @property
    def is_update(self) -> bool:
        """Whether the neighbours of the last result are brought up to date."""
        return self in (Scope.NEW_RIGHT, Scope.CHANGED)


def scope_request(request: JoinRequest, scope: Scope) -> JoinRequest:
    """Return the request by which the cost model judges the pairs of a scope."""
    return replace(request, min_right_rows=0) if scope is Scope.NEW_LEFT else request


def exact_request(request: JoinRequest) -> JoinRequest:
    return replace(request, nprobes=None, recall=None)


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A Lance dataset as it was observed; `fragments` are those with live rows, in row order.

    `name` is its name in SQL.
    """

    name: str
    pin: Pin
    fragments: tuple[FragmentRows, ...]

    @classmethod
    def at(cls, snapshot: Snapshot, name: str = "") -> PinnedTable:
        fragments = fragment_rows((fragment.id, fragment.rows) for fragment in snapshot.fragments)
        return cls(name, snapshot.pin, fragments)


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

    Indexes of one key hold the same columns of one table under one filter, for one metric.
    """

    key: str
    fragments: tuple[RightFragment, ...]


@dataclass(frozen=True, slots=True)
class FragmentState:
    """A fragment of a side that has live rows.

    `content` digests what its data files hold in the columns that the join reads, whichever of its
    rows are deleted; `deletions` identifies its deletion file, if any. `rows` are the live ones.
    """

    id: int
    content: str
    deletions: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class SideSource:
    """The source of a side's rows: exactly one of `table`, `format` and `sql` is set.

    `format` goes with `uri` and `options`, which may hold secrets; `sql` with `views`, the tables
    that it may name, and with its `location`; `filter`, in Lance's SQL, with `table`. `select` is
    None for all columns where these are not known before the rows are read. `content` is that of a
    right side whose index may be kept, and `state` has the fragments of a table.
    """

    vector: str
    select: tuple[str, ...] | None
    table: PinnedTable | None = None
    format: str | None = None
    uri: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    sql: str | None = None
    views: tuple[PinnedTable, ...] = ()
    location: Location | None = None
    filter: str | None = None
    keys: tuple[str, ...] = ()
    content: RightContent | None = None
    state: tuple[FragmentState, ...] = ()

    @property
    def tables(self) -> tuple[PinnedTable, ...]:
        """The Lance datasets that are read."""
        return self.views if self.table is None else (self.table,)

    def of_fragments(self, ids: frozenset[int]) -> SideSource:
        assert self.table is not None
        some = tuple(fragment for fragment in self.table.fragments if fragment.id in ids)
        return replace(self, table=replace(self.table, fragments=some))


@dataclass(frozen=True, slots=True)
class Increment:
    """Changes of the sides by which the last result is brought up to date, with its counts.

    `new_left` and `new_right` are ids of fragments whose rows `previous` does not cover; rows of it
    may be gone, too. `neighbours` are the folders in scratch that have those of its left rows.
    """

    scope: Scope
    new_left: frozenset[int]
    new_right: frozenset[int]
    previous: OutputState
    known: JoinCounts[int]
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinWork:
    """One join to run: all rows, or an increment.

    With `is_fresh` indexes that are kept from other runs are left aside. Neighbours are kept under
    a key, `neighbours_key`, where later runs can bring them up to date, and those of earlier runs
    are removed but for the folders that the last result has, `neighbours`.
    """

    node: str
    request: JoinRequest
    left: SideSource
    right: SideSource
    output_format: OutputFormat
    output_uri: str
    increment: Increment | None = None
    is_fresh: bool = False
    neighbours_key: str | None = None
    neighbours: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return Scope.FULL if self.increment is None else self.increment.scope

    def scoped(self) -> JoinWork:
        """Return the work over the new left rows alone, where these are all that is joined."""
        if self.increment is None or self.scope is not Scope.NEW_LEFT:
            return self
        return replace(self, left=self.left.of_fragments(self.increment.new_left))


@dataclass(frozen=True, slots=True)
class JoinOutcome:
    """The outcome of a join; `pairs` were compared, by keys in so many `groups`.

    `unproven` has, for each side that is a query, what keeps it from being proven that the query
    gives the same rows as long as the declared tables have theirs. `neighbours` are the folders in
    scratch where those of the result are kept.
    """

    strategy: str
    counts: JoinCounts[int]
    output: OutputState
    pairs: int
    accuracy: Accuracy = UNMEASURED
    unproven: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distances: JoinDistances | None = None
    groups: int | None = None
    neighbours: tuple[str, ...] = ()
