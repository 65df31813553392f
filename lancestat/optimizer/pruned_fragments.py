"""What pruning and estimates ask of the statistics of fragments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lancestat.predicates.filter import (
    Filter,
)
from lancestat.statistics.bounds import Bound
from lancestat.statistics.partial import ColumnPartial


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What bounds alone tell of a column: they enclose its values, and there are no more nulls."""

    minimum: Bound | None
    maximum: Bound | None
    nulls: int


class Survivors(Protocol):
    """What is left after whole fragments were ruled out."""

    @property
    def fragment_ids(self) -> Sequence[int]:
        """The fragments that may hold a matching row, ascending."""

    @property
    def rows(self) -> int:
        """Live rows of those fragments."""

    @property
    def is_known(self) -> bool:
        """Whether the bounds of every filtered column are known in every surviving fragment.

        Only then may an estimate start from the survivors: Spark applies the filter once more, to
        bounds that must be those of the survivors.
        """

    def partial(self, column: str) -> ColumnPartial | None:
        """The partial of a column over the survivors, None where it is not wholly known."""

    def range(self, column: str) -> ColumnRange | None:
        """The range of a column of which no partial is known, None where that is not known too."""


class FragmentStatistics(Protocol):
    """What is known of a table's fragments at one version, group by group."""

    def load(self, columns: Iterable[str]) -> None:
        """Get ready for questions about columns, which takes less time than one by one."""

    def survivors(self, filters: Sequence[Filter]) -> Survivors | None:
        """The fragments that a conjunction of filters leaves; None when none is ruled out."""

    def partial(self, column: str) -> ColumnPartial | None:
        """The partial of a column over the whole table, None where it is not wholly known."""


@dataclass(frozen=True, slots=True)
class NothingKnown:
    """Where neither state nor index tells fragments apart."""

    def load(self, columns: Iterable[str]) -> None:
        """There is nothing to load."""

    def survivors(self, filters: Sequence[Filter]) -> Survivors | None:
        """No fragment is ruled out."""
        return None

    def partial(self, column: str) -> ColumnPartial | None:
        """No column is known."""
        return None
