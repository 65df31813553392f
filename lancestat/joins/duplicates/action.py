"""What a run does about near-duplicates: its stages, its figures, and the action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lancestat import codec
from lancestat.formats import count, duration
from lancestat.joins.action import JoinAction, JoinFigures, JoinStage, missed
from lancestat.joins.duplicates.record import DuplicatesRecord, GroupCounts
from lancestat.joins.record import JoinRecord, OutputState
from lancestat.joins.search.work import PinnedTable, Scope
from lancestat.redact import redact_line
from lancestat.runs.actions import NodeAction, Reason, RunsOn, Stage, Verb, action_summary
from lancestat.runs.result import NodeResult
from lancestat.spec.catalog import shown_uri
from lancestat.spec.duplicates import Order
from lancestat.spec.model import NodeKind


@dataclass(frozen=True, slots=True)
class GroupPairs(Stage):
    """Put the rows of pairs into groups, and choose the row of each that is kept."""

    name: ClassVar[str] = "group pairs"
    words: ClassVar[str] = "rows that pairs connect become groups, and one row of each is kept"


@dataclass(frozen=True, slots=True)
class CommitGroups(Stage):
    """Replace the last result in one step; groups take over the ids of those in it."""

    name: ClassVar[str] = "commit groups"
    uri: str

    @property
    def words(self) -> str:
        return f"written to {redact_line(shown_uri(self.uri))}, with ids that last"


_NOT_JOINED = JoinFigures()


@dataclass(frozen=True, slots=True)
class DuplicatesFigures:
    """The figures that plans and runs show: those of the join, and what was found by it.

    A join that is not run again has compared no pairs.
    """

    join: JoinFigures = _NOT_JOINED
    counts: GroupCounts | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> DuplicatesFigures:
        """Return the figures that the object of a node shows; raises ValueError on others."""
        members = {name: stored.get(key) for key, name in COUNTS.items()}
        is_known = None not in members.values()
        counts = codec.convert(members, GroupCounts) if is_known else None
        return cls(JoinFigures.from_json(stored), counts)

    @classmethod
    def recorded(cls, record: DuplicatesRecord) -> DuplicatesFigures:
        """Return the figures of a result that is left as it is."""
        return cls(JoinFigures.recorded(record.pairs), record.counts)

    def to_json(self) -> dict[str, object]:
        """Return the figures as members of a node's object in the JSON of `plan` and `run`."""
        counts = self.counts
        return {
            **self.join.to_json(),
            **{key: counts and getattr(counts, name) for key, name in COUNTS.items()},
        }

    @property
    def pairs(self) -> int | None:
        return self.join.pairs

    @property
    def estimated_seconds(self) -> float | None:
        return self.join.estimated_seconds

    @property
    def compared(self) -> str:
        return self.join.compared

    @property
    def done(self) -> str:
        """What a run did: `exact, 1,020 rows, 520 thousand pairs`."""
        if self.join.scope is None:
            return "the pairs of the last run, grouped again"
        rows = count(self.join.counts.left_rows or 0, "row")
        return f"{self.join.strategy}, {self.narrowed or rows}, {self.compared}"

    @property
    def narrowed(self) -> str:
        return self.join.narrowed

    @property
    def quality(self) -> tuple[str, ...]:
        parts: list[str] = []
        if self.counts is not None:
            parts += counted(self.counts)
        if excluded := self.join.counts.excluded_right_rows:
            parts.append(f"{count(excluded, 'row')} without a usable vector or key")
        return (*parts, *missed(self.join.accuracy))


# Members of `GroupCounts`, by what JSON calls them.
COUNTS = {
    "duplicate_groups": "groups",
    "duplicate_rows": "rows",
    "duplicate_pairs": "pairs",
    "redundant_rows": "redundant_rows",
}


def counted(counts: GroupCounts) -> tuple[str, ...]:
    """Return counts in words: `20 groups of 43 rows`, `23 rows could go`, `25 pairs`."""
    if not counts.groups:
        return ("no duplicates",)
    return (
        f"{count(counts.groups, 'group')} of {count(counts.rows, 'row')}",
        f"{count(counts.redundant_rows, 'row')} could go",
        count(counts.pairs, "pair"),
    )


def duplicates_figures(result: NodeResult) -> DuplicatesFigures:
    figures = result.figures
    return figures if isinstance(figures, DuplicatesFigures) else DuplicatesFigures()


@dataclass(frozen=True, slots=True)
class GroupWork:
    """What groups are made of: a table at a version, some of its columns, and the output.

    `content` digests the rows of the table in these columns; `pairs_digest` is that of the meaning
    of the join, which writes to `pairs_uri`.
    """

    table: PinnedTable
    vector: str
    keys: tuple[str, ...]
    select: tuple[str, ...]
    order_by: tuple[Order, ...]
    metric: str
    output_uri: str
    content: str
    pairs_digest: str
    pairs_uri: str


@dataclass(frozen=True, slots=True)
class DuplicatesAction(NodeAction):
    """Find pairs and group them: `analyze` where there is no usable result yet, else `refresh`.

    `join` finds the pairs. Without one those of the last run are grouped, which `known` has.
    """

    kind: ClassVar[str] = NodeKind.DUPLICATES.value
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    node: str
    verb: Verb
    reasons: tuple[Reason, ...]
    work: GroupWork
    join: JoinAction | None
    known: tuple[JoinRecord, OutputState] | None = None
    notes: tuple[str, ...] = ()

    __repr__ = action_summary

    @property
    def stages(self) -> tuple[JoinStage | GroupPairs | CommitGroups, ...]:
        join = () if self.join is None else self.join.stages
        return (*join, GroupPairs(), CommitGroups(self.work.output_uri))

    @property
    def figures(self) -> DuplicatesFigures:
        if self.join is not None:
            return DuplicatesFigures(self.join.figures)
        return DuplicatesFigures(JoinFigures(pairs=0, estimated_seconds=0.0))

    @property
    def runs_on(self) -> RunsOn | None:
        return RunsOn.PROCESS if self.join is None else None

    @property
    def reads(self) -> str:
        """What is compared: `exact, 1,020 rows, about 3.1 s`."""
        if self.join is None:
            return "the pairs of the last run"
        decision, sides = self.join.decision, self.join.sides
        is_whole = self.join.work.scope is Scope.FULL
        rows = sides.left_rows if is_whole else self.join.new_rows[0]
        new = "" if is_whole else "new "
        counted_rows = f"{new}rows that pass the filter"
        if rows is not None:
            counted_rows = count(rows, f"{new}row")
        parts = [decision.strategy.value, counted_rows]
        if decision.seconds is not None:
            parts.append(f"about {duration(decision.seconds)}")
        return ", ".join(parts)

    @property
    def choice(self) -> str | None:
        return None if self.join is None else self.join.choice

    @property
    def shows_choice(self) -> bool:
        return self.join is not None and self.join.shows_choice
