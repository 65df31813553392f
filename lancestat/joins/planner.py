"""Plans joins: pure functions from values to actions, like the planner of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isqrt

from typing_extensions import assert_never

from lancestat.formats import count
from lancestat.joins.action import (
    SIDES,
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
from lancestat.joins.record import Accuracy, InputRecord, JoinRecord, OutputFormat, OutputState
from lancestat.joins.scratch.kept_neighbours import NeighboursManifest
from lancestat.joins.search.cost_model import (
    BLOCK_FLOPS,
    JOB_SECONDS,
    Decision,
    JoinSize,
    KeptIndex,
    Strategy,
    choose,
    share_above,
)
from lancestat.joins.search.metrics import metric_named
from lancestat.joins.search.work import (
    RANGE_NEIGHBOURS,
    Increment,
    JoinKind,
    JoinRequest,
    JoinWork,
    Scope,
    exact_request,
    scope_request,
    self_pairs,
)
from lancestat.joins.sides import JoinInput, SideChange, SideDelta, appended, change
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.knn_join import ALL
from lancestat.spec.model import KnnJoin


@dataclass(frozen=True, slots=True)
class JoinAssessment:
    """One join as it is now, next to what was last made of it, and the `output` that readers see.

    `digest` is that of its meaning, `cores` how many tasks will run concurrently, 0 where that is
    not known, and `kept` the index of the right side that earlier runs have left. Neighbours are
    kept under `neighbours_key`, None where they cannot be; `neighbours` says of which rows those of
    the last result are, None where they are not at hand.
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
    neighbours_key: str | None = None
    neighbours: NeighboursManifest | None = None

    @property
    def is_intact(self) -> bool:
        """Whether readers see what the last run wrote."""
        return self.record is not None and self.record.result.is_seen_in(self.output)


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """A scope and its reasons; of an update what changed on both sides, and the decision."""

    scope: Scope
    reasons: tuple[Reason, ...]
    deltas: tuple[SideDelta, SideDelta] | None = None
    decision: Decision | None = None
    notes: tuple[str, ...] = ()


# A result whose neighbours are in so many folders is brought up to date as a whole, which puts them
# into one.
MOST_FOLDERS = 16


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

    The last result is extended or brought up to date only if it is what the last run wrote. New
    left rows are joined by themselves. All other changes need both sides to be tables, whose rows
    keep their addresses, and the neighbours that the last run kept.
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
    is_appended = (left, right) == (SideChange.APPENDED, SideChange.NONE)
    if not reasons and is_appended and len(record.neighbours) < MOST_FOLDERS:
        return _Narrowing(Scope.NEW_LEFT, (Reason.ROWS_APPENDED,), _deltas(assessment))
    notes: tuple[str, ...] = ()
    if not reasons and assessment.neighbours_key is not None:
        scope = Scope.CHANGED
        if (left, right) == (SideChange.NONE, SideChange.APPENDED):
            scope = Scope.NEW_RIGHT
        update = _update(assessment, scope)
        if isinstance(update, _Narrowing):
            return update
        notes = (update,)
    # Other sides than those that were recorded have no history.
    if Reason.SPEC_CHANGED not in reasons:
        changes = {left, right} - {SideChange.NONE}
        reasons |= {Reason.INPUT_CHANGED} if changes else set()
        reasons |= {Reason.ROWS_APPENDED} if SideChange.APPENDED in changes else set()
    return _Narrowing(Scope.FULL, tuple(_in_order(reasons)), notes=notes)


def _in_order(reasons: set[Reason]) -> Iterator[Reason]:
    return (reason for reason in Reason if reason in reasons)


def _deltas(assessment: JoinAssessment) -> tuple[SideDelta, SideDelta] | None:
    """Return what changed on both sides since neighbours were found, None if `delta` has none."""
    known = assessment.neighbours
    if known is None:
        return None
    left = SideDelta.between(assessment.left.work.state, known.left)
    right = SideDelta.between(assessment.right.work.state, known.right)
    return None if left is None or right is None else (left, right)


def _update(assessment: JoinAssessment, scope: Scope) -> _Narrowing | str:
    """Return how the last result is brought up to date, or why that cannot be done."""
    if assessment.neighbours is None:
        assert assessment.record is not None, "there is a result"
        if not assessment.record.neighbours:
            return "the last run has kept no neighbours, by which to bring its result up to date"
        return "the neighbours of the last result are not in scratch any more"
    deltas = _deltas(assessment)
    if deltas is None:
        return "rows have changed where they are, or have come back"
    reasons: set[Reason] = set()
    for side in deltas:
        if side.new_rows and side.gone_rows:
            reasons.add(Reason.ROWS_CHANGED)
        elif side.new_rows:
            reasons.add(Reason.ROWS_APPENDED)
        elif side.gone_rows:
            reasons.add(Reason.ROWS_DELETED)
    decision = _update_decision(assessment, deltas) if reasons else None
    if decision is None:
        return "so many rows have changed that joining all of them is no more work"
    return _Narrowing(scope, tuple(_in_order(reasons)), deltas, decision)


