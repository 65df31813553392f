"""The counts of a join and the accuracy of its search: in its record, outcome and figures.

Spark's workers import this module, which imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Rows = TypeVar("Rows", bound="int | None", covariant=True)


@dataclass(frozen=True, slots=True)
class JoinCounts(Generic[Rows]):
    """Rows of a join, of both sides as a whole, whatever a run compared.

    `unmatched_left_rows` have a vector that cannot match, or there was nothing to match;
    `excluded_right_rows` have a vector that cannot match. A plan has None where they are not known.
    """

    left_rows: Rows
    right_rows: Rows
    unmatched_left_rows: Rows
    excluded_right_rows: Rows


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of an approximate search: its recall on a sample, by so many probes.

    The recall is 1.0 where every pair was compared though that was not asked for.
    """

    recall: float | None = None
    nprobes: int | None = None


@dataclass(frozen=True, slots=True)
class JoinGroups:
    """The groups of rows with equal keys, and the pairs in all of them together.

    They are of a run that joined all of its `left_rows` with all of its `right_rows`.
    """

    groups: int
    pairs: int
    left_rows: int
    right_rows: int


UNCOUNTED: JoinCounts[int | None] = JoinCounts(None, None, None, None)
UNMEASURED = Accuracy()

# The members of a join's record, and of its figures, whose own members are stored in their place.
JOIN_MEASURES = ("counts", "accuracy")
