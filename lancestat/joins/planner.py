"""Plans joins: pure functions from values to actions, like the planner of tables."""

from __future__ import annotations

from collections.abc import Sequence
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
    JoinStage,
    MeasureIndex,
    MergeNeighbours,
    PrepareSides,
    Probe,
    ReuseIndex,
)
from lancestat.joins.record import Accuracy, InputRecord, JoinRecord
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
from lancestat.lake.fingerprint import FragmentContent
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.knn_join import ALL
from lancestat.spec.model import KnnJoin


@dataclass(frozen=True, slots=True)
class JoinAssessment:
    """One join as it is now, next to what was last made of it, and the `output` that readers see.

    `digest` is that of its meaning, `cores` how many tasks will run concurrently, 0 where that is
    not known, and `kept` the index of the right side that earlier runs have left.
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
        return self.record is not None and self.record.result.is_seen_in(self.output)


# A scope, its reasons, and the new fragments of the one side that has some unless it is full.
_Narrowing = tuple[Scope, tuple[Reason, ...], Sequence[FragmentContent]]


def request_of(join: KnnJoin) -> JoinRequest:
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
    after those that the run saw. New right rows need a left side that is a table: the rows of
    other sides may come in another order, so that neighbours could not be matched to them. They
    also need as many neighbours for each left row as there are right rows of its keys, up to k:
    under a `max_distance` nothing tells which rows of the last result belong to which left row.
    """
    narrowing = _narrow(assessment, full_refresh)
    if narrowing is None:
        record, spec = assessment.record, assessment.spec
        assert record is not None, "a join without a record is new"
        figures = JoinFigures.recorded(record)
        notes = (*assessment.left.notes, *assessment.right.notes)
        return Skip(spec.name, (Reason.UNCHANGED,), figures, notes, spec.kind.value)
    return _join(assessment, narrowing, is_fresh=full_refresh)


def _narrow(assessment: JoinAssessment, full_refresh: bool) -> _Narrowing | None:
    """The scope and its reasons, None where nothing is to be done."""
    record = assessment.record
    if record is None:
        return Scope.FULL, (Reason.NEW,), ()
    if full_refresh:
        return Scope.FULL, (Reason.FULL_REFRESH,), ()
    reasons: set[Reason] = set()
    if record.digest != assessment.digest:
        reasons.add(Reason.SPEC_CHANGED)
    if not assessment.is_intact:
        reasons.add(Reason.OUTPUT_MISSING)
    left, right = change(assessment.left, record.left), change(assessment.right, record.right)
    if not reasons and (left, right) == (SideChange.NONE, SideChange.NONE):
        return None
    if not reasons and (left, right) == (SideChange.APPENDED, SideChange.NONE):
        return Scope.NEW_LEFT, (Reason.ROWS_APPENDED,), appended(assessment.left, record.left)
    is_placed = assessment.left.is_table and assessment.spec.max_distance is None
    if not reasons and (left, right) == (SideChange.NONE, SideChange.APPENDED) and is_placed:
        new = appended(assessment.right, record.right)
        return Scope.NEW_RIGHT, (Reason.ROWS_APPENDED,), new
    # Other sides than those that were recorded have no history.
    if Reason.SPEC_CHANGED not in reasons:
        changes = {left, right} - {SideChange.NONE}
        reasons |= {Reason.INPUT_CHANGED} if changes else set()
        reasons |= {Reason.ROWS_APPENDED} if SideChange.APPENDED in changes else set()
    return Scope.FULL, tuple(reason for reason in Reason if reason in reasons), ()


def _join(assessment: JoinAssessment, narrowing: _Narrowing, *, is_fresh: bool) -> JoinAction:
    spec, record, (scope, reasons, new) = assessment.spec, assessment.record, narrowing
    left, right = assessment.left, assessment.right
    increment = new_rows = None
    if scope is not Scope.FULL and record is not None and assessment.output is not None:
        ids = frozenset(fragment.id for fragment in new)
        increment = Increment(scope, ids, assessment.output, record.counts)
        # How many pass a filter only a run can tell.
        filter = (left if scope is Scope.NEW_LEFT else right).work.filter
        new_rows = None if filter is not None else sum(fragment.rows for fragment in new)
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
    is_same = record is not None and record.digest == assessment.digest
    sides = JoinSize(
        left.rows,
        right.rows,
        right.dimension or left.dimension,
        has_index=right.index is not None and right.index == work.request.metric.index_name,
        has_nearest_by_join=assessment.has_nearest_by_join,
        kept=None if is_fresh else assessment.kept,
        # What the last run found of the keys.
        groups=record.groups if record is not None and is_same else None,
    )
    usable = record is not None and assessment.output is not None
    return replace(
        plan_join(work, sides, assessment.cores, new_rows=new_rows),
        verb="refresh" if usable else "analyze",
        reasons=reasons,
        left=left.to_record(),
        right=right.to_record(),
        known=known,
        notes=(*_scope_notes(assessment, scope, reasons, new_rows), *left.notes, *right.notes),
    )


