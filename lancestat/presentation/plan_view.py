"""The view of a plan."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from typing_extensions import assert_never

from lancestat.formats import count, duration, large, size
from lancestat.joins.search.work import Scope
from lancestat.presentation.views import SYMBOLS, ActionView, PlanView
from lancestat.redact import redact_line
from lancestat.runs.actions import (
    Action,
    JoinAction,
    Plan,
    TableAction,
    gone_words,
    is_join,
    is_pending,
    join_figures,
    table_figures,
)
from lancestat.runs.node_result import planned
from lancestat.runs.stages import (
    CommitResult,
    ExtendLayout,
    GroupRows,
    JoinStage,
    LayOut,
    MeasureIndex,
    MergeNeighbours,
    MergePartials,
    PrepareSides,
    Probe,
    PublishStatistics,
    ReadFragments,
    RestampStatistics,
    ReuseLayout,
    ReusePartials,
    RunsOn,
    TableStage,
)
from lancestat.spec.catalog import shown_uri
from lancestat.spec.model import Policy
from lancestat.tables.coverage import Coverage


def plan_view(plan: Plan, policies: Mapping[str, Policy]) -> PlanView:
    """Return the view of a plan; `policies` has the policy of every table by its name."""
    verbs = Counter[str](action.verb for action in plan.actions)
    return PlanView(
        plan.project,
        plan.target,
        tuple(_action(action, policies.get(action.node)) for action in plan.actions),
        tuple((SYMBOLS[verb], verb, verbs[verb]) for verb in SYMBOLS if verbs[verb]),
        " ".join((_total(plan.actions), *_times(plan))),
        any(action.error for action in plan.actions),
        any(map(join_figures, plan.actions)),
        plan.sources,
        _estimated_seconds(plan),
        plan.spark_start_seconds,
        gone_words(plan.sources),
    )


def _action(action: Action, policy: Policy | None) -> ActionView:
    accepted = (policy.template or policy.accepted_staleness) if policy else ""
    result = planned(action)
    view = ActionView(
        result,
        SYMBOLS[action.verb],
        _reads(action),
        is_pending(action),
        result.reasons,
        action.notes,
        accepted,
        stages=tuple(explain_stages(action)),
        error=action.error.text() if action.error else None,
    )
    if not isinstance(action, JoinAction):
        return view
    choice = f"{action.decision.strategy.value}: {action.decision.why}"
    # What a narrowed scope does is in its note, but not what is known of keys.
    is_told = action.work.scope is Scope.FULL or action.sides.groups is not None
    return view._replace(choice=choice, shows_choice=is_told)


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


def explain_stages(action: Action) -> list[str]:
    """A line for each stage of an action, the decision on the strategy of a join before them."""
    lines = [f"{stage.name}: {_explain(stage)}" for stage in action.stages if not _is_plain(stage)]
    if isinstance(action, JoinAction):
        lines.insert(0, f"strategy: {action.decision.strategy.value}, {action.decision.why}")
    return lines


def _is_plain(stage: TableStage | JoinStage) -> bool:
    """Whether a stage needs no words: sides that are tables are opened where they are."""
    return isinstance(stage, PrepareSides) and not stage.written


def _explain(stage: TableStage | JoinStage) -> str:
    match stage:
        case ReusePartials():
            return _reused(stage.coverage)
        case ReadFragments():
            return (
                f"{_fragments(scan.fragment_id for scan in stage.scans)}, {_WHERE[stage.runs_on]}"
            )
        case MergePartials():
            return f"all partials, into the statistics of version {stage.version}"
        case RestampStatistics():
            return f"the statistics stay as they are, for version {stage.version}"
        case PublishStatistics():
            return "in the table's manifest" if stage.to_manifest else "in the state alone"
        case PrepareSides():
            sides = " and ".join(stage.written)
            unless = ", or read in place" if stage.unless_light else ""
            return f"the {sides} side is written once, as a Lance dataset{unless}"
        case LayOut():
            lists = count(stage.lists, "list")
            return f"the right side is written to scratch in {lists} by centroid"
        case ReuseLayout():
            lists, rows = count(stage.lists, "list"), count(stage.rows, "row")
            return f"the kept layout of {rows} in {lists} is searched as it is"
        case ExtendLayout():
            lists, rows = count(stage.lists, "list"), count(stage.rows, "row")
            put = count(stage.new_rows, "new row is", "new rows are")
            return f"{put} put into the {lists} of the kept layout of {rows}"
        case GroupRows():
            return "the rows of both sides are written to scratch by the keys that they share"
        case MeasureIndex():
            return "how far the index has to be searched, on a sample of left rows"
        case Probe():
            pairs = f", {large(stage.pairs)} pairs" if stage.pairs is not None else ""
            return f"{_COMPARED[stage.scope]}{pairs}"
        case MergeNeighbours():
            return "with the neighbours that the last run found"
        case CommitResult():
            how = "appended to" if stage.appends else "written to"
            return f"{how} {redact_line(shown_uri(stage.uri))} as {stage.format.value}"
        case _:
            assert_never(stage)


# Runs of consecutive fragments that are named; there may be thousands.
_RUNS_NAMED = 4


def _fragments(ids: Iterable[int]) -> str:
    """Return the ids of fragments: `fragment 3`, or `fragments 0 to 2, 5, 7, 9 and 120 more`."""
    numbers = sorted(set(ids))
    # Consecutive numbers are as far from their places.
    runs = [list(run) for _, run in groupby(numbers, lambda n: n - bisect_left(numbers, n))]
    named = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    rest = sum(map(len, runs[_RUNS_NAMED:]))
    listed = ", ".join(named[:_RUNS_NAMED]) + (f" and {count(rest)} more" if rest else "")
    return f"{'fragment' if len(numbers) == 1 else 'fragments'} {listed}"


def _reused(coverage: Coverage) -> str:
    """Return how much is reused: `240 stored partials, and 32 of fragments since compacted`."""
    as_they_are = sum(len(item.fields) for item in coverage.reuse)
    summed_up = sum(len(carry.fields) * len(carry.sources) for carry in coverage.carries)
    parts = [count(as_they_are, "stored partial")] if as_they_are else []
    parts += [f"{count(summed_up)} of fragments since compacted"] if summed_up else []
    return ", and ".join(parts)


_COMPARED = {
    Scope.FULL: "left rows against right rows",
    Scope.NEW_LEFT: "new left rows against right rows",
    Scope.NEW_RIGHT: "left rows against new right rows",
}


def _compares(action: JoinAction) -> str:
    decision, new = action.decision, action.new_rows
    left, right = action.sides.left_rows, action.sides.right_rows
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


def _estimated_seconds(plan: Plan) -> float | None:
    """Return the estimated time of a plan that only runs joins, None where it is not known."""
    tables = [figures for figures in map(table_figures, plan.actions) if figures is not None]
    reads_tables = any(figures.fragments_scanned for figures in tables)
    joins, start = plan.join_seconds, plan.spark_start_seconds
    return None if joins is None or start is None or reads_tables else joins + start


def _times(plan: Plan) -> Iterator[str]:
    """Yield a sentence about the time that joins and the start of Spark take, where it is known."""
    start, joins = plan.spark_start_seconds, plan.join_seconds
    if start is None or not (start or joins):
        return
    of_it = f", {start:.0f} s of it Spark's start" if start else ""
    if joins:
        subject = "Takes" if _estimated_seconds(plan) is not None else "The joins take"
        yield f"{subject} about {duration(joins + start)}{of_it}."
    elif start:
        yield f"Spark takes about {start:.0f} s to start."
