"""What a run does about a KNN join: its stages, its figures, and the action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lancestat import codec
from lancestat.formats import count, duration, large, spoken
from lancestat.joins.record import (
    JOIN_MEASURES,
    UNCOUNTED,
    UNMEASURED,
    Accuracy,
    InputRecord,
    JoinCounts,
    JoinRecord,
    OutputFormat,
)
from lancestat.joins.search.cost_model import Decision, JoinSize, Strategy
from lancestat.joins.search.work import JoinWork, Scope
from lancestat.redact import redact_line
from lancestat.runs.actions import NodeAction, Reason, Stage, Verb, action_summary
from lancestat.runs.result import NodeResult
from lancestat.spec.catalog import shown_uri
from lancestat.spec.model import NodeKind


@dataclass(frozen=True, slots=True)
class PrepareSides(Stage):
    """Open both sides of a join; those that are `written` become scratch datasets first.

    A side in `unless_light` is read in place where one task compares all left rows with it.
    """

    name: ClassVar[str] = "prepare"
    written: tuple[str, ...]
    unless_light: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        if not self.written:
            return ""
        unless = ", or read in place" if self.unless_light else ""
        sides = " and ".join(self.written)
        return f"the {sides} side is written once, as a Lance dataset{unless}"


@dataclass(frozen=True, slots=True)
class _IndexStage(Stage):
    """A stage whose index has that many IVF lists."""

    lists: int

    @property
    def detail(self) -> str:
        return count(self.lists, "list")


@dataclass(frozen=True, slots=True)
class BuildIndex(_IndexStage):
    """Write the right side to scratch in lists by centroid.

    Where the sizes of the sides are not known yet, a plan gets this stage when they are prepared.
    """

    name: ClassVar[str] = "build index"

    @property
    def words(self) -> str:
        return f"the right side is written to scratch in {self.detail}, an IVF index"


@dataclass(frozen=True, slots=True)
class ReuseIndex(_IndexStage):
    """Search the kept index of the right side, which has all its rows in lists by centroid."""

    name: ClassVar[str] = "reuse index"
    rows: int

    @property
    def words(self) -> str:
        rows = count(self.rows, "row")
        return f"the kept index of {rows} in {self.detail} is searched as it is"


@dataclass(frozen=True, slots=True)
class ExtendIndex(_IndexStage):
    """Put new rows of the right side into the lists of its kept index, which has `rows`."""

    name: ClassVar[str] = "extend index"
    rows: int
    new_rows: int

    @property
    def words(self) -> str:
        put = count(self.new_rows, "new row is", "new rows are")
        return f"{put} put into the {self.detail} of the kept index of {count(self.rows, 'row')}"


@dataclass(frozen=True, slots=True)
class MeasureIndex(Stage):
    """Find out on a sample how far the vector index of the right side has to be searched."""

    name: ClassVar[str] = "measure"
    words: ClassVar[str] = "how far the index has to be searched, on a sample of left rows"


@dataclass(frozen=True, slots=True)
class GroupRows(Stage):
    """Write the rows of both sides to scratch by the keys that they share."""

    name: ClassVar[str] = "group"
    words: ClassVar[str] = (
        "the rows of both sides are written to scratch by the keys that they share"
    )


@dataclass(frozen=True, slots=True)
class Probe(Stage):
    """Search neighbours for the pairs of a scope; `pairs` is None where it is not known.

    Tasks write what they find, merged with the last result where `MergeNeighbours` follows: all
    that is one job, whose rows count for the stage that they have reached.
    """

    name: ClassVar[str] = "probe"
    strategy: Strategy
    scope: Scope
    pairs: int | None

    @property
    def detail(self) -> str:
        return self.strategy.value

    @property
    def words(self) -> str:
        pairs = f", {large(self.pairs)} pairs" if self.pairs is not None else ""
        return f"{_COMPARED[self.scope]}{pairs}"


@dataclass(frozen=True, slots=True)
class MergeNeighbours(Stage):
    """Merge the neighbours that were found with those of the last result that are still there."""

    name: ClassVar[str] = "merge"
    words: ClassVar[str] = "with the neighbours that the last run found"


@dataclass(frozen=True, slots=True)
class CommitResult(Stage):
    """Commit the rows that were written, appending to the last result or replacing it.

    One that `updates` the last result also removes rows of it.
    """

    name: ClassVar[str] = "commit"
    format: OutputFormat
    uri: str
    appends: bool
    updates: bool = False

    @property
    def words(self) -> str:
        how = "appended to" if self.appends else "written to"
        if self.updates:
            how = "rows that are no more are removed from, and new ones appended to,"
        return f"{how} {redact_line(shown_uri(self.uri))} as {self.format.value}"


SIDES = ("left", "right")

_COMPARED = {
    Scope.FULL: "left rows against right rows",
    Scope.NEW_LEFT: "new left rows against right rows",
    Scope.NEW_RIGHT: "left rows against new right rows",
    Scope.CHANGED: "new left rows against right rows, and others against new right rows",
}

JoinStage = (
    PrepareSides
    | BuildIndex
    | ReuseIndex
    | ExtendIndex
    | MeasureIndex
    | GroupRows
    | Probe
    | MergeNeighbours
    | CommitResult
)


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """The figures that plans and runs show for a join, None where they are not known (yet).

    `pairs` are compared by this run, in `scope`, and in `groups` of rows with equal keys where
    there are keys; a plan has the groups of the last run, and estimates the pairs from those. Only
    a plan has `why` the strategy was chosen, and `estimated_seconds`.
    """

    strategy: str | None = None
    scope: str | None = None
    counts: JoinCounts[int | None] = UNCOUNTED
    pairs: int | None = None
    accuracy: Accuracy = UNMEASURED
    why: str | None = None
    estimated_seconds: float | None = None
    groups: int | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> JoinFigures:
        """Return the figures that the object of a node shows; raises ValueError on others."""
        members = {**cls().to_json(), **stored}
        return codec.convert(codec.nested(members, *JOIN_MEASURES), cls)

    @classmethod
    def recorded(cls, record: JoinRecord) -> JoinFigures:
        """Return the figures of a result that is left as it is."""
        groups = None if record.groups is None else record.groups.groups
        return cls(record.strategy, counts=record.counts, accuracy=record.accuracy, groups=groups)

    def to_json(self) -> dict[str, object]:
        """Return the figures as members of a node's object in the JSON of `plan` and `run`."""
        return codec.flattened(codec.builtins(self), *JOIN_MEASURES)

    @property
    def compared(self) -> str:
        """What was compared: `5 groups, 2,000 pairs`."""
        pairs = f"{large(self.pairs or 0)} pairs"
        return pairs if self.groups is None else f"{count(self.groups, 'group')}, {pairs}"

    @property
    def done(self) -> str:
        """What a run did: `exact, 1,000 x 20 rows, 20,000 pairs`."""
        whole = f"{count(self.counts.left_rows or 0)} x {count(self.counts.right_rows or 0)} rows"
        return f"{self.strategy}, {self.narrowed or whole}, {self.compared}"

    @property
    def narrowed(self) -> str:
        """The part of the rows that a run joined, empty where it joined all of them."""
        return "" if self.scope in (None, Scope.FULL.value) else f"{spoken([self.scope])} rows"

    @property
    def quality(self) -> tuple[str, ...]:
        parts = []
        if self.counts.unmatched_left_rows:
            parts.append(f"{count(self.counts.unmatched_left_rows, 'left row')} without neighbours")
        if self.counts.excluded_right_rows:
            parts.append(excluded_rows(self.counts.excluded_right_rows))
        return (*parts, *missed(self.accuracy))


