"""What the state stores of near-duplicates: counts, and the identities of pairs and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancestat import codec
from lancestat.codec import Instant
from lancestat.joins.record import Accuracy, JoinRecord, OutputState
from lancestat.spec.model import NodeKind
from lancestat.state.values import StoredRecord, result_identity

# The sizes of so many of the largest groups are recorded.
MOST_SIZES = 10


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Groups, the rows that are in one, and the pairs that make them."""

    groups: int
    rows: int
    pairs: int

    @property
    def redundant_rows(self) -> int:
        """The rows that could go: all but one of each group."""
        return self.rows - self.groups


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """The sizes of groups: `counts` are of those of 2 rows, 3 to 4, 5 to 8 and so on.

    `largest` are the sizes of some of the largest groups, the largest first.
    """

    counts: tuple[int, ...]
    largest: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int]) -> GroupSizes:
        places = [(size - 1).bit_length() - 1 for size in sizes]
        counts = [0] * (max(places, default=-1) + 1)
        for place in places:
            counts[place] += 1
        return cls(tuple(counts), tuple(sorted(sizes, reverse=True)[:MOST_SIZES]))


@dataclass(frozen=True, slots=True)
class DuplicatesRecord:
    """The last result that a run made of near-duplicates.

    `digest` is that of their meaning, `content` that of the rows and columns of the table which the
    result depends on, and `pairs` the record of the join that found the pairs. `highest_id` is the
    highest id that a group has ever had.
    """

    node: str
    digest: str
    content: str
    pairs: JoinRecord
    result: OutputState
    counts: GroupCounts
    sizes: GroupSizes
    highest_id: int
    finished_at: Instant

    @property
    def accuracy(self) -> Accuracy:
        """That of the join which found the pairs."""
        return self.pairs.accuracy

    def stored(self, output_uri: str) -> StoredRecord:
        members = codec.encode(codec.builtins(self), separators=(",", ":"))
        return result_identity(NodeKind.DUPLICATES.value, output_uri), members

    def history_figures(self) -> dict[str, object]:
        """Return what the history of near-duplicates keeps of the record."""
        return {
            "rows": self.pairs.counts.left_rows,
            "duplicate_groups": self.counts.groups,
            "duplicate_rows": self.counts.rows,
            "duplicate_pairs": self.counts.pairs,
        }


def decode_record(stored: str) -> DuplicatesRecord:
    """Return the record of its stored form; raises ValueError on anything else."""
    return codec.decode(stored, DuplicatesRecord)
