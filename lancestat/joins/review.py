"""Judges what a change of a node that compares vectors means for readers and for the next run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lancestat.formats import size
from lancestat.joins.sides import datasets_of, lance_uris
from lancestat.lake.files import list_files, list_store_files, local_path
from lancestat.lake.fingerprint import ByteEstimator, field_key
from lancestat.lake.snapshot import Snapshot
from lancestat.review.evidence import Evidence
from lancestat.review.values import Findings, PropertyChange, Risk, RiskNote, declared_risks
from lancestat.runs.node import read_uris
from lancestat.spec.model import KnnJoin, KnnSide, ProjectSpec, node_digest
from lancestat.state.values import canonical_uri


@dataclass(frozen=True, slots=True)
class ResultChange(ABC):
    """A node that compares vectors on both sides, and the properties that differ.

    Notes call its result `result`, what it reads `inputs` and `reads`, and `compares` the verb of
    what a run does with all rows.
    """

    old: Any
    new: Any
    changed: tuple[PropertyChange, ...]

    result: ClassVar[str]
    inputs: ClassVar[str]
    reads: ClassVar[str]
    compares: ClassVar[str]

    @abstractmethod
    def digest(self, node: Any) -> str:
        """Return a digest of what decides whether all rows are compared again."""

    @abstractmethod
    def consequence(self, names: Sequence[str]) -> str:
        """Return what changes of the result if these properties do."""

    @abstractmethod
    def moved(self) -> str | None:
        """Return what is written to another location, None where nothing is."""

    @abstractmethod
    def cost(self, evidence: Evidence) -> int | None:
        """Return the bytes that a full run reads, None where some are not known."""

    @property
    def runs_again(self) -> bool:
        """Whether the next run compares all rows again; the state knows nodes by name."""
        if self.new is None:
            return False
        if self.old is None or self.old.name != self.new.name:
            return True
        return self.digest(self.old) != self.digest(self.new)

    def judge(self, evidence: Evidence) -> Findings:
        is_free = self.new is None or not self.runs_again or self._is_known(evidence)
        cost = 0 if is_free else self.cost(evidence)
        risks = (
            *self._meaning(),
            *self._output(),
            *(declared_risks(self.old, self.new) if self.old and self.new else ()),
            *self._cost_note(cost),
        )
        return Findings(cost_bytes=cost, risks=risks, notes=tuple(self._notes(evidence)))

    def _is_known(self, evidence: Evidence) -> bool:
        """Whether the last run made the result of this very declaration."""
        records: Mapping[str, Any] = evidence.records.get(self.new.kind.value, {})
        digest = node_digest(self.new)
        return any(record.digest == digest for record in records.values())

    def _meaning(self) -> Iterator[RiskNote]:
        risk = Risk.JOIN_MEANING_CHANGED
        names = [one.name for one in self.changed if one.risk is risk]
        if names and self.old is not None and self.new is not None:
            verb = "differs" if len(names) == 1 else "differ"
            sentence = f"{self.consequence(names)}, since {' and '.join(names)} {verb}"
            yield RiskNote(risk, sentence)

    def _output(self) -> Iterator[RiskNote]:
        moved = None if self.old is None or self.new is None else self.moved()
        if moved is not None:
            rest = "who reads the old one reads what it is today"
            yield RiskNote(Risk.OUTPUT_MOVED, f"{moved}; {rest}")

    def _cost_note(self, cost: int | None) -> Iterator[RiskNote]:
        if cost != 0:
            again = "" if self.old is None else " again"
            much = f"{self.inputs}, an unknown amount" if cost is None else f"about {size(cost)}"
            sentence = f"the first run {self.compares} all rows{again} and reads {much}"
            yield RiskNote(Risk.COST_INCREASED, sentence)

    def _notes(self, evidence: Evidence) -> Iterator[str]:
        if self.new is None:
            yield self.result
            return
        uris = read_uris(evidence.spec, self.new) if self.runs_again else ()
        for why in dict.fromkeys(map(evidence.unopened_reason, uris)):
            if why is not None:
                yield f"{self.reads} {why}"
        if self.old is not None and self.old.name != self.new.name:
            yield f"what refers to '{self.old.name}' must refer to '{self.new.name}'"


class JoinChange(ResultChange):
    """A changed join."""

    __slots__ = ()
    result = "the result stays where it is, and nothing refreshes it any more"
    inputs, reads, compares = "both sides", "a side", "joins"

    def opened_uris(self, head: ProjectSpec) -> tuple[str, ...]:
        """Return the URIs of the Lance datasets that the next run reads for the change."""
        return lance_uris(head, self.new) if self.runs_again else ()

    def digest(self, node: KnnJoin) -> str:
        return node_digest(node)

    def consequence(self, names: Sequence[str]) -> str:
        return "the join gives other rows"

    def moved(self) -> str | None:
        before, after = (
            (side.output_format, canonical_uri(side.output_uri)) for side in (self.old, self.new)
        )
        return None if before == after else "the result is written to another location"

    def cost(self, evidence: Evidence) -> int | None:
        return join_cost(self.new, evidence)


def join_cost(join: KnnJoin, evidence: Evidence) -> int | None:
    """Return the bytes that a full run of a join reads, None where some are not known."""
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
