"""What every rendering of a plan says of an action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import assert_never

from lancestat.formats import count, duration, large, size
from lancestat.knn.work import Scope
from lancestat.plan.actions import (
    SYMBOLS,
    Action,
    Deferred,
    JoinAction,
    TableAction,
    is_pending,
    join_figures,
    table_figures,
)
from lancestat.plan.stages import (
    CommitResult,
    JoinStage,
    LayOut,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
)
from lancestat.redact import clean


def reads(action: Action) -> str:
    """What an action reads: `1 of 17 fragments, 250,000 rows, 12 MB`.

    Of a join, what it compares: `exact, 1,000 x 250,000 rows, about 3.1 s`.
    """
    if isinstance(action, JoinAction):
        return _compares(action)
    figures = table_figures(action)
    if figures is None or not is_pending(action):
        return ""
    if not figures.fragments_scanned:
        return "nothing to read"
    part = f"{count(figures.fragments_scanned)} of {count(figures.fragments_total, 'fragment')}"
    rows = count(figures.rows_scanned, "row")
    return f"{part}{_columns(action)}, {rows}, {size(figures.bytes_scanned)}"


def choice(action: JoinAction) -> str:
    """The strategy of a join, and why it is that one."""
    return f"{action.decision.strategy.value}: {action.decision.why}"


def explain_join(action: JoinAction) -> list[str]:
    """A line for the decision of a join, and one for each of its stages that does any work."""
    decision = action.decision
    lines = [f"gate: {decision.strategy.value}, {decision.why}"]
    lines += [line for stage in action.stages if (line := _explain(stage)) is not None]
    return lines


def _explain(stage: JoinStage) -> str | None:
    match stage:
        case PrepareSides(written=()):
            return None
        case PrepareSides():
            sides = " and ".join(stage.written)
            return f"scratch: the {sides} side is written once, as a Lance dataset"
        case LayOut():
            lists = count(stage.lists, "list") if stage.lists else "lists"
            return f"scratch: the right side is laid out in {lists} by centroid"
        case MeasureIndex():
            return None
        case Probe():
            pairs = f", {large(stage.pairs)} pairs" if stage.pairs is not None else ""
            return f"probe: {_COMPARED[stage.scope]}{pairs}"
        case MergeNeighbours():
            return "merge: with the neighbours that the last run found"
        case CommitResult():
            how = "appended to" if stage.appends else "written to"
            return f"materialize: {how} {clean(stage.uri)} as {stage.format.value}"
        case _:
            assert_never(stage)


_COMPARED = {
    Scope.FULL: "left rows against right rows",
    Scope.NEW_LEFT: "new left rows against right rows",
    Scope.NEW_RIGHT: "left rows against new right rows",
}


def _compares(action: JoinAction) -> str:
    decision, new = action.decision, action.new_rows
    left, right = action.figures.left_rows, action.figures.right_rows
    match action.work.scope:
        case Scope.NEW_LEFT:
            left = new
        case Scope.NEW_RIGHT:
            right = new
    rows = " x ".join("?" if side is None else count(side) for side in (left, right)) + " rows"
    if left is None or right is None:
        rows += " (counted when it runs)"
    parts = [decision.strategy.value, rows]
    if decision.seconds is not None:
        parts.append(f"about {duration(decision.seconds)}")
    return ", ".join(parts)


def _columns(action: Action) -> str:
    """Which columns are read, where not all of them are."""
    if not isinstance(action, TableAction) or action.verb == "restamp":
        return ""
    touched = frozenset[str]().union(*{scan.fields for scan in action.scans})
    total = action.figures.columns
    return f" ({count(len(touched))} of {count(total, 'column')})" if len(touched) < total else ""


@dataclass(frozen=True, slots=True)
class Totals:
    """A plan in one glance; `verbs` counts the actions by word, in the order of the symbols.

    `pairs` are those that `joins` compare, None where one of them does not know yet.
    """

    verbs: tuple[tuple[str, int], ...]
    fragments_total: int
    fragments_scanned: int
    rows_scanned: int
    bytes_scanned: int
    joins: int = 0
    pairs: int | None = 0

    def __str__(self) -> str:
        if not self.joins:
            return self._reads
        pairs = "" if self.pairs is None else f", {large(self.pairs)} pairs"
        joins = f"Runs {count(self.joins, 'join')}{pairs}."
        return f"{self._reads} {joins}" if self.fragments_scanned else joins

    @property
    def _reads(self) -> str:
        if not self.fragments_scanned:
            return "Reads no data."
        part = f"{count(self.fragments_scanned)} of {count(self.fragments_total, 'fragment')}"
        return f"Reads {part}: {count(self.rows_scanned, 'row')}, {size(self.bytes_scanned)}."


def totals(actions: Sequence[Action]) -> Totals:
    """Add up actions."""
    verbs = Counter[str](action.verb for action in actions)
    figures = [each for each in map(table_figures, actions) if each is not None]
    joins = [action for action in actions if _runs_join(action)]
    pairs = [found.pairs if found else None for found in map(join_figures, joins)]
    return Totals(
        tuple((word, verbs[word]) for word in SYMBOLS if verbs[word]),
        sum(each.fragments_total for each in figures),
        sum(each.fragments_scanned for each in figures),
        sum(each.rows_scanned for each in figures),
        sum(each.bytes_scanned for each in figures),
        len(joins),
        None if None in pairs else sum(each or 0 for each in pairs),
    )


def _runs_join(action: Action) -> bool:
    return isinstance(action, JoinAction | Deferred) and action.kind == JoinAction.kind