def join_figures(result: NodeResult) -> JoinFigures:
    return result.figures if isinstance(result.figures, JoinFigures) else JoinFigures()


def excluded_rows(rows: int) -> str:
    """Return how many rows of the right side take no part in a join."""
    return f"{count(rows, 'right row')} without a usable vector or key"


def missed(accuracy: Accuracy) -> tuple[str, ...]:
    """Return the recall in words where something was missed."""
    if accuracy.recall is None or accuracy.recall >= 1:
        return ()
    return (f"recall {measured_recall(accuracy.recall, accuracy.nprobes)}",)


def measured_recall(recall: float, nprobes: int | None) -> str:
    """Return the recall of an approximate join: `0.987 on a sample with 8 probes`."""
    probes = f" with {count(nprobes, 'probe')}" if nprobes else ""
    return f"{recall:.3f} on a sample{probes}"


@dataclass(frozen=True, slots=True)
class JoinAction(NodeAction):
    """Run a join: `analyze` where it has no usable result yet, else `refresh`.

    `sides` are the sizes of the whole sides, and `new_rows` the rows of them, left and right, that
    a narrowed scope joins, where that is known.
    `left` and `right` are remembered once it is done, and None where the sides are DataFrames.
    `stages` follow from `decision`: sides are prepared first, and the result is committed last.
    `known` is the accuracy of the last result, as far as the join goes on from it.
    """

    kind: ClassVar[str] = NodeKind.KNN_JOIN.value
    dependencies: ClassVar[tuple[str, ...]] = ()
    error: ClassVar[None] = None
    node: str
    verb: Verb
    reasons: tuple[Reason, ...]
    work: JoinWork
    sides: JoinSize
    decision: Decision
    stages: tuple[JoinStage, ...]
    left: InputRecord | None = None
    right: InputRecord | None = None
    new_rows: tuple[int | None, int | None] = (None, None)
    known: Accuracy = UNMEASURED
    notes: tuple[str, ...] = ()

    __repr__ = action_summary

    @property
    def figures(self) -> JoinFigures:
        decision = self.decision
        seconds = None if decision.seconds is None else round(decision.seconds, 1)
        return JoinFigures(
            strategy=decision.strategy.value,
            scope=self.work.scope.value,
            counts=JoinCounts(self.sides.left_rows, self.sides.right_rows, None, None),
            pairs=decision.pairs,
            accuracy=self.known,
            why=decision.why,
            estimated_seconds=seconds,
            groups=None if self.sides.groups is None else self.sides.groups.groups,
        )

    @property
    def reads(self) -> str:
        """What is compared: `exact, 1,000 x 250,000 rows, about 3.1 s`."""
        left, right = self.sides.left_rows, self.sides.right_rows
        if self.work.scope is Scope.CHANGED:
            return ", ".join([self.decision.strategy.value, self._changed_rows, *self._about])
        if self.work.scope is Scope.NEW_LEFT:
            left = self.new_rows[0]
        elif self.work.scope is Scope.NEW_RIGHT:
            right = self.new_rows[1]
        rows = " x ".join("?" if side is None else count(side) for side in (left, right)) + " rows"
        if left is None or right is None:
            rows += " (counted when it runs)"
        return ", ".join([self.decision.strategy.value, rows, *self._about])

    @property
    def _changed_rows(self) -> str:
        rows = " and ".join("?" if rows is None else count(rows) for rows in self.new_rows)
        return f"{rows} new rows"

    @property
    def _about(self) -> tuple[str, ...]:
        seconds = self.decision.seconds
        return () if seconds is None else (f"about {duration(seconds)}",)

    @property
    def choice(self) -> str:
        return f"{self.decision.strategy.value}: {self.decision.why}"

    @property
    def shows_choice(self) -> bool:
        """Whether the notes leave the choice unsaid; those on a narrowed scope have it."""
        return self.work.scope is Scope.FULL or self.sides.groups is not None