def _update_decision(
    assessment: JoinAssessment, deltas: tuple[SideDelta, SideDelta]
) -> Decision | None:
    """Return the cost of an update, None where joining in full costs no more."""
    request, cores = _request(assessment), assessment.cores
    left_rows, right_rows = (
        sum(fragment.rows for fragment in side.work.state)
        for side in (assessment.left, assessment.right)
    )
    left, right = deltas
    pairs = left.new_rows * right_rows + (left_rows - left.new_rows) * right.new_rows
    everything = left_rows * right_rows
    if request.pairs_once:
        pairs -= left.new_rows * (right_rows - left.new_rows // 2)
        everything //= 2
    if not request.is_radius:
        before = right_rows - right.new_rows + right.gone_rows
        lost = request.ranked * right.gone_rows / max(1, before)
        again = (left_rows - left.new_rows) * share_above(lost, request.spare)
        pairs += int(again * right_rows)
    whole = choose(request, _sizes(assessment), cores or 1)
    share = pairs / max(1, everything)
    if share >= 1:
        return None
    if request.has_keys:
        compared = None if whole.pairs is None else int(share * whole.pairs)
        seconds = None if whole.seconds is None else JOB_SECONDS + share * whole.seconds
    else:
        dimension = assessment.right.dimension or assessment.left.dimension
        compared, seconds = pairs, None
        if dimension is not None:
            seconds = JOB_SECONDS + 2 * dimension * pairs / BLOCK_FLOPS / (cores or 1)
    if request.is_approximate and (seconds or 0) >= (whole.seconds or inf):
        return None
    why = "new rows are compared with all others, and merged with the neighbours of the last run"
    return Decision(Strategy.EXACT, why, compared, seconds if cores else None)


def _request(assessment: JoinAssessment) -> JoinRequest:
    """Return the request of a declared join, which keeps neighbours to spare if it keeps any."""
    request = request_of(assessment.spec)
    if assessment.neighbours_key is None or request.is_approximate or request.is_radius:
        return request
    return replace(request, spare=2 + isqrt(request.k))


def _sizes(assessment: JoinAssessment, *, is_fresh: bool = False) -> JoinSize:
    record, left, right = assessment.record, assessment.left, assessment.right
    is_same = record is not None and record.digest == assessment.digest
    index = request_of(assessment.spec).metric.index_name
    return JoinSize(
        left.rows,
        right.rows,
        right.dimension or left.dimension,
        has_index=right.index is not None and right.index == index,
        has_nearest_by_join=assessment.has_nearest_by_join,
        kept=None if is_fresh else assessment.kept,
        # What the last run found of the keys.
        groups=record.groups if record is not None and is_same else None,
    )


def _join(assessment: JoinAssessment, narrowing: _Narrowing, *, is_fresh: bool) -> JoinAction:
    spec, record, scope = assessment.spec, assessment.record, narrowing.scope
    left, right = assessment.left, assessment.right
    increment = None
    new_rows: tuple[int | None, int | None] = (None, None)
    if scope is not Scope.FULL and record is not None and assessment.output is not None:
        increment = _increment(assessment, narrowing)
        ids = (increment.new_left, increment.new_right)
        # How many pass a filter only a run can tell.
        new_left, new_right = (
            None
            if side.work.filter is not None
            else sum(fragment.rows for fragment in side.fragments or () if fragment.id in new)
            for side, new in zip((left, right), ids, strict=True)
        )
        new_rows = new_left, new_right
    work = JoinWork(
        node=spec.name,
        request=_request(assessment),
        left=left.work,
        right=right.work,
        output_format=OutputFormat(spec.output_format),
        output_uri=spec.output_uri,
        increment=increment,
        is_fresh=is_fresh,
        neighbours_key=assessment.neighbours_key,
        neighbours=() if record is None else record.neighbours,
    )
    known = Accuracy(nprobes=spec.nprobes)
    if increment is not None and record is not None:
        known = record.accuracy
    usable = record is not None and assessment.output is not None
    sides = _sizes(assessment, is_fresh=is_fresh)
    scope_notes = _scope_notes(assessment, narrowing, new_rows)
    return replace(
        plan_join(work, sides, assessment.cores, new_rows=new_rows, decision=narrowing.decision),
        verb="refresh" if usable else "analyze",
        reasons=narrowing.reasons,
        left=left.to_record(),
        right=right.to_record(),
        known=known,
        notes=(*scope_notes, *narrowing.notes, *left.notes, *right.notes),
    )


def _increment(assessment: JoinAssessment, narrowing: _Narrowing) -> Increment:
    record, deltas, output = assessment.record, narrowing.deltas, assessment.output
    assert record is not None and output is not None, "there is a result"
    neighbours = record.neighbours
    if narrowing.scope is Scope.NEW_LEFT:
        new = frozenset(fragment.id for fragment in appended(assessment.left, record.left))
        # Rows at other addresses than before have lost their neighbours.
        is_same = deltas is not None and deltas[0].new == new and not deltas[0].gone_rows
        if deltas is None or not is_same or deltas[1].new or deltas[1].gone_rows:
            neighbours = ()
        return Increment(narrowing.scope, new, frozenset(), output, record.counts, neighbours)
    assert deltas is not None, "an update knows what changed"
    left, right = deltas
    return Increment(narrowing.scope, left.new, right.new, output, record.counts, neighbours)


def plan_join(
    work: JoinWork,
    sides: JoinSize,
    cores: int = 0,
    *,
    new_rows: tuple[int | None, int | None] = (None, None),
    decision: Decision | None = None,
) -> JoinAction:
    """Choose the strategy and the stages of a join, which make a new result.

    `sides` are the sizes of the whole sides, and a narrowed scope joins `new_rows` of them; `cores`
    tasks run concurrently, 0 where that is not known. The `decision` on an update is made already.
    """
    compared = sides
    if work.scope is Scope.NEW_LEFT:
        compared = replace(sides, left_rows=new_rows[0])
    if decision is None:
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
    tables. The same action is returned where the facts do not contradict its decision, and for an
    update, which is exact in any case.
    """
    if action.work.scope.is_update:
        return action
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
        new_rows=(None, None),
        known=known,
        notes=(),
    )


def _decided(action: JoinAction, decision: Decision, in_place: Sequence[str]) -> JoinAction:
    return replace(action, decision=decision, stages=_stages(action.work, decision, in_place))


def _decision(work: JoinWork, compared: JoinSize, cores: int) -> Decision:
    decision = choose(scope_request(work.request, work.scope), compared, cores or 1)
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
    if work.scope.is_update:
        probe = Probe(decision.strategy, work.scope, decision.pairs)
        commit = CommitResult(work.output_format, work.output_uri, appends=False, updates=True)
        return (*stages, probe, MergeNeighbours(), commit)
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
    assessment: JoinAssessment,
    narrowing: _Narrowing,
    new_rows: tuple[int | None, int | None],
) -> tuple[str, ...]:
    match narrowing.scope:
        case Scope.NEW_LEFT:
            return (f"only {_new('left', new_rows[0])} joined, and put behind the result",)
        case Scope.NEW_RIGHT:
            new = _new("right", new_rows[1])
            return (f"only {new} searched, and merged with the result",)
        case Scope.CHANGED:
            assert narrowing.deltas is not None, "an update knows what changed"
            named = list(zip(SIDES, narrowing.deltas, strict=True))
            if assessment.spec.self_location is not None:
                # Both sides are the same rows.
                named = [("", narrowing.deltas[0])]
            changes = [
                _changes(name, side) for name, side in named if side.new_rows or side.gone_rows
            ]
            return (f"only changes are joined, of {', '.join(changes)}",)
        case Scope.FULL:
            return _full_notes(assessment, narrowing.reasons)
        case _:
            assert_never(narrowing.scope)


def _new(side: str, new_rows: int | None) -> str:
    if new_rows is None:
        return f"new {side} rows that pass the filter are"
    return count(new_rows, f"new {side} row is", f"new {side} rows are")


def _changes(name: str, side: SideDelta) -> str:
    """Return what changed of a side: `2 new and 1 gone left rows`."""
    counted = ((side.new_rows, "new"), (side.gone_rows, "gone"))
    parts = " and ".join(f"{count(rows)} {what}" for rows, what in counted if rows)
    rows = "row" if max(side.new_rows, side.gone_rows) == 1 else "rows"
    return " ".join(filter(None, (parts, name, rows)))


def _full_notes(assessment: JoinAssessment, reasons: Sequence[Reason]) -> tuple[str, ...]:
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
    return tuple(
        _unproven_note(name, *sides[name]) or sentences[what].format(name)
        for name, what in changes.items()
        if what in sentences and sides[name][0].digest is not None
    )


def _unproven_note(name: str, now: JoinInput, then: InputRecord) -> str | None:
    """Return why a query is not proven unchanged, None if it has changed or there is none."""
    if now.work.sql is None or now.digest != then.digest:
        return None
    if then.unproven is None:
        return f"whether the {name} side has changed is not known: its query was not analyzed yet"
    reasons = ", ".join(then.unproven)
    return f"the {name} side may differ from run to run: its query {reasons}"
