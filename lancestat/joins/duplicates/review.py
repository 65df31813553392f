"""Judges what a change of near-duplicates means for readers of the groups and for the next run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lancestat.formats import size
from lancestat.joins.duplicates.record import DuplicatesRecord, record_key
from lancestat.joins.review import join_cost
from lancestat.review.evidence import Evidence
from lancestat.review.values import Findings, PropertyChange, Risk, RiskNote, declared_risks
from lancestat.runs.node import named_uris, read_uris
from lancestat.spec.model import Duplicates, ProjectSpec, node_digest
from lancestat.state.values import canonical_uri


@dataclass(frozen=True, slots=True)
class DuplicatesChange:
    """Near-duplicates on both sides, and the properties that differ."""

    old: Duplicates | None
    new: Duplicates | None
    changed: tuple[PropertyChange, ...]

    @property
    def finds_pairs_again(self) -> bool:
        """Whether the next run compares all rows again; the state knows nodes by name."""
        if self.new is None:
            return False
        if self.old is None or self.old.name != self.new.name:
            return True
        return _pairs_digest(self.old) != _pairs_digest(self.new)

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that the next run reads for the change."""
        if self.new is None or not self.finds_pairs_again:
            return ()
        return named_uris(head, self.new.refs, self.new.input_uris)

    def judge(self, evidence: Evidence) -> Findings:
        cost: int | None = 0
        if self.new is not None and self.finds_pairs_again and not self._is_known(evidence):
            cost = _cost(self.new, evidence)
        risks = (
            *_meaning(self),
            *_outputs(self),
            *(declared_risks(self.old, self.new) if self.old and self.new else ()),
            *_cost_note(self, cost),
        )
        return Findings(cost_bytes=cost, risks=risks, notes=tuple(_notes(self, evidence)))

    def _is_known(self, evidence: Evidence) -> bool:
        assert self.new is not None
        record = evidence.records.get(self.new.kind.value, {}).get(record_key(self.new.name))
        return isinstance(record, DuplicatesRecord) and record.digest == node_digest(self.new)


def _pairs_digest(node: Duplicates) -> str:
    shown = () if node.pairs_uri is None else node.select or ("*",)
    return node_digest(node.pairs_join(*shown))


def _cost(node: Duplicates, evidence: Evidence) -> int | None:
    # Both sides are the same rows.
    cost = join_cost(node.pairs_join(*node.on), evidence)
    return None if cost is None else cost // 2


def _meaning(change: DuplicatesChange) -> Iterator[RiskNote]:
    if change.old is None or change.new is None:
        return
    names = [one.name for one in change.changed if one.risk is Risk.JOIN_MEANING_CHANGED]
    if names:
        verb = "differs" if len(names) == 1 else "differ"
        what = "other rows are kept" if names == ["keep.order_by"] else "the groups have other rows"
        sentence = f"{what}, since {' and '.join(names)} {verb}"
        yield RiskNote(Risk.JOIN_MEANING_CHANGED, sentence)


def _outputs(change: DuplicatesChange) -> Iterator[RiskNote]:
    old, new = change.old, change.new
    if old is None or new is None:
        return
    if canonical_uri(old.output_uri) != canonical_uri(new.output_uri):
        sentence = (
            "the groups are written to another location, with new ids; who reads the old one reads "
            "what it is today"
        )
        yield RiskNote(Risk.OUTPUT_MOVED, sentence)
    elif canonical_uri(old.pairs_place) != canonical_uri(new.pairs_place):
        sentence = (
            "the pairs are written to another location; who reads the old one reads what it is "
            "today"
        )
        yield RiskNote(Risk.OUTPUT_MOVED, sentence)


def _cost_note(change: DuplicatesChange, cost: int | None) -> Iterator[RiskNote]:
    if cost != 0:
        again = "" if change.old is None else " again"
        much = "the table, an unknown amount" if cost is None else f"about {size(cost)}"
        sentence = f"the first run compares all rows{again} and reads {much}"
        yield RiskNote(Risk.COST_INCREASED, sentence)


def _notes(change: DuplicatesChange, evidence: Evidence) -> Iterator[str]:
    if change.new is None:
        yield "the groups stay where they are, and nothing refreshes them any more"
        return
    uris = read_uris(evidence.spec, change.new) if change.finds_pairs_again else ()
    for why in dict.fromkeys(map(evidence.unopened_reason, uris)):
        if why is not None:
            yield f"the table {why}"
    if change.old is not None and change.old.name != change.new.name:
        yield f"what refers to '{change.old.name}' must refer to '{change.new.name}'"
