"""What joining takes, decided by the plan, and what a join was found to do, for the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from lancestat.errors import Location, RunError
from lancestat.knn.request import JoinRequest, Mode
from lancestat.knn.side import FragmentRows, placed
from lancestat.lake.pin import Pin
from lancestat.lake.snapshot import Snapshot


class Scope(str, Enum):
    """Which pairs are to be compared; the others are known from the last result."""

    FULL = "full"
    NEW_LEFT = "new_left"
    NEW_RIGHT = "new_right"


def scoped(request: JoinRequest, scope: Scope) -> JoinRequest:
    """What the gate is asked about the pairs of a scope: itself is about joins as a whole.

    New right rows are compared with every left row: merged with what was found before, they can
    only make an approximate result better.
    """
    if scope is Scope.FULL:
        return request
    request = replace(request, min_right_rows=0)
    if scope is Scope.NEW_LEFT:
        return request
    return replace(request, mode=Mode.EXACT, nprobes=None, recall=None)


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A Lance dataset as it was observed; `fragments` are those with live rows, in row order.

    `name` is what SQL calls it.
    """

    name: str
    pin: Pin
    fragments: tuple[FragmentRows, ...]

    @classmethod
    def at(cls, found: Snapshot, name: str = "") -> PinnedTable:
        """A dataset as a snapshot saw it."""
        fragments = placed((each.id, each.rows) for each in found.fragments)
        return cls(name, found.pin, fragments)


@dataclass(frozen=True, slots=True)
class SideWork:
    """Where the rows of a side come from: exactly one of `table`, `format` and `sql` is set.

    `format` goes with `uri` and `options`, `sql` with `views`, the tables that it may name, and
    `location`, where it is declared. `options` may hold secrets. `select` is None for all columns
    where they are not known before the rows are read; of a table it never is.
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


class OutputFormat(str, Enum):
    """What a join is written as."""

    LANCE = "lance"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class OutputState:
    """What identifies a result that was written, so that it is known again.

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
class JoinWork:
    """One join to run.

    Under `Scope.NEW_LEFT` `new_fragments` are ids of the left table's fragments that nothing is
    known about, under `Scope.NEW_RIGHT` of the right's; `previous` is the result to go on from and
    `known` what was counted for it. `remembered` is as for `output.begin`.
    """

    node: str
    request: JoinRequest
    left: SideWork
    right: SideWork
    output_format: OutputFormat
    output_uri: str
    scope: Scope = Scope.FULL
    new_fragments: frozenset[int] = frozenset()
    previous: OutputState | None = None
    known: JoinCounts | None = None
    remembered: str | None = None


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """Rows of a join, of both sides as a whole.

    `unmatched_left_rows` have a vector that cannot match, or there was nothing to match;
    `excluded_right_rows` have a vector that cannot match.
    """

    left_rows: int
    right_rows: int
    unmatched_left_rows: int
    excluded_right_rows: int


@dataclass(frozen=True, slots=True)
class JoinOutcome:
    """What a join did.

    `strategy` is a `gate.Strategy`'s word. `nprobes` and `recall` (measured on a sample, 1.0 where
    every pair was compared) tell of approximate ones. `pairs` were compared in `seconds` of
    probing. `unproven` has, for each side that is a query, what keeps it from being proven that the
    query gives the same rows as long as the declared tables have theirs.
    """

    strategy: str
    counts: JoinCounts
    output: OutputState
    pairs: int
    recall: float | None = None
    nprobes: int | None = None
    unproven: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class StaleBase(RunError):  # noqa: N818 - a state of the output, which is joined in full then
    """LS569: the result to go on from is not what the plan saw; nothing was written."""
