"""What a run did, as values; their JSON is a contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class Status(str, Enum):
    """How a node ended."""

    PLANNED = "planned"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of a plan or a run, field by field as the JSON shows it."""

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

    def to_json(self) -> dict[str, object]:
        """The node's object in the JSON of `plan` and `run`."""
        return {**asdict(self), "reasons": list(self.reasons), "status": self.status.value}


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
