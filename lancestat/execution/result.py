"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any, Protocol

from lancestat.knn.request import StageProgress
from lancestat.plan.actions import Join, JoinFigures
from lancestat.state.values import RunRecord, StateReader


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How much of a table there is to read."""

    node: str
    fragments: int
    size_bytes: int


class Progress(Protocol):
    """Receives progress; calls may come from several threads."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Tables are about to be read, and joins to be run."""
        ...

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Totals read so far of one table."""
        ...

    def joined(self, node: str, stage: StageProgress) -> None:
        """How far a join is."""
        ...

    def finished(self, result: NodeResult) -> None:
        """A node ended, well or not."""
        ...


class Silent:
    """Progress that nobody looks at."""

    def started(self, tables: Sequence[TableProgress], joins: Sequence[str]) -> None:
        """Say nothing."""

    def advanced(self, node: str, fragments_done: int, bytes_done: int) -> None:
        """Say nothing."""

    def joined(self, node: str, stage: StageProgress) -> None:
        """Say nothing."""

    def finished(self, result: NodeResult) -> None:
        """Say nothing."""


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

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> NodeResult:
        """A node's object read back; what is not known here is passed by.

        Raises:
            ValueError: it is not such an object.
        """
        try:
            is_join = stored["kind"] == Join.kind
            return cls(
                **_known(stored, cls, frozenset({"reasons", "status", "join"})),
                reasons=_reasons(stored["reasons"]),
                status=Status(stored["status"]),
                join=JoinFigures(**_known(stored, JoinFigures)) if is_join else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the result of a node: {error}") from None

    def to_json(self) -> dict[str, object]:
        """The node's object in the JSON of `plan` and `run`."""
        shown = {**asdict(self), "reasons": list(self.reasons), "status": self.status.value}
        del shown["join"]
        is_join = self.kind == Join.kind
        return {**shown, **asdict(self.join or JoinFigures())} if is_join else shown


def _known(
    stored: Mapping[str, object], form: type, others: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The fields of a dataclass that are stored: texts and numbers, each of which may be null."""
    found = {}
    for field in fields(form):
        if field.name in others or field.name not in stored:
            continue
        value = found[field.name] = stored[field.name]
        # Annotations are texts here.
        expected = str if str(field.type).startswith("str") else (int, float)
        is_null = value is None and str(field.type).endswith("None")
        if not is_null and not isinstance(value, expected):
            raise TypeError(f"{field.name} is {type(value).__name__}")
    return found


def _reasons(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or not all(isinstance(each, str) for each in stored):
        raise TypeError("reasons are a list of texts")
    return tuple(stored)


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended; `status` is error when any node's is. `command` is what started it."""

    project: str
    target: str
    nodes: tuple[NodeResult, ...]
    command: str = "run"

    @property
    def status(self) -> Status:
        """`error` when any node failed, else `success`."""
        failed = any(node.status is Status.ERROR for node in self.nodes)
        return Status.ERROR if failed else Status.SUCCESS


_LEFT = frozenset({Status.ERROR.value, Status.SKIPPED.value})
# How many of the newest runs are read, one attempt after the other: targets may share a state.
_LOOKS = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What the newest run of a target left to do.

    `run` is None where none is recorded, `nodes` are declared, `gone` are not any more.
    `full_refresh` tells that the run was to make everything again.
    """

    run: RunRecord | None
    nodes: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    full_refresh: bool = False


def unfinished(state: StateReader, target: str, declared: frozenset[str]) -> Unfinished:
    """Find it in the record of the newest run, which every run but an idle one leaves at its end.

    Args:
        state: Where runs are recorded.
        target: Whose runs count.
        declared: The names of all nodes of the project.
    """
    run = _newest(state, target)
    if run is None:
        return Unfinished(None)
    left = [node for node in run.nodes if node.result.get("status") in _LEFT]
    return Unfinished(
        run,
        tuple(node.node for node in left if node.node in declared),
        tuple(node.node for node in left if node.node not in declared),
        any(node.full_refresh for node in left),
    )


def _newest(state: StateReader, target: str) -> RunRecord | None:
    for limit in _LOOKS:
        runs = state.runs(limit)
        found = next((run for run in runs if run.target == target), None)
        if found is not None or len(runs) < limit:
            return found
    return None
