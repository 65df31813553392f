"""Plans near-duplicates: pure functions from values to actions."""

from __future__ import annotations

from dataclasses import dataclass

from lancestat.joins.action import JoinAction
from lancestat.joins.duplicates.action import DuplicatesAction, DuplicatesFigures, GroupWork
from lancestat.joins.duplicates.record import DuplicatesRecord
from lancestat.joins.record import OutputState
from lancestat.runs.actions import Reason, Skip
from lancestat.spec.model import Duplicates


@dataclass(frozen=True, slots=True)
class DuplicatesAssessment:
    """Near-duplicates as they are now, next to what was last made of them.

    `digest` is that of their meaning, `join` what is to be done about their pairs, which readers
    see as `pairs`, and `output` the groups that readers see.
    """

    spec: Duplicates
    digest: str
    work: GroupWork
    join: JoinAction | Skip
    record: DuplicatesRecord | None
    pairs: OutputState | None
    output: OutputState | None

    @property
    def is_intact(self) -> bool:
        """Whether readers see what the last run wrote."""
        return self.record is not None and self.record.result.is_seen_in(self.output)


def decide(
    assessment: DuplicatesAssessment, *, full_refresh: bool = False
) -> DuplicatesAction | Skip:
    """Decide what to do about near-duplicates, and why.

    Pairs are found again where the join that finds them is to be run. They are grouped again where
    they are others, or the declaration is, or any row of the table in the columns of the result.
    """
    spec, record, join = assessment.spec, assessment.record, assessment.join
    reasons = _reasons(assessment, full_refresh)
    if not reasons:
        assert record is not None, "without a record there is a reason"
        figures = DuplicatesFigures.recorded(record)
        return Skip(spec.name, (Reason.UNCHANGED,), figures, _notes(join), spec.kind.value)
    known = None
    if isinstance(join, Skip):
        assert record is not None and assessment.pairs is not None, "there are pairs"
        known = record.pairs, assessment.pairs
    usable = record is not None and assessment.output is not None
    return DuplicatesAction(
        spec.name,
        "refresh" if usable else "analyze",
        reasons,
        assessment.work,
        join if isinstance(join, JoinAction) else None,
        known,
        _notes(join),
    )


def _reasons(assessment: DuplicatesAssessment, full_refresh: bool) -> tuple[Reason, ...]:
    record, join = assessment.record, assessment.join
    if record is None:
        return (Reason.NEW,)
    if full_refresh:
        return (Reason.FULL_REFRESH,)
    reasons: set[Reason] = set()
    if record.digest != assessment.digest:
        reasons.add(Reason.SPEC_CHANGED)
    if not assessment.is_intact:
        reasons.add(Reason.OUTPUT_MISSING)
    if isinstance(join, JoinAction):
        reasons.update(join.reasons)
    elif record.content != assessment.work.content:
        reasons.add(Reason.INPUT_CHANGED)
    return tuple(reason for reason in Reason if reason in reasons)


def _notes(join: JoinAction | Skip) -> tuple[str, ...]:
    """Return the notes on a join of a table with itself, of which both sides say the same."""
    notes = (
        note.replace("the left side", "the table").replace("the right side", "the table")
        for note in join.notes
    )
    return tuple(dict.fromkeys(notes))
