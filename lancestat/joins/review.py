"""Judges what a change of a join means for those who read its result and for the next run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lancestat.formats import size
from lancestat.joins.record import JoinRecord
from lancestat.joins.sides import datasets_of, lance_uris
from lancestat.lake.files import list_files, list_store_files, local_path
from lancestat.lake.fingerprint import ByteEstimator, field_key
from lancestat.lake.snapshot import Snapshot
from lancestat.review.evidence import Evidence
from lancestat.review.values import Findings, PropertyChange, Risk, RiskNote, declared_risks
from lancestat.runs.node import read_uris
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec, node_digest
from lancestat.state.values import canonical_uri, join_identity


@dataclass(frozen=True, slots=True)
class JoinChange:
    """A join on both sides, and the properties that differ."""

    old: KnnJoin | None
    new: KnnJoin | None
    changed: tuple[PropertyChange, ...]

    @property
    def runs_again(self) -> bool:
        """Whether the next run makes the whole result again; the state knows joins by name."""
        if self.new is None:
            return False
        if self.old is None or self.old.name != self.new.name:
            return True
        return node_digest(self.old) != node_digest(self.new)

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that the next run reads for the change."""
        return lance_uris(head, self.new) if self.new is not None and self.runs_again else ()

    def judge(self, evidence: Evidence) -> Findings:
        cost: int | None = 0
        if self.new is not None and self.runs_again:
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
    uris = read_uris(evidence.spec, change.new) if change.runs_again else ()
    for why in dict.fromkeys(map(evidence.unopened_reason, uris)):
        if why is not None:
            yield f"a side {why}"
    if change.old is not None and change.old.name != change.new.name:
        yield f"what refers to '{change.old.name}' must refer to '{change.new.name}'"


def join_cost(join: KnnJoin, evidence: Evidence) -> int | None:
    """Return the bytes that a full run of a join reads, None where some are not known."""
    record = evidence.records.get(join.kind.value, {}).get(join_identity(join.name))
    if isinstance(record, JoinRecord) and record.digest == node_digest(join):
        return 0
    sides = [_side_bytes(side, evidence) for side in (join.left, join.right)]
    known = [cost for cost in sides if cost is not None]
    return sum(known) if len(known) == len(sides) else None


def _side_bytes(side: KnnSide, evidence: Evidence) -> int | None:
    spec = evidence.spec
    if side.sql is None and side.table is None and side.format != "lance":
        return _files_bytes(side.uri or "", evidence)
    node = None if side.table is None else spec.node(side.table)
    if node is not None and node.dataset_format != "lance":
        return _files_bytes(node.dataset_uri, evidence)
    snapshots = [evidence.snapshot(uri) for uri in datasets_of(spec, side).values()]
    opened = [snapshot for snapshot in snapshots if snapshot is not None]
    if len(opened) < len(snapshots) or not snapshots:
        return None
    select = None if side.sql is not None or side.select is None else (*side.select, side.vector)
    return sum(_read_bytes(snapshot, select) for snapshot in opened)


def _read_bytes(snapshot: Snapshot, select: Iterable[str] | None) -> int:
    if select is None:
        return snapshot.size_bytes
    fields = [field for name in select if (field := snapshot.field(name)) is not None]
    keys = frozenset(map(field_key, fields))
    bytes_read = ByteEstimator(snapshot.fields)
    return sum(bytes_read.estimate(fragment, keys) for fragment in snapshot.fragments)


def _files_bytes(uri: str, evidence: Evidence) -> int | None:
    if not evidence.may_open(uri):
        return None
    if local_path(uri) is not None:
        files = list_files(uri)
    else:
        files = list_store_files(uri, evidence.spec.options.of(uri))
    return None if files is None else sum(file.size_bytes for file in files)
