"""From what is known of a join to an action: pure, like the planner of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lancestat.formats import count, large
from lancestat.knn.cost_model import Decision, JoinSize, Strategy, choose
from lancestat.knn.request import JoinKind, JoinRequest, Metric, Mode, Stage
from lancestat.knn.work import JoinCounts, JoinWork, OutputFormat, OutputState, Scope, scoped
from lancestat.plan.actions import Join, JoinFigures, Reason, Skip
from lancestat.plan.join_sides import Change, JoinInput, appended, change
from lancestat.redact import clean
from lancestat.spec.model import KnnJoin
from lancestat.state.values import InputRecord, JoinRecord


@dataclass(frozen=True, slots=True)
class JoinAppraisal:
    """One join as it is now, next to what was last made of it.

    `digest` is that of its meaning, `output` what readers see now, `cores` how many tasks will run
    at once, 0 where that is not known.
    """

    spec: KnnJoin
    digest: str
    left: JoinInput
    right: JoinInput
    record: JoinRecord | None
    output: OutputState | None
    cores: int = 0

    @property
    def is_intact(self) -> bool:
        """Whether readers see what the last run wrote."""
        if self.record is None or self.output is None:
            return False
        made = self.record.result
        return (made.rows, made.digest) == (self.output.rows, self.output.digest)


def remembered_result(record: JoinRecord | None, digest: str) -> str | None:
    """The digest of the result that a join of this meaning, the output's place included, wrote."""
    return record.result.digest if record is not None and record.digest == digest else None


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """Which pairs to compare: with `new` fragments of one side only, unless the scope is full."""

    scope: Scope
    reasons: tuple[Reason, ...]
    new: frozenset[int] = frozenset()
    new_rows: int | None = None


def request_of(join: KnnJoin) -> JoinRequest:
    """What a declared join asks for."""
    return JoinRequest(
        k=join.k,
        metric=Metric(join.metric),
        mode=Mode(join.mode),
        kind=JoinKind(join.join),
        nprobes=join.nprobes,
        recall=join.recall,
        min_right_rows=join.min_right_rows,
        with_rank=join.rank,
    )


def decide_join(appraisal: JoinAppraisal, *, full_refresh: bool = False) -> Join | Skip:
    """What to do about a join, and why.

    A result is gone on from only if it is what the last run wrote, and only one side has rows
    behind those that the run saw. New right rows need a left side that is a table: elsewhere rows
    may come in another order, and what was found could not be told to them.
    """
    narrowing = _narrow(appraisal, full_refresh)
    if narrowing is None:
        figures = _recorded(appraisal)
        notes = (*appraisal.left.notes, *appraisal.right.notes)
        return Skip(
            appraisal.spec.name, (Reason.UNCHANGED,), figures, notes, appraisal.spec.kind.value
        )
    return _join(appraisal, narrowing)


def _narrow(appraisal: JoinAppraisal, full_refresh: bool) -> _Narrowing | None:
    """The scope and its reasons, None where nothing is to be done."""
    record = appraisal.record
    if record is None:
        return _Narrowing(Scope.FULL, (Reason.NEW,))
    if full_refresh:
        return _Narrowing(Scope.FULL, (Reason.FULL_REFRESH,))
    found: set[Reason] = set()
    if record.digest != appraisal.digest:
        found.add(Reason.SPEC_CHANGED)
    if not appraisal.is_intact:
        found.add(Reason.OUTPUT_MISSING)
    left, right = change(appraisal.left, record.left), change(appraisal.right, record.right)
    if not found and (left, right) == (Change.NONE, Change.NONE):
        return None
    if not found and (left, right) == (Change.APPENDED, Change.NONE):
        return _appended(Scope.NEW_LEFT, appraisal.left, record)
    is_placed = appraisal.left.is_table
    if not found and (left, right) == (Change.NONE, Change.APPENDED) and is_placed:
        return _appended(Scope.NEW_RIGHT, appraisal.right, record)
    # Other sides than those that were recorded have no history.
    if Reason.SPEC_CHANGED not in found:
        changes = {left, right} - {Change.NONE}
        found |= {Reason.INPUT_CHANGED} if changes else set()
        found |= {Reason.ROWS_APPENDED} if Change.APPENDED in changes else set()
    return _Narrowing(Scope.FULL, tuple(reason for reason in Reason if reason in found))


def _appended(scope: Scope, side: JoinInput, record: JoinRecord) -> _Narrowing:
    new = appended(side, record.left if scope is Scope.NEW_LEFT else record.right)
    ids = frozenset(fragment.id for fragment in new)
    return _Narrowing(scope, (Reason.ROWS_APPENDED,), ids, sum(fragment.rows for fragment in new))


def _join(appraisal: JoinAppraisal, narrowing: _Narrowing) -> Join:
    spec, record, scope = appraisal.spec, appraisal.record, narrowing.scope
    goes_on = scope is not Scope.FULL
    work = JoinWork(
        node=spec.name,
        request=request_of(spec),
        left=appraisal.left.work,
        right=appraisal.right.work,
        output_format=OutputFormat(spec.output_format),
        output_uri=spec.output_uri,
        scope=scope,
        new_fragments=narrowing.new,
        previous=appraisal.output if goes_on else None,
        known=_counts(record) if goes_on and record is not None else None,
        remembered=remembered_result(record, appraisal.digest),
    )
    decision = _strategy(appraisal, work.request, narrowing)
    usable = record is not None and appraisal.output is not None
    return Join(
        node=spec.name,
        verb="refresh" if usable else "analyze",
        reasons=narrowing.reasons,
        figures=JoinFigures(
            strategy=decision.strategy.value,
            scope=scope.value,
            left_rows=appraisal.left.rows,
            right_rows=appraisal.right.rows,
            pairs=decision.pairs,
            recall=record.recall if goes_on and record is not None else None,
            nprobes=record.nprobes if goes_on and record is not None else spec.nprobes,
            why=decision.why,
            estimated_seconds=None if decision.seconds is None else round(decision.seconds, 1),
        ),
        work=work,
        decision=decision,
        left=appraisal.left.to_record(),
        right=appraisal.right.to_record(),
        new_rows=narrowing.new_rows,
        stages=_stages(appraisal, decision, scope),
        notes=(*_scope_notes(appraisal, narrowing), *appraisal.left.notes, *appraisal.right.notes),
    )


