"""What changes between two sides of a project, and what it brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from lancestat.review.evidence import Evidence, gather
from lancestat.review.join_diff import JoinChange, judge_join
from lancestat.review.masking import Mask
from lancestat.review.pairs import Pair, pair
from lancestat.review.properties import (
    Origins,
    changes,
    node_properties,
    target_properties,
    without_flags,
)
from lancestat.review.table_diff import TableChange, judge_table
from lancestat.review.trust import trusted_uris, why_withheld
from lancestat.review.values import Change, Diff, NodeDiff, Property, PropertyChange, Risk, RiskNote
from lancestat.spec.graph import dependencies
from lancestat.spec.model import KnnJoin, Node, ProjectSpec, Table
from lancestat.state.values import StateReader

NodeChange = TableChange | JoinChange

_FELT_BY_READERS = frozenset((Risk.DATASET_MOVED, Risk.OUTPUT_MOVED, Risk.JOIN_MEANING_CHANGED))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides of a project, loaded; `labels` name them, `commits` are those of revisions."""

    base: ProjectSpec
    head: ProjectSpec
    labels: tuple[str, str]
    commits: tuple[str | None, str | None] = (None, None)

    @property
    def mask(self) -> Mask:
        """Of the secrets of both."""
        return Mask.of(self.head, self.base)

    def diff(
        self,
        names: frozenset[str],
        state: Callable[[], StateReader] | None,
        now: datetime,
    ) -> Diff:
        """What changes.

        Args:
            names: The nodes to look at, of both sides.
            state: What runs remember; None where neither it nor datasets are to be opened.
            now: An aware instant.
        """
        pairs = [each for each in pair(self.base, self.head) if each.names & names]
        changed = [(each, found) for each in pairs if (found := self._changed(each)) is not None]
        evidence = self._evidence((change for _, change in changed), state, now)
        settings = changes(
            *(
                target_properties(spec.name, spec.target, spec.target_origins, self.mask)
                for spec in (self.base, self.head)
            )
        )
        return Diff(
            project=self.mask.line(self.head.name),
            target=self.mask.line(self.head.target.name),
            base=self.mask.line(self.labels[0]),
            head=self.mask.line(self.labels[1]),
            nodes=tuple(self._node(each, change, evidence) for each, change in changed),
            unchanged=len(pairs) - len(changed),
            settings=settings,
            notes=(*_moved_state(settings), *evidence.notes),
            base_commit=self.commits[0],
            head_commit=self.commits[1],
        )

    def _changed(self, each: Pair) -> NodeChange | None:
        old, new = each.old, each.new
        before = {} if old is None else node_properties(old, _origins(self.base, old), self.mask)
        after = {} if new is None else node_properties(new, _origins(self.head, new), self.mask)
        if old is None or new is None:
            before, after = without_flags(before), without_flags(after)
        found = changes(before, after)
        if old is not None and new is not None and old.name != new.name:
            found = (_renamed(old, new), *found)
        if not found:
            return None
        if isinstance(each.node, Table):
            assert not isinstance(old, KnnJoin)
            assert not isinstance(new, KnnJoin)
            return TableChange(old, new, found)
        assert not isinstance(old, Table)
        assert not isinstance(new, Table)
        return JoinChange(old, new, found)

    def _evidence(
        self,
        changed: Iterable[NodeChange],
        state: Callable[[], StateReader] | None,
        now: datetime,
    ) -> Evidence:
        nothing = Evidence(
            self.head,
            self.mask,
            now,
            is_opened=state is not None,
            trusted=trusted_uris(self.base, self.head),
            withheld=why_withheld(self.base, self.head),
        )
        if state is None:
            return nothing
        uris: list[str] = []
        for change in changed:
            if isinstance(change, JoinChange):
                uris += change.uris(self.head)
            elif change.asks_dataset:
                uris += change.uris
        return gather(nothing, uris, state)

    def _node(self, each: Pair, change: NodeChange, evidence: Evidence) -> NodeDiff:
        node, old, mask = each.node, each.old, evidence.mask
        if isinstance(change, TableChange):
            found = judge_table(change, evidence)
        else:
            found = judge_join(change, evidence)
        is_renamed = old is not None and old.name != node.name
        risks = {note.risk for note in found.risks}
        readers = self._read_by(each) if is_renamed or risks & _FELT_BY_READERS else ()
        return NodeDiff(
            name=mask.line(node.name),
            kind=node.kind,
            change=_what(each),
            location=replace(node.location, file=mask.line(node.location.file)),
            previous_name=mask.line(old.name) if is_renamed and old is not None else None,
            owners=mask.lines(dict.fromkeys(self._owners(each))),
            properties=change.changed,
            columns=found.columns,
            cost_bytes=found.cost_bytes,
            risks=tuple(RiskNote(note.risk, mask.line(note.sentence)) for note in found.risks),
            notes=mask.lines((*found.notes, *readers)),
        )

    def _owners(self, each: Pair) -> Iterator[str]:
        for spec, node in ((self.head, each.new), (self.base, each.old)):
            if node is not None and node.owner is not None:
                origin = _origins(spec, node).get("owner")
                yield node.owner if origin is None else origin.shown

    def _read_by(self, each: Pair) -> Iterable[str]:
        if each.new is None:
            return
        name = each.new.name
        readers = [reader for reader, reads in dependencies(self.head).items() if name in reads]
        if readers:
            yield f"read by {', '.join(readers)}"


def _moved_state(settings: Iterable[PropertyChange]) -> Iterator[str]:
    if any(setting.name == "state" for setting in settings):
        yield "the state is elsewhere: unless it is moved too, runs know nothing of earlier ones"


def _what(each: Pair) -> Change:
    if each.old is None:
        return Change.ADDED
    return Change.REMOVED if each.new is None else Change.CHANGED


def _renamed(old: Node, new: Node) -> PropertyChange:
    before, after = (Property(node.name, node.name, node.name) for node in (old, new))
    return PropertyChange("name", before, after)


def _origins(spec: ProjectSpec, node: Node) -> Origins:
    return spec.origins.get(node.name, {})