def plan_join(
    work: JoinWork, sides: JoinSize, cores: int = 0, *, new_rows: int | None = None
) -> JoinAction:
    """Choose the strategy and the stages of a join, which make a new result.

    `sides` are the sizes of the whole sides, and a narrowed scope joins `new_rows`; `cores` tasks
    run concurrently, 0 where that is not known.
    """
    compared = sides
    if work.scope is Scope.NEW_LEFT:
        compared = replace(sides, left_rows=new_rows)
    if work.scope is Scope.NEW_RIGHT:
        compared = replace(sides, right_rows=new_rows, has_index=False, kept=None)
    decision = _decision(work, compared, cores)
    return JoinAction(
        node=work.node,
        verb="analyze",
        reasons=(Reason.NEW,),
        work=work,
        sides=sides,
        decision=decision,
        stages=_stages(work, decision),
        new_rows=new_rows,
    )


def revise(
    action: JoinAction, compared: JoinSize, cores: int, in_place: Sequence[str] = ()
) -> JoinAction:
    """Decide a join again by what is known once its sides are prepared.

    `compared` are the rows to compare, and sides `in_place` are read in place, though they are no
    tables. The same action is returned where the facts do not contradict its decision.
    """
    # What the last run found of keys is no fact about prepared sides.
    compared = replace(compared, groups=action.sides.groups)
    return _decided(action, _decision(action.work, compared, cores), in_place)


def without_approximation(
    action: JoinAction, why: str, compared: JoinSize, cores: int, in_place: Sequence[str] = ()
) -> JoinAction:
    """Leave a join to the exact strategy, for a reason `why`; other arguments are as for
    `revise`.
    """
    request = replace(action.work.request, min_right_rows=0)
    exact = choose(exact_request(request), compared, cores or 1)
    return _decided(action, replace(exact, why=why), in_place)


def without_kept_index(action: JoinAction) -> JoinAction:
    """Plan the same join as if no index of its right side were kept from other runs."""
    work = replace(action.work, is_fresh=True)
    sides = replace(action.sides, kept=None)
    again = plan_join(work, sides, new_rows=action.new_rows)
    return replace(action, work=work, sides=sides, decision=again.decision, stages=again.stages)


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


def _decided(action: JoinAction, decision: Decision, in_place: Sequence[str]) -> JoinAction:
    return replace(action, decision=decision, stages=_stages(action.work, decision, in_place))


def _decision(work: JoinWork, compared: JoinSize, cores: int) -> Decision:
    decision = choose(scope_request(work.request, work.scope), compared, cores or 1)
    if work.scope is Scope.NEW_RIGHT:
        whom = "the left rows of their keys" if work.request.has_keys else "every left row"
        why = f"the new right rows are compared with {whom}, and merged with the result"
        decision = replace(decision, why=why)
    if cores or decision.seconds is None:
        return decision
    # The time depends on the cluster; the order of strategies is the same on one core.
    why = f"{decision.why} (times of one core)" if decision.why_has_times else decision.why
    return replace(decision, why=why, seconds=None)


def _stages(
    work: JoinWork, decision: Decision, in_place: Sequence[str] = ()
) -> tuple[JoinStage, ...]:
    sides = (("left", work.left), ("right", work.right))
    written = tuple(name for name, side in sides if side.table is None and name not in in_place)
    may_be_light = work.right.format == "parquet" and not work.request.is_approximate
    unless_light = ("right",) if may_be_light and "right" in written else ()
    stages: list[JoinStage] = [PrepareSides(written, unless_light)]
    if work.request.has_keys:
        stages.append(GroupRows())
    match decision.strategy:
        case Strategy.IVF:
            stages += _lists_stage(decision)
        case Strategy.INDEX:
            stages.append(MeasureIndex())
        case Strategy.EXACT | Strategy.SPARK:
            pass
        case _:
            assert_never(decision.strategy)
    stages.append(Probe(decision.strategy, work.scope, decision.pairs))
    if work.scope is Scope.NEW_RIGHT:
        stages.append(MergeNeighbours())
    appends = work.scope is Scope.NEW_LEFT
    return (*stages, CommitResult(work.output_format, work.output_uri, appends))


def _lists_stage(decision: Decision) -> list[JoinStage]:
    """Return the stage that provides the lists to search; none where sizes are not known yet."""
    if decision.lists is None:
        return []
    kept = decision.kept
    if kept is None:
        return [BuildIndex(decision.lists)]
    if kept.new_rows:
        return [ExtendIndex(kept.lists, kept.rows, kept.new_rows)]
    return [ReuseIndex(kept.lists, kept.rows)]


def _scope_notes(
    assessment: JoinAssessment, scope: Scope, reasons: Sequence[Reason], new_rows: int | None
) -> tuple[str, ...]:
    if scope is not Scope.FULL:
        side, done = (
            ("left", "joined, and put behind the result")
            if scope is Scope.NEW_LEFT
            else ("right", "searched, and merged with the result")
        )
        rows = f"new {side} rows that pass the filter are"
        if new_rows is not None:
            rows = count(new_rows, f"new {side} row is", f"new {side} rows are")
        return (f"only {rows} {done}",)
    record = assessment.record
    if record is None or Reason.INPUT_CHANGED not in reasons:
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