def _strategy(appraisal: JoinAppraisal, request: JoinRequest, narrowing: _Narrowing) -> Decision:
    left, right = appraisal.left, appraisal.right
    size = JoinSize(
        left.rows,
        right.rows,
        right.dimension or left.dimension,
        has_index=right.index == request.metric.value,
    )
    if narrowing.scope is Scope.NEW_LEFT:
        size = replace(size, left_rows=narrowing.new_rows)
    if narrowing.scope is Scope.NEW_RIGHT:
        size = replace(size, right_rows=narrowing.new_rows, has_index=False)
    decision = choose(scoped(request, narrowing.scope), size, appraisal.cores or 1)
    if narrowing.scope is Scope.NEW_RIGHT:
        why = "the new right rows are compared with every left row, and merged with the result"
        decision = replace(decision, why=why)
    if appraisal.cores or decision.seconds is None:
        return decision
    # How long it takes is for the cluster to say; strategies compare on one core as on many.
    return replace(decision, why=f"{decision.why} (times of one core)", seconds=None)


def _scope_notes(appraisal: JoinAppraisal, narrowing: _Narrowing) -> tuple[str, ...]:
    rows = narrowing.new_rows
    if narrowing.scope is Scope.NEW_LEFT and rows is not None:
        text = count(rows, "new left row is", "new left rows are")
        return (f"only {text} joined, and put behind the result",)
    if narrowing.scope is Scope.NEW_RIGHT and rows is not None:
        text = count(rows, "new right row is", "new right rows are")
        return (f"only {text} searched, and merged with the result",)
    record = appraisal.record
    if record is None or Reason.INPUT_CHANGED not in narrowing.reasons:
        return ()
    sides = {"left": (appraisal.left, record.left), "right": (appraisal.right, record.right)}
    found = {name: change(now, then) for name, (now, then) in sides.items()}
    said = {
        Change.APPENDED: "the {} side has new rows",
        Change.OTHER: "the {} side has changed",
    }
    # Of other sides without a digest their own notes speak.
    return tuple(
        _unproven_note(name, *sides[name]) or said[what].format(name)
        for name, what in found.items()
        if what in said and sides[name][0].digest is not None
    )


def _unproven_note(name: str, now: JoinInput, then: InputRecord) -> str | None:
    """What keeps a query from being proven unchanged, where nothing else has changed."""
    if now.work.sql is None or now.digest != then.digest:
        return None
    if then.unproven is None:
        return f"whether the {name} side has changed is not known: its query was not analyzed yet"
    reasons = ", ".join(then.unproven)
    return f"the {name} side may differ from run to run: its query {reasons}"


def _stages(appraisal: JoinAppraisal, decision: Decision, scope: Scope) -> tuple[str, ...]:
    """A line for each stage that the join will go through, for those who want to know."""
    written = [
        name
        for name, side in (("left", appraisal.left), ("right", appraisal.right))
        if not side.is_table
    ]
    lines = [f"{Stage.GATE.value}: {decision.strategy.value}, {decision.why}"]
    if written:
        sides = " and ".join(written)
        lines.append(f"{Stage.SCRATCH.value}: the {sides} side is written once, as a Lance dataset")
    if decision.strategy is Strategy.PARTITIONED:
        lists = count(decision.lists, "list") if decision.lists else "lists"
        lines.append(f"{Stage.SCRATCH.value}: the right side is laid out in {lists} by centroid")
    pairs = f", {large(decision.pairs)} pairs" if decision.pairs is not None else ""
    lines.append(f"{Stage.PROBE.value}: {_compared(scope)}{pairs}")
    if scope is Scope.NEW_RIGHT:
        lines.append(f"{Stage.MERGE.value}: with the neighbours that the last run found")
    how = "appended to" if scope is Scope.NEW_LEFT else "written to"
    output = f"{clean(appraisal.spec.output_uri)} as {appraisal.spec.output_format}"
    lines.append(f"{Stage.MATERIALIZE.value}: {how} {output}")
    return tuple(lines)


def _compared(scope: Scope) -> str:
    return {
        Scope.FULL: "left rows against right rows",
        Scope.NEW_LEFT: "new left rows against right rows",
        Scope.NEW_RIGHT: "left rows against new right rows",
    }[scope]


def _counts(record: JoinRecord) -> JoinCounts:
    return JoinCounts(
        record.left_rows,
        record.right_rows,
        record.unmatched_left_rows,
        record.excluded_right_rows,
    )


def _recorded(appraisal: JoinAppraisal) -> JoinFigures:
    record = appraisal.record
    assert record is not None
    return JoinFigures(
        strategy=record.strategy,
        left_rows=record.left_rows,
        right_rows=record.right_rows,
        unmatched_left_rows=record.unmatched_left_rows,
        excluded_right_rows=record.excluded_right_rows,
        recall=record.recall,
        nprobes=record.nprobes,
    )
