"""The interfaces of statistics by fragment, for pruning and estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lancestat.query.predicates.filter import (
    Filter,
)
from lancestat.tables.statistics.bounds import Bound
from lancestat.tables.statistics.partial import ColumnPartial


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Bounds that enclose the values of a column, and the most nulls that it may have."""

    minimum: Bound | None
    maximum: Bound | None
    nulls: int


class RemainingFragments(Protocol):
    """The fragments of a table that are left after pruning."""

    @property
    def fragment_ids(self) -> Sequence[int]:
        """The fragments that may hold a matching row, ascending."""

    @property
    def rows(self) -> int:
        """Live rows of those fragments."""

    @property
    def is_known(self) -> bool:
        """Whether the bounds of every filtered column are known in every remaining fragment.

        Only then may an estimate start from these fragments: Spark applies the filter once more, to
        bounds that must be theirs.
        """

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over these fragments, None where one is unknown."""

    def range(self, column: str) -> ColumnRange | None:
        """Return the range of a column without a known partial, None where it is unknown, too."""


class FragmentStatistics(Protocol):
    """Statistics of a table's fragments at one version, group by group."""

    def load(self, columns: Iterable[str]) -> None:
        """Load columns at once, which takes less time than one by one."""

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        """Return the fragments that a conjunction of filters leaves; None when it leaves all."""

    def covers(self, filters: Sequence[Filter]) -> bool:
        """Whether every row of the fragments that `prune` leaves is known to pass the filters."""

    def knows(self, column: str) -> bool:
        """Whether the bounds of a column are known in some fragment."""

    def partial(self, column: str) -> ColumnPartial | None:
        """Return the partial of a column over the whole table, None where a group is unknown."""


@dataclass(frozen=True, slots=True)
class NoFragmentStatistics:
    """No statistics: neither state nor index has any of the fragments."""

    def load(self, columns: Iterable[str]) -> None:
        """Load nothing."""

    def prune(self, filters: Sequence[Filter]) -> RemainingFragments | None:
        """Return None: no fragment is ruled out."""
        return None

    def covers(self, filters: Sequence[Filter]) -> bool:
        """Return False: nothing is known of any row."""
        return False

    def knows(self, column: str) -> bool:
        """Return False: no column is known."""
        return False

    def partial(self, column: str) -> ColumnPartial | None:
        """Return None: no column is known."""
        return None
