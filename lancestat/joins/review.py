"""Judges what a change of a join means for those who read its result and for the next run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lancestat.formats import size
from lancestat.joins.observe import lance_uris, read_uris
from lancestat.review.evidence import Evidence, join_cost
from lancestat.review.properties import declared_risks
from lancestat.review.values import Findings, PropertyChange, Risk, RiskNote
from lancestat.spec.digest import node_digest
from lancestat.spec.model import KnnJoin, ProjectSpec
from lancestat.state.identity import canonical_uri


@dataclass(frozen=True, slots=True)
class JoinChange:
    """A join on both sides, and the properties that differ."""

    old: KnnJoin | None
    new: KnnJoin | None
    changed: tuple[PropertyChange, ...]

    @property
    def runs_anew(self) -> bool:
        """Whether the next run makes the whole result again; the state knows joins by name."""
        if self.new is None:
            return False
        if self.old is None or self.old.name != self.new.name:
            return True
        return node_digest(self.old) != node_digest(self.new)

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that the next run reads for the change."""
        return lance_uris(head, self.new) if self.new is not None and self.runs_anew else ()

    def judge(self, evidence: Evidence) -> Findings:
        """Return the cost, the risks and the consequences of a change."""
        cost: int | None = 0
        if self.new is not None and self.runs_anew:
            cost = join_cost(self.new, evidence)
        risks = (
            *_meaning(self),
            *_output(self),
            *(declared_risks(self.old, self.new) if self.old and self.new else ()),
            *_cost_note(self, cost),
        )
        return Findings(cost_bytes=cost, risks=risks, notes=tuple(_notes(self, evidence)))


def _meaning(change: JoinChange) -> Iterator[RiskNote]:
    if change.old is None or change.new is None:
        return
    names = [
        changed.name for changed in change.changed if changed.risk is Risk.JOIN_MEANING_CHANGED
    ]
    if names:
        verb = "differs" if len(names) == 1 else "differ"
        sentence = f"the join gives other rows, since {' and '.join(names)} {verb}"
        yield RiskNote(Risk.JOIN_MEANING_CHANGED, sentence)


def _output(change: JoinChange) -> Iterator[RiskNote]:
    old, new = change.old, change.new
    if old is None or new is None:
        return
    before = (old.output_format, canonical_uri(old.output_uri))
    if before != (new.output_format, canonical_uri(new.output_uri)):
        sentence = (
            "the result is written to another location; who reads the old one reads what it is "
            "today"
        )
        yield RiskNote(Risk.OUTPUT_MOVED, sentence)


def _cost_note(change: JoinChange, cost: int | None) -> Iterator[RiskNote]:
    if cost != 0:
        again = "" if change.old is None else " again"
        much = "both sides, an unknown amount" if cost is None else f"about {size(cost)}"
        yield RiskNote(Risk.COST_INCREASED, f"the first run joins all rows{again} and reads {much}")


def _notes(change: JoinChange, evidence: Evidence) -> Iterator[str]:
    if change.new is None:
        yield "the result stays where it is, and nothing refreshes it any more"
        return
    uris = read_uris(evidence.spec, change.new) if change.runs_anew else ()
    for why in dict.fromkeys(map(evidence.unopened_reason, uris)):
        if why is not None:
            yield f"a side {why}"
    if change.old is not None and change.old.name != change.new.name:
        yield f"what refers to '{change.old.name}' must refer to '{change.new.name}'"
