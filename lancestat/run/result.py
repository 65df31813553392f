"""What a run did, as values; their JSON is a contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

from lancestat.plan.join_actions import Join, JoinFigures


class Status(str, Enum):
    """How a node ended."""

    PLANNED = "planned"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of a plan or a run, field by field as the JSON shows it.

    `join` is set for joins alone, whose objects have its fields too.
    """

    name: str
    kind: str
    action: str
    reasons: tuple[str, ...]
    status: Status
    fragments_total: int | None = None
    fragments_scanned: int | None = None
    columns: int | None = None
    rows_total: int | None = None
    rows_scanned: int | None = None
    version_read: int | None = None
    version_published: int | None = None
    elapsed_seconds: float | None = None
    message: str | None = None
    join: JoinFigures | None = None

    def to_json(self) -> dict[str, object]:
        """The node's object in the JSON of `plan` and `run`."""
        shown = {**asdict(self), "reasons": list(self.reasons), "status": self.status.value}
        del shown["join"]
        is_join = self.kind == Join.kind
        return {**shown, **asdict(self.join or JoinFigures())} if is_join else shown


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended; `status` is error when any node's is."""

    project: str
    target: str
    nodes: tuple[NodeResult, ...]

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `success`."""
        failed = any(node.status is Status.ERROR for node in self.nodes)
        return Status.ERROR if failed else Status.SUCCESS
