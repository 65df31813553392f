"""The view of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from lancestat.formats import count, duration, large, size
from lancestat.presentation.views import SYMBOLS, ActionView, PlanView
from lancestat.runs.actions import (
    Action,
    Plan,
    gone_words,
    is_pending,
    own_figures,
    table_figures,
)
from lancestat.runs.result import planned
from lancestat.spec.model import Policy


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
        any(map(own_figures, plan.actions)),
        plan.sources,
        _estimated_seconds(plan),
        plan.spark_start_seconds,
        gone_words(plan.sources),
    )


def _action(action: Action, policy: Policy | None) -> ActionView:
    accepted = (policy.template or policy.accepted_staleness) if policy else ""
    result = planned(action)
    return ActionView(
        result,
        SYMBOLS[action.verb],
        action.reads,
        is_pending(action),
        result.reasons,
        action.notes,
        accepted,
        tuple(explain_stages(action)),
        action.choice,
        action.shows_choice,
        action.error.text() if action.error else None,
    )


def explain_stages(action: Action) -> list[str]:
    """A line for each stage of an action, the choice of a strategy before them."""
    lines = [f"{stage.name}: {stage.words}" for stage in action.stages if stage.words]
    if action.choice is not None:
        lines.insert(0, f"strategy: {action.choice.replace(': ', ', ', 1)}")
    return lines


def _total(actions: Sequence[Action]) -> str:
    figures = [table for table in map(table_figures, actions) if table is not None]
    scanned, sentences = sum(table.fragments_scanned for table in figures), []
    joins = [own for own in map(own_figures, filter(is_pending, actions)) if own is not None]
    if scanned:
        part = f"{count(scanned)} of {count(sum(f.fragments_total for f in figures), 'fragment')}"
        rows = count(sum(table.rows_scanned for table in figures), "row")
        sentences.append(f"Reads {part}: {rows}, {size(sum(f.bytes_scanned for f in figures))}.")
    if joins:
        compared = [join.pairs for join in joins]
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
