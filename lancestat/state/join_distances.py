"""The distances of a join's neighbours by rank, as a run counts them and its record keeps them."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    left_rows: int
    start: float
    width: float
    ranks: tuple[RankDistances, ...]
