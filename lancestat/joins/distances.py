"""The distances of a join's neighbours by rank, as a run counts them and its record keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

# The shares of a rank's rows that `RankDistances.quantiles` are of.
QUANTILES = (0.5, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class RankDistances:
    """The distances of the neighbours of one rank; of all together where `rank` is None.

    `counts` are those in the intervals of `JoinDistances`, `below` and `above` those before the
    first and behind the last. `quantiles` belong to `QUANTILES`: distances rounded down by less
    than a hundredth, None where one is infinite.
    """

    rank: int | None
    counts: tuple[int, ...]
    below: int
    above: int
    quantiles: tuple[float | None, ...]

    @property
    def rows(self) -> int:
        """How many neighbours there are."""
        return self.below + sum(self.counts) + self.above


@dataclass(frozen=True, slots=True)
class JoinDistances:
    """The distances that a run wrote, of `left_rows` left rows.

    Interval `i` is from `start + i * width` up to and without `start + (i + 1) * width`, the same
    for all ranks. `ranks` are those that some left row has a neighbour of.

    Raises:
        ValueError: there are no intervals, or a rank is not counted in each of them.
    """

    left_rows: int
    start: float
    width: float
    ranks: tuple[RankDistances, ...]

    def __post_init__(self) -> None:
        # Pages draw what is stored, and a record may be damaged.
        intervals = {len(rank.counts) for rank in self.ranks}
        if len(intervals) != 1 or 0 in intervals:
            raise ValueError("the ranks have not the same intervals")
        if any(len(rank.quantiles) != len(QUANTILES) for rank in self.ranks):
            raise ValueError(f"a rank has not {len(QUANTILES)} quantiles")
        if not (isfinite(self.start) and isfinite(self.width) and self.width > 0):
            raise ValueError(f"no intervals start at {self.start} with a width of {self.width}")
