"""The request of a join: metric, mode, and columns of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancestat.errors import ColumnSelectedTwice, ReservedColumnName, SuffixedNameTaken
from lancestat.formats import StringEnum
from lancestat.joins.search.metrics import L2, Metric
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
    `VectorLeftToSpark`.
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
        return self.k + 1 if self.excludes_self else self.k

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
