"""What the state stores of joins: what they measure, and the identities of sides and results."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Generic, TypeVar

from lancestat import codec
from lancestat.codec import Instant
from lancestat.formats import StringEnum
from lancestat.spec.model import NodeKind
from lancestat.state.values import StoredRecord, result_identity

Rows = TypeVar("Rows", bound="int | None", covariant=True)


@dataclass(frozen=True, slots=True)
class JoinCounts(Generic[Rows]):
    """Rows of both sides of a join as a whole, whatever a run compared.

    `unmatched_left_rows` have a vector that cannot match, or there was nothing to match;
    `excluded_right_rows` have a vector that cannot match. A plan has None where they are not known.
    """

    left_rows: Rows
    right_rows: Rows
    unmatched_left_rows: Rows
    excluded_right_rows: Rows


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The recall on a sample that an approximate search by so many probes reached.

    It is 1.0 where every pair was compared though that was not asked for.
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


# The shares of a rank's rows that `RankDistances.quantiles` are of.
QUANTILES = (0.5, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class RankDistances:
    """The distances of the neighbours of one rank; of all together where `rank` is None.

    `counts` are those in the intervals of `JoinDistances`, `below` and `above` those before the
    first and after the last. `quantiles` belong to `QUANTILES`: distances rounded down by less
    than a hundredth, None where one is infinite.
    """

    rank: int | None
    counts: tuple[int, ...]
    below: int
    above: int
    quantiles: tuple[float | None, ...]

    @property
    def rows(self) -> int:
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


@dataclass(frozen=True, slots=True)
class InputRecord:
    """The record of a side of a join when it was last read.

    `digest` is over its content in row order. A Lance table has `fragments` that hold rows up to
    the id `last_fragment`; `rows` is None where they were not counted. Of a query, `unproven` says
    what kept the run from proving that equal digests mean equal rows, None when that was not
    checked.
    """

    digest: str
    fragments: int = 0
    last_fragment: int = -1
    rows: int | None = None
    unproven: tuple[str, ...] | None = None


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

    rows: int
    digest: str
    version: int | None = None
    generation: str | None = None

    def is_seen_in(self, output: OutputState | None) -> bool:
        """Whether readers of an output see this result."""
        return output is not None and (self.rows, self.digest) == (output.rows, output.digest)


@dataclass(frozen=True, slots=True)
class JoinRecord:
    """The last result that a run made of a join, by its name in the project.

    `digest` is that of its meaning, and `groups` are what the last run that compared all rows
    found. `neighbours` are the folders in scratch that have those of the result, by their paths
    there; none where they are not kept.
    """

    node: str
    digest: str
    left: InputRecord
    right: InputRecord
    result: OutputState
    counts: JoinCounts[int]
    strategy: str
    finished_at: Instant
    accuracy: Accuracy = UNMEASURED
    distances: JoinDistances | None = None
    groups: JoinGroups | None = None
    neighbours: tuple[str, ...] = ()

    def stored(self, output_uri: str) -> StoredRecord:
        members = codec.flattened(codec.builtins(self), *JOIN_MEASURES)
        key = result_identity(NodeKind.KNN_JOIN.value, output_uri)
        return key, codec.encode(members, separators=(",", ":"))

    def history_figures(self) -> dict[str, object]:
        """Return what the history of a join keeps of the record.

        `distances` are the quantiles (`QUANTILES`) of all neighbours, or of the first rank's.
        """
        ranks = self.distances.ranks if self.distances else ()
        return {
            "rows": self.result.rows,
            "left_rows": self.counts.left_rows,
            "right_rows": self.counts.right_rows,
            "unmatched_left_rows": self.counts.unmatched_left_rows,
            "recall": self.accuracy.recall,
            "distances": list(ranks[0].quantiles) if ranks else None,
        }


def decode_record(stored: str) -> JoinRecord:
    """Return the record of its stored form; raises ValueError on anything else."""
    return codec.convert(codec.nested(codec.decode(stored, dict), *JOIN_MEASURES), JoinRecord)
