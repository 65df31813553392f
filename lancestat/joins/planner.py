"""Plans joins: pure functions from values to actions, like the planner of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

from typing_extensions import assert_never

from lancestat.formats import count
from lancestat.joins.action import (
    BuildIndex,
    CommitResult,
    ExtendIndex,
    GroupRows,
    JoinAction,
    JoinFigures,
    JoinStages,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
    ReuseIndex,
    SearchStage,
)
from lancestat.joins.record import Accuracy, InputRecord, JoinGroups, JoinRecord
from lancestat.joins.search.cost_model import Decision, JoinSize, KeptIndex, Strategy, choose
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.work import (
    RANGE_NEIGHBOURS,
    Increment,
    JoinKind,
    JoinRequest,
    JoinWork,
    OutputFormat,
    OutputState,
    Scope,
    exact_request,
    scope_request,
    self_pairs,
)
from lancestat.joins.sides import JoinInput, SideChange, appended, change
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.knn_join import ALL
from lancestat.spec.model import KnnJoin


@dataclass(frozen=True, slots=True)
class JoinAssessment:
    """One join as it is now, next to what was last made of it.

    `digest` is that of its meaning, `output` what readers see now, `cores` how many tasks will run
    at once, 0 where that is not known, and `has_nearest_by_join` what Spark has. `kept` is the
    index of the right side that earlier runs have left.
    """

    spec: KnnJoin
    digest: str
    left: JoinInput
    right: JoinInput
    record: JoinRecord | None
    output: OutputState | None
    cores: int = 0
    has_nearest_by_join: bool = True
    kept: KeptIndex | None = None

    @property
    def is_intact(self) -> bool:
        """Whether readers see what the last run wrote."""
        if self.record is None or self.output is None:
            return False
        made = self.record.result
        return (made.rows, made.digest) == (self.output.rows, self.output.digest)


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """The pairs to compare: those of `new` fragments of one side only, unless the scope is full."""

    scope: Scope
    reasons: tuple[Reason, ...]
    new: frozenset[int] = frozenset()
    new_rows: int | None = None


def request_of(join: KnnJoin) -> JoinRequest:
    """Return the request that a declared join makes."""
    return JoinRequest(
        k=RANGE_NEIGHBOURS if join.k == ALL else int(join.k),
        max_pairs=join.max_pairs if join.k == ALL else None,
        metric=metric_named(join.metric),
        kind=JoinKind(join.join),
        nprobes=join.nprobes,
        recall=join.recall,
        min_right_rows=join.min_right_rows,
        with_rank=join.rank,
        has_keys=bool(join.on),
        self_pairs=self_pairs(join.pairs, excludes_self=join.exclude_self),
        max_distance=None if join.max_distance is None else float(join.max_distance),
    )


def decide_join(assessment: JoinAssessment, *, full_refresh: bool = False) -> JoinAction | Skip:
    """Decide what to do about a join, and why.

    The last result is extended only if it is what the last run wrote, and only one side has rows
    behind those that the run saw. New right rows need a left side that is a table: the rows of
    other sides may come in another order, so that neighbours could not be matched to them. They
    also need as many neighbours for each left row as there are right rows of its keys, up to k:
    under a `max_distance` nothing tells which rows of the last result belong to which left row.
    """
    narrowing = _narrow(assessment, full_refresh)
    if narrowing is None:
        figures = _recorded(assessment)
        notes = (*assessment.left.notes, *assessment.right.notes)
        return Skip(
            assessment.spec.name, (Reason.UNCHANGED,), figures, notes, assessment.spec.kind.value
        )
    return _join(assessment, narrowing, is_fresh=full_refresh)


def _narrow(assessment: JoinAssessment, full_refresh: bool) -> _Narrowing | None:
    """The scope and its reasons, None where nothing is to be done."""
    record = assessment.record
    if record is None:
        return _Narrowing(Scope.FULL, (Reason.NEW,))
    if full_refresh:
        return _Narrowing(Scope.FULL, (Reason.FULL_REFRESH,))
    reasons: set[Reason] = set()
    if record.digest != assessment.digest:
        reasons.add(Reason.SPEC_CHANGED)
    if not assessment.is_intact:
        reasons.add(Reason.OUTPUT_MISSING)
    left, right = change(assessment.left, record.left), change(assessment.right, record.right)
    if not reasons and (left, right) == (SideChange.NONE, SideChange.NONE):
        return None
    if not reasons and (left, right) == (SideChange.APPENDED, SideChange.NONE):
        return _appended(Scope.NEW_LEFT, assessment.left, record)
    is_placed = assessment.left.is_table and assessment.spec.max_distance is None
    if not reasons and (left, right) == (SideChange.NONE, SideChange.APPENDED) and is_placed:
        return _appended(Scope.NEW_RIGHT, assessment.right, record)
    # Other sides than those that were recorded have no history.
    if Reason.SPEC_CHANGED not in reasons:
        changes = {left, right} - {SideChange.NONE}
        reasons |= {Reason.INPUT_CHANGED} if changes else set()
        reasons |= {Reason.ROWS_APPENDED} if SideChange.APPENDED in changes else set()
    return _Narrowing(Scope.FULL, tuple(reason for reason in Reason if reason in reasons))


def _appended(scope: Scope, side: JoinInput, record: JoinRecord) -> _Narrowing:
    new = appended(side, record.left if scope is Scope.NEW_LEFT else record.right)
    ids = frozenset(fragment.id for fragment in new)
    # How many pass a filter only a run can tell.
    rows = None if side.work.filter is not None else sum(fragment.rows for fragment in new)
    return _Narrowing(scope, (Reason.ROWS_APPENDED,), ids, rows)


def _join(assessment: JoinAssessment, narrowing: _Narrowing, *, is_fresh: bool) -> JoinAction:
    spec, record, scope = assessment.spec, assessment.record, narrowing.scope
    left, right = assessment.left, assessment.right
    increment = None
    if scope is not Scope.FULL and record is not None and assessment.output is not None:
        increment = Increment(scope, narrowing.new, assessment.output, record.counts)
    work = JoinWork(
        node=spec.name,
        request=request_of(spec),
        left=left.work,
        right=right.work,
        output_format=OutputFormat(spec.output_format),
        output_uri=spec.output_uri,
        increment=increment,
        is_fresh=is_fresh,
    )
    known = Accuracy(nprobes=spec.nprobes)
    if increment is not None and record is not None:
        known = record.accuracy
    sides = JoinSize(
        left.rows,
        right.rows,
        right.dimension or left.dimension,
        has_index=right.index is not None and right.index == work.request.metric.index_name,
        has_nearest_by_join=assessment.has_nearest_by_join,
        kept=None if is_fresh else assessment.kept,
        groups=_known_groups(assessment),
    )
    usable = record is not None and assessment.output is not None
    return replace(
        plan_join(work, sides, assessment.cores, new_rows=narrowing.new_rows),
        verb="refresh" if usable else "analyze",
        reasons=narrowing.reasons,
        left=left.to_record(),
        right=right.to_record(),
        known=known,
        notes=(*_scope_notes(assessment, narrowing), *left.notes, *right.notes),
    )


def _known_groups(assessment: JoinAssessment) -> JoinGroups | None:
    """Return what the last run found of the keys, if the join still has the same meaning."""
    record = assessment.record
    if record is None or record.digest != assessment.digest:
        return None
    return record.groups


def plan_join(
    work: JoinWork, sides: JoinSize, cores: int = 0, *, new_rows: int | None = None
) -> JoinAction:
    """Choose the strategy and the stages of a join.

    Args:
        work: The rows to compare, and the place of the result.
        sides: The sizes of the whole sides, as far as they are known.
        cores: How many tasks will run at once, 0 where that is not known.
        new_rows: The rows that a narrowed scope joins.

    Returns:
        An action that makes a new result.
    """
    compared = sides
    if work.scope is Scope.NEW_LEFT:
        compared = replace(sides, left_rows=new_rows)
    if work.scope is Scope.NEW_RIGHT:
        compared = replace(sides, right_rows=new_rows, has_index=False, kept=None)
    decision = _decision(work, JoinFacts(compared, cores))
    return JoinAction(
        node=work.node,
        verb="analyze",
        reasons=(Reason.NEW,),
        work=work,
        sides=sides,
        decision=decision,
        stages=_stages(work, decision, ()),
        new_rows=new_rows,
    )


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """The facts about prepared sides.

    `compared` are the sizes of the rows to compare, `cores` how many tasks run at once (0 where
    unknown), and `in_place` the sides that are read in place, though they are no tables.
    """

    compared: JoinSize
    cores: int
    in_place: tuple[str, ...] = ()


def revise(action: JoinAction, facts: JoinFacts) -> JoinAction:
    """Decide a join again by what is known once its sides are prepared.

    The action is the same where the facts do not contradict its decision.
    """
    # What the last run found of keys is no fact about prepared sides.
    compared = replace(facts.compared, groups=action.sides.groups)
    return _decided(action, _decision(action.work, replace(facts, compared=compared)), facts)


def without_approximation(action: JoinAction, facts: JoinFacts, why: str) -> JoinAction:
    """Leave a join to the exact strategy, since the one that was decided on turned out not to do.

    Args:
        action: The join.
        facts: The sizes of its prepared sides.
        why: The reason, for people.
    """
    request = replace(action.work.request, min_right_rows=0)
    exact = choose(exact_request(request), facts.compared, facts.cores or 1)
    return _decided(action, replace(exact, why=why), facts)


def without_kept_index(action: JoinAction) -> JoinAction:
    """Plan the same join as if no index of its right side were kept from other runs."""
    work = replace(action.work, is_fresh=True)
    sides = replace(action.sides, kept=None)
    anew = plan_join(work, sides, new_rows=action.new_rows)
    return replace(action, work=work, sides=sides, decision=anew.decision, stages=anew.stages)


def in_full(action: JoinAction) -> JoinAction:
    """Plan the same join as if nothing were known of its last result."""
    work = replace(action.work, increment=None)
    whole = plan_join(work, action.sides)
    known = Accuracy(nprobes=work.request.nprobes)
    return replace(
        action,
        work=work,
        decision=whole.decision,
        stages=whole.stages,
        new_rows=None,
        known=known,
        notes=(),
    )


def _decided(action: JoinAction, decision: Decision, facts: JoinFacts) -> JoinAction:
    stages = _stages(action.work, decision, facts.in_place)
    return replace(action, decision=decision, stages=stages)


def _decision(work: JoinWork, facts: JoinFacts) -> Decision:
    decision = choose(scope_request(work.request, work.scope), facts.compared, facts.cores or 1)
    if work.scope is Scope.NEW_RIGHT:
        whom = "the left rows of their keys" if work.request.has_keys else "every left row"
        why = f"the new right rows are compared with {whom}, and merged with the result"
        decision = replace(decision, why=why)
    if facts.cores or decision.seconds is None:
        return decision
    # The time depends on the cluster; the order of strategies is the same on one core.
    why = f"{decision.why} (times of one core)" if decision.why_has_times else decision.why
    return replace(decision, why=why, seconds=None)


def _stages(work: JoinWork, decision: Decision, in_place: tuple[str, ...]) -> JoinStages:
    sides = (("left", work.left), ("right", work.right))
    written = tuple(name for name, side in sides if side.table is None and name not in in_place)
    may_be_light = work.right.format == "parquet" and not work.request.is_approximate
    unless_light = ("right",) if may_be_light and "right" in written else ()
    search: list[SearchStage] = [GroupRows()] if work.request.has_keys else []
    match decision.strategy:
        case Strategy.IVF:
            search += _lists_stage(decision)
        case Strategy.INDEX:
            search.append(MeasureIndex())
        case Strategy.EXACT | Strategy.SPARK:
            pass
        case _:
            assert_never(decision.strategy)
    search.append(Probe(decision.strategy, work.scope, decision.pairs))
    if work.scope is Scope.NEW_RIGHT:
        search.append(MergeNeighbours())
    return JoinStages(
        PrepareSides(written, unless_light),
        tuple(search),
        CommitResult(work.output_format, work.output_uri, appends=work.scope is Scope.NEW_LEFT),
    )


def _lists_stage(decision: Decision) -> list[SearchStage]:
    """Return the stage that provides the lists to search; none where sizes are not known yet."""
    if decision.lists is None:
        return []
    kept = decision.kept
    if kept is None:
        return [BuildIndex(decision.lists)]
    if kept.new_rows:
        return [ExtendIndex(kept.lists, kept.rows, kept.new_rows)]
    return [ReuseIndex(kept.lists, kept.rows)]


def _scope_notes(assessment: JoinAssessment, narrowing: _Narrowing) -> tuple[str, ...]:
    rows = narrowing.new_rows
    if narrowing.scope is Scope.NEW_LEFT:
        text = "new left rows that pass the filter are"
        if rows is not None:
            text = count(rows, "new left row is", "new left rows are")
        return (f"only {text} joined, and put behind the result",)
    if narrowing.scope is Scope.NEW_RIGHT:
        text = "new right rows that pass the filter are"
        if rows is not None:
            text = count(rows, "new right row is", "new right rows are")
        return (f"only {text} searched, and merged with the result",)
    record = assessment.record
    if record is None or Reason.INPUT_CHANGED not in narrowing.reasons:
        return ()
    sides = {"left": (assessment.left, record.left), "right": (assessment.right, record.right)}
    changes = {name: change(now, then) for name, (now, then) in sides.items()}
    sentences = {
        SideChange.APPENDED: "the {} side has new rows",
        SideChange.OTHER: "the {} side has changed",
    }
    # Other sides without a digest have notes of their own.
    notes = tuple(
        _unproven_note(name, *sides[name]) or sentences[what].format(name)
        for name, what in changes.items()
        if what in sentences and sides[name][0].digest is not None
    )
    is_appended = changes == {"left": SideChange.NONE, "right": SideChange.APPENDED}
    if is_appended and assessment.left.is_table and assessment.spec.max_distance is not None:
        notes += ("under 'max_distance' new right rows are not merged with the result",)
    return notes


def _unproven_note(name: str, now: JoinInput, then: InputRecord) -> str | None:
    """Return why a query is not proven unchanged, None if it has changed or there is none."""
    if now.work.sql is None or now.digest != then.digest:
        return None
    if then.unproven is None:
        return f"whether the {name} side has changed is not known: its query was not analyzed yet"
    reasons = ", ".join(then.unproven)
    return f"the {name} side may differ from run to run: its query {reasons}"


def _recorded(assessment: JoinAssessment) -> JoinFigures:
    record = assessment.record
    assert record is not None
    groups = None if record.groups is None else record.groups.groups
    return JoinFigures(
        record.strategy, counts=record.counts, accuracy=record.accuracy, groups=groups
    )
