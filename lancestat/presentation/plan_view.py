"""The view of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from typing_extensions import assert_never

from lancestat.formats import count, duration, large, size
from lancestat.knn.work import Scope
from lancestat.plan.actions import (
    Action,
    Blocked,
    JoinAction,
    Plan,
    TableAction,
    blocked,
    is_join,
    is_pending,
    join_figures,
    table_figures,
)
from lancestat.plan.node_result import planned
from lancestat.plan.stages import (
    CommitResult,
    JoinStage,
    LayOut,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
    ReadFragments,
    RunsOn,
)
from lancestat.presentation.views import SYMBOLS, ActionView, PlanView
from lancestat.redact import redact_line
from lancestat.spec.model import Policy


def plan_view(plan: Plan, policies: Mapping[str, Policy]) -> PlanView:
    """Return the view of a plan; `policies` has the policy of every table by its name."""
    verbs = Counter[str](action.verb for action in plan.actions)
    return PlanView(
        plan.project,
        plan.target,
        tuple(_action(action, policies.get(action.node)) for action in plan.actions),
        tuple((SYMBOLS[verb], verb, verbs[verb]) for verb in SYMBOLS if verbs[verb]),
        _total(plan.actions),
        bool(blocked(plan)),
        any(map(join_figures, plan.actions)),
    )


def _action(action: Action, policy: Policy | None) -> ActionView:
    accepted = (policy.template or policy.accepted_staleness) if policy else ""
    result = planned(action)
    if isinstance(action, Blocked):
        error = str(action.error)
        return ActionView(result, SYMBOLS[action.verb], "", False, accepted=accepted, error=error)
    view = ActionView(
        result,
        SYMBOLS[action.verb],
        _reads(action),
        is_pending(action),
        result.reasons,
        action.notes,
        accepted,
    )
    if not isinstance(action, JoinAction):
        return view
    choice = f"{action.decision.strategy.value}: {action.decision.why}"
    is_whole = action.work.scope is Scope.FULL
    return view._replace(choice=choice, method=tuple(explain_join(action)), is_whole=is_whole)


def _reads(action: Action) -> str:
    """Return what an action reads: `1 of 17 fragments, 250,000 rows, 12 MB`.

    Of a join, what it compares: `exact, 1,000 x 250,000 rows, about 3.1 s`.
    """
    match action:
        case JoinAction():
            return _compares(action)
        case TableAction(reading=None):
            return "nothing to read"
        case TableAction(reading=ReadFragments() as reading, figures=figures):
            total = count(figures.fragments_total, "fragment")
            part = f"{count(figures.fragments_scanned)} of {total}{_columns(action)}"
            rows, size_read = count(figures.rows_scanned, "row"), size(figures.bytes_scanned)
            return f"{part}, {rows}, {size_read}, {_WHERE[reading.runs_on]}"
        case _:
            return ""


_WHERE = {RunsOn.PROCESS: "in this process", RunsOn.SPARK: "on Spark"}


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
            unless = ", or read in place" if stage.unless_light else ""
            return f"scratch: the {sides} side is written once, as a Lance dataset{unless}"
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
            return f"materialize: {how} {redact_line(stage.uri)} as {stage.format.value}"
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
    """Return how many columns are read, where not all of them are."""
    if not isinstance(action, TableAction) or action.verb == "restamp":
        return ""
    touched = frozenset[str]().union(*{scan.fields for scan in action.scans})
    total = action.figures.columns
    return f" ({count(len(touched))} of {count(total, 'column')})" if len(touched) < total else ""


def _total(actions: Sequence[Action]) -> str:
    """Return what all actions read and compare, in a sentence or two."""
    figures = [table for table in map(table_figures, actions) if table is not None]
    scanned, sentences = sum(table.fragments_scanned for table in figures), []
    joins = [action for action in actions if is_join(action) and is_pending(action)]
    if scanned:
        part = f"{count(scanned)} of {count(sum(f.fragments_total for f in figures), 'fragment')}"
        rows = count(sum(table.rows_scanned for table in figures), "row")
        sentences.append(f"Reads {part}: {rows}, {size(sum(f.bytes_scanned for f in figures))}.")
    if joins:
        compared = [join.pairs if join else None for join in map(join_figures, joins)]
        # The pairs of a deferred join are not known yet.
        pairs = (
            "" if None in compared else f", {large(sum(number or 0 for number in compared))} pairs"
        )
        sentences.append(f"Runs {count(len(joins), 'join')}{pairs}.")
    return " ".join(sentences) or "Reads no data."
