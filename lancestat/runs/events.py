"""What happens in a run, as events that listeners get while it goes on.

Progress on a terminal, log lines, hooks, and files for other systems are listeners. Programs find
the events in `lancestat.events`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from lancestat.formats import format_instant

if TYPE_CHECKING:
    from lancestat.runs.actions import StageProgress
    from lancestat.runs.node import NodeEnded
    from lancestat.runs.result import NodeCheck, NodeResult, RunResult

__all__ = [
    "Cancelling",
    "Event",
    "Found",
    "FragmentsRead",
    "NodeFinished",
    "NodeStarted",
    "RunFinished",
    "RunStarted",
    "StageReached",
    "TableToRead",
    "Warned",
]

_log = logging.getLogger("lancestat.events")


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a run, at a moment in UTC. `name` stands for its kind in JSON."""

    at: datetime = field(default_factory=_now)

    name = "event"

    def to_json(self) -> dict[str, object]:
        """Return the event as log lines in JSON have it."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "at"}
        return {"event": self.name, **own}


@dataclass(frozen=True, slots=True)
class TableToRead:
    """The fragments and bytes of a table that are to be read."""

    node: str
    fragments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run begins. `nodes` are as planned; `tables` are to be read, and `joins` to be run."""

    run_id: str
    command: str
    project: str
    target: str
    nodes: tuple[NodeResult, ...] = ()
    tables: tuple[TableToRead, ...] = ()
    joins: tuple[str, ...] = ()

    name = "run_started"

    def to_json(self) -> dict[str, object]:
        return {
            "event": self.name,
            "run_id": self.run_id,
            "command": self.command,
            "project": self.project,
            "target": self.target,
            "nodes": len(self.nodes),
        }


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """A node begins, also one that will be left as it is."""

    node: str
    kind: str

    name = "node_started"


@dataclass(frozen=True, slots=True)
class StageReached(Event):
    """A node has reached a stage of its action, or is further in it."""

    node: str
    progress: StageProgress

    name = "stage"

    def to_json(self) -> dict[str, object]:
        progress = self.progress
        return {
            "event": self.name,
            "node": self.node,
            "stage": progress.stage.name,
            "rows_done": progress.rows_done,
            "rows_total": progress.rows_total,
        }


@dataclass(frozen=True, slots=True)
class FragmentsRead(Event):
    """The totals that have been read so far of a table."""

    node: str
    fragments: int
    size_bytes: int

    name = "progress"


@dataclass(frozen=True, slots=True)
class NodeFinished(Event):
    """A node ended, well or not. `ended` is what the run keeps of it, for lancestat itself."""

    result: NodeResult
    ended: NodeEnded | None = field(default=None, repr=False)

    name = "node_finished"

    def to_json(self) -> dict[str, object]:
        return {"event": self.name, "node": self.result.name, "result": self.result.to_json()}


@dataclass(frozen=True, slots=True)
class Cancelling(Event):
    """The run was interrupted, and stops what goes on."""

    name = "cancelling"


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """lancestat logged a warning while the run went on."""

    text: str

    name = "warning"

    def to_json(self) -> dict[str, object]:
        return {"event": self.name, "message": self.text}


@dataclass(frozen=True, slots=True)
class Found(Event):
    """Something is not as expected of a node, after all nodes have ended."""

    finding: NodeCheck

    name = "finding"

    def to_json(self) -> dict[str, object]:
        return {"event": self.name, **self.finding.to_json()}


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The run ended and is recorded, also where it was interrupted."""

    result: RunResult

    name = "run_finished"

    def to_json(self) -> dict[str, object]:
        result = self.result
        return {
            "event": self.name,
            "run_id": result.run_id,
            "status": result.status.value,
            "started_at": format_instant(result.started_at) if result.started_at else None,
        }


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""


class EventStream:
    """Hands each event to all listeners, from the thread in which it happens.

    A listener that raises an exception gets no further events. The run goes on, with a warning.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners: Sequence[Listener] = tuple(listeners)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:
                self._listeners = [each for each in self._listeners if each is not listener]
                what = f"{type(error).__name__}: {error}"
                _log.warning("a listener to events of runs failed, and gets no more: %s", what)

    @contextmanager
    def with_warnings(self) -> Iterator[None]:
        """Emit what lancestat warns of in its log while the block runs."""
        logger, handler = logging.getLogger("lancestat"), _WarningHandler(self)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class _WarningHandler(logging.Handler):
    def __init__(self, stream: EventStream) -> None:
        super().__init__(logging.WARNING)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        # What listeners warn of is not for listeners.
        if record.name != _log.name:
            self._stream.emit(Warned(record.getMessage()))
