"""One join to run: its sides at pinned versions, its scope, its output, and its outcome."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from lancestat.errors import Location
from lancestat.formats import StringEnum
from lancestat.joins.record import UNMEASURED, Accuracy, JoinCounts, JoinDistances
from lancestat.joins.search.request import JoinRequest
from lancestat.lake.snapshot import Pin, RowRange, Snapshot


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

    A row's *position* is that in a scan of the whole dataset, deleted rows not counted, which
    `take` understands; the order of positions is row order. With a `selection` it is that among the
    rows which pass the filter, counted from the first fragment that takes part. `fragments` are
    those that take part, ascending and without gaps in their positions. With `has_bits` vectors are
    bytes of eight bits.
    """

    pin: Pin
    vector: str
    columns: tuple[str, ...]
    fragments: tuple[FragmentRows, ...]
    storage_options: Mapping[str, str] = field(repr=False)
    selection: Selection | None = None
    keys: tuple[str, ...] = ()
    has_bits: bool = False

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


def scope_request(request: JoinRequest, scope: Scope) -> JoinRequest:
    """Return the request by which the cost model judges the pairs of a scope.

    New right rows are compared with every left row: merged with the neighbours of the last result,
    they can only make an approximate result better.
    """
    if scope is Scope.FULL:
        return request
    request = replace(request, min_right_rows=0)
    if scope is Scope.NEW_LEFT:
        return request
    return exact_request(request)


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
class SideSource:
    """The source of a side's rows: exactly one of `table`, `format` and `sql` is set.

    `format` goes with `uri` and `options`, which may hold secrets; `sql` with `views`, the tables
    that it may name, and with its `location`; `filter`, in Lance's SQL, with `table`. `select` is
    None for all columns where these are not known before the rows are read. `content` is that of a
    right side whose index may be kept.
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

    def of_fragments(self, ids: frozenset[int]) -> SideSource:
        assert self.table is not None
        some = tuple(fragment for fragment in self.table.fragments if fragment.id in ids)
        return replace(self, table=replace(self.table, fragments=some))


class OutputFormat(StringEnum):
    """The formats of results."""

    LANCE = "lance"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class OutputState:
    """The identity of a result that was written.

    For Lance `version` is the one that the commit made and `digest` is over the fragments, so that
    commits which leave rows alone do no harm; for Parquet `generation` names the folder that the
    link points to and `digest` is over names and sizes of its files.
    """

    format: OutputFormat
    uri: str
    rows: int
    digest: str
    version: int | None = None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """New rows of one side, which are joined to the last result, with the counts of that.

    `new_fragments` are ids of the side's fragments that `previous` does not cover.
    """

    scope: Scope
    new_fragments: frozenset[int]
    previous: OutputState
    known: JoinCounts[int]


@dataclass(frozen=True, slots=True)
class JoinWork:
    """One join to run: all rows, or an increment.

    With `is_fresh` indexes that are kept from other runs are left aside.
    """

    node: str
    request: JoinRequest
    left: SideSource
    right: SideSource
    output_format: OutputFormat
    output_uri: str
    increment: Increment | None = None
    is_fresh: bool = False

    @property
    def scope(self) -> Scope:
        return Scope.FULL if self.increment is None else self.increment.scope

    def scoped(self) -> JoinWork:
        """Return the work over the new fragments alone, on the side that has some."""
        if self.increment is None:
            return self
        new = self.increment.new_fragments
        if self.scope is Scope.NEW_LEFT:
            return replace(self, left=self.left.of_fragments(new))
        return replace(self, right=self.right.of_fragments(new))

    def known_right(self) -> SideSource | None:
        """Return the right rows of the last result, where new ones are merged with it by keys."""
        table = self.right.table
        if self.increment is None or self.scope is not Scope.NEW_RIGHT or table is None:
            return None
        if not self.request.has_keys:
            return None
        fragments = frozenset(fragment.id for fragment in table.fragments)
        return self.right.of_fragments(fragments - self.increment.new_fragments)


@dataclass(frozen=True, slots=True)
class JoinOutcome:
    """The outcome of a join; `pairs` were compared, by keys in so many `groups`.

    `unproven` has, for each side that is a query, what keeps it from being proven that the query
    gives the same rows as long as the declared tables have theirs.
    """

    strategy: str
    counts: JoinCounts[int]
    output: OutputState
    pairs: int
    accuracy: Accuracy = UNMEASURED
    unproven: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distances: JoinDistances | None = None
    groups: int | None = None
